"""Runs for TensorBoard: event files below OUT/tensorboard, a folder a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gated_domains.data.errors import written_whole
from gated_domains.experiments.tracking.about_run import (
    curve_of,
    digest_of,
    finals_of,
    settings_of,
    tags_of,
    title_of,
)
from gated_domains.runs.folder import RECIPE, RunFolder

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
_COMPLETE = "complete.txt"  # the digest of the run that all is written of


class TensorBoardTracker:
    """Writes curves epoch by epoch, and in the end the settings beside the final scores.

    What was written of a run before it was cut off is written anew: event files can only be added to.
    """

    def __init__(self, root: Path) -> None:
        self.root = root / FOLDER
        self._open: dict[str, tuple[SummaryWriter, int]] = {}

    @property
    def look(self) -> str:
        """The command that shows what was written."""
        return f"tensorboard --logdir {shlex.quote(str(self.root))}"

    def has(self, run: RunFolder) -> bool:
        """Whether all of this run is there."""
        marker = self.root / run.name / _COMPLETE
        return marker.exists() and marker.read_text(encoding="utf-8") == digest_of(run)

    def follow(self, run: RunFolder) -> None:
        """Write the epochs that are not there yet."""
        writer, last = self._writer(run)
        for epoch, scalars in curve_of(run, after=last):
            for name, value in scalars.items():
                writer.add_scalar(name, value, epoch)
            last = epoch
        writer.flush()
        self._open[run.name] = writer, last

    def finish(self, run: RunFolder) -> None:
        """Write the rest of the curve, the settings and what came of them."""
        self.follow(run)
        writer, last = self._open.pop(run.name)
        finals = finals_of(run)
        for name, value in finals.items():
            writer.add_scalar(name, value, max(last, 0))
        for summary in _hyperparameters({**settings_of(run), "data": tags_of(run)["data"]}, finals, title_of(run)):
            writer._get_file_writer().add_summary(summary)
        if (run.path / RECIPE).exists():
            writer.add_text("recipe", _as_code((run.path / RECIPE).read_text(encoding="utf-8")))
        writer.add_text("title", _as_code(title_of(run)))
        writer.close()
        with written_whole(self.root / run.name / _COMPLETE) as draft:
            draft.write_text(digest_of(run), encoding="utf-8")

    def close(self) -> None:
        """Let go of the files of runs that did not end."""
        for writer, _ in self._open.values():
            writer.close()
        self._open.clear()

    def _writer(self, run: RunFolder) -> tuple[SummaryWriter, int]:
        if run.name not in self._open:
            from torch.utils.tensorboard import SummaryWriter

            folder = self.root / run.name
            for left in [folder / _COMPLETE, *folder.glob("events.out.tfevents.*")]:
                left.unlink(missing_ok=True)
            self._open[run.name] = SummaryWriter(str(folder)), -1
        return self._open[run.name]


def _hyperparameters(settings: dict[str, Any], finals: dict[str, float], title: str) -> list[Any]:
    """The summaries behind a row of TensorBoard's table of hyperparameters."""
    from torch.utils.tensorboard.summary import hparams

    return list(hparams({**settings, "title": title}, finals))


def _as_code(text: str) -> str:
    """Markdown that shows the text letter by letter."""
    return "".join(f"    {line}\n" for line in text.splitlines())
