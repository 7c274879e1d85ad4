"""How far a list of trainings is: bars with the time left, or a line per training where nobody watches."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from gated_domains.data.errors import listing
from gated_domains.evaluation.scores import METRICS
from gated_domains.experiments.planner import PlannedRun
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import BusyError
from gated_domains.training.callbacks.base import ProgressCallback

_WARMING_UP = 5.0  # seconds


@dataclass
class _Lane:
    """What one worker is at."""

    kind: str = ""
    epochs: int = 1
    share: float = 0.0
    began: float = field(default_factory=lambda: time.monotonic())
    before: float = 0.0  # seconds of this training when its last known epoch ended
    ended: int = 0  # epochs known to have ended


class TimeLeft:
    """Trainings by kind, of which ``workers`` go on at a time."""

    def __init__(self, kinds: Sequence[str], *, workers: int = 1) -> None:
        self.waiting = list(kinds)
        self.workers = workers
        self.epoch: float | None = None
        """Seconds of the first epoch that tells."""
        self._took: dict[str, list[float]] = defaultdict(list)
        self._epochs, self._ends_alone = 1, True
        self._lanes: dict[int, _Lane] = defaultdict(_Lane)

    def began(self, kind: str, *, epochs: int, worker: int) -> None:
        self._lanes[worker], self._ends_alone = _Lane(kind, epochs), False

    def stepped(self, share: float, *, worker: int) -> None:
        self._lanes[worker].share = share

    def epochs(self, worker: int) -> int:
        """How many epochs the training of a worker has at most."""
        return self._lanes[worker].epochs

    def epoch_ended(self, record: dict[str, Any], *, worker: int) -> bool:
        """Whether it is known by this epoch, for the first time, how long one takes: a short first one warms up."""
        if self.epoch is not None:
            return False
        lane = self._lanes[worker]
        # A training that goes on tells of its next epoch first: the time until then is that of all before it.
        ended = record["epoch"] + 1
        seconds = (record["seconds"] - lane.before) / max(1, ended - lane.ended)
        lane.before, lane.ended = record["seconds"], ended
        if seconds < _WARMING_UP and record["epoch"] == 0 and lane.epochs > 1:
            return False
        self.epoch, self._epochs = seconds, lane.epochs
        return True

    def ended(self, kind: str, *, worker: int, seconds: float | None = None) -> None:
        """A training is done; it took the time since it began where nobody knows better."""
        self._took[kind].append(time.monotonic() - self._lanes[worker].began if seconds is None else seconds)
        self.gone(kind)
        self._lanes.pop(worker, None)

    def gone(self, kind: str) -> None:
        """One of this kind is not waited for any more."""
        if kind in self.waiting:
            self.waiting.remove(kind)

    def lost(self, worker: int) -> None:
        """What a worker was at goes back to those that wait."""
        self._lanes.pop(worker, None)

    @property
    def known(self) -> bool:
        """Whether there is anything to tell from: an epoch, or ends where nothing else is heard of."""
        return self.epoch is not None or (self._ends_alone and any(self._took.values()))

    @property
    def seconds(self) -> float:
        """What is left: the work of all, shared, but no less than any one training still takes."""
        under_way = [lane for lane in self._lanes.values() if lane.kind in self.waiting]
        unbegun = Counter(self.waiting) - Counter(lane.kind for lane in under_way)
        left = [self._whole(kind) for kind in unbegun.elements()]
        left += [(1 - lane.share) * self._whole(lane.kind) for lane in under_way]
        return max(0.0, sum(left) / self.workers, *left)

    def _whole(self, kind: str) -> float:
        """Seconds of a training of this kind; of others, then of all epochs like the first, where none is known."""
        took = self._took[kind] or [seconds for others in self._took.values() for seconds in others]
        return sum(took) / len(took) if took else (self.epoch or 0.0) * self._epochs


class ProgressBar(ProgressCallback):
    """Shows how far a list of trainings is, ``workers`` of them at a time, on standard error."""

    def __init__(self, runs: Sequence[PlannedRun], *, done: int = 0, workers: int = 1, quiet: bool = False) -> None:
        self.total, self.done, self.workers = len(runs) + done, done, workers
        self.time = TimeLeft([run.recipe.label for run in runs], workers=workers)
        self.console = Console(file=sys.stderr, quiet=quiet)
        self.progress: Progress | None = None
        self.all_task = TaskID(0)
        self.lines: dict[int, TaskID] = {}
        self.waited_for: set[str] = set()

    def __enter__(self) -> ProgressBar:
        if self.console.is_terminal and not self.console.quiet:
            # Text, not markup: a label has settings in brackets.
            named, left = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[left]}"))
            columns = (SpinnerColumn(), named, BarColumn(), MofNCompleteColumn(), left)
            self.progress = Progress(*columns, console=self.console, transient=True)
            self.progress.start()
            self.all_task = self.progress.add_task("trainings", total=self.total, completed=self.done, left="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.progress is not None:
            self.progress.stop()

    def on_run_start(self, recipe: Recipe, folder: RunFolder, *, epochs: int, worker: int = 0) -> None:
        self.time.began(recipe.label, epochs=epochs, worker=worker)
        if self.progress is not None:
            if worker not in self.lines:
                self.lines[worker] = self.progress.add_task("", total=1, left="")
            self._show(worker, description=recipe.description, total=epochs, completed=0, left="", visible=True)

    def on_step(self, step: int, steps: int, *, worker: int = 0) -> None:
        self.time.stepped(step / steps, worker=worker)
        if self.progress is not None and (self.workers > 1 or step % 5 == 0):  # several tell of it seldom enough
            self._show(worker, completed=step / steps * self.time.epochs(worker))
            self.progress.update(self.all_task, left=self._left())

    def on_epoch(self, record: dict[str, Any], *, worker: int = 0) -> None:
        if self.time.epoch_ended(record, worker=worker):
            epoch, all_of_them = _duration(self.time.epoch or 0.0), _duration(self.time.seconds)
            together = f", {self.workers} at a time" * (self.workers > 1)
            self._say(f"an epoch takes {epoch}: at most {all_of_them} for all trainings{together}")
        if self.progress is not None:
            scores = record["validation"]
            shown = METRICS[scores["metric"]].shown(scores["overall"])
            self._show(worker, completed=record["epoch"] + 1, left=f"validation {shown}")

    def on_run_end(
        self,
        recipe: Recipe,
        folder: RunFolder,
        result: dict[str, Any],
        *,
        worker: int = 0,
        seconds: float | None = None,
    ) -> None:
        self.time.ended(recipe.label, worker=worker, seconds=seconds)
        metric, test = METRICS[result["metric"]], result["test"]
        held_out = (
            ""
            if not (test or {}).get("by_domain")
            else f", held out {metric.shown(sum(test['by_domain'].values()) / len(test['by_domain']))}"
        )
        self._one_more(recipe, f"validation {metric.shown(result['validation']['overall'])}{held_out}", worker)

    def on_run_found(self, recipe: Recipe, folder: RunFolder) -> None:
        self.time.gone(recipe.label)
        self._one_more(recipe, "another process has made it")

    def on_run_lost(self, recipe: Recipe, why: str, *, worker: int = 0) -> None:
        self.time.lost(worker)
        self._show(worker, visible=False)
        self._say(f"{recipe.description}: its process {why}; the training is tried again, from its last checkpoint")

    def on_wait(self, busy: Sequence[BusyError]) -> None:
        """Say once of every process that it is waited for."""
        who = {"another process" if error.pid is None else f"process {error.pid}": None for error in busy}
        if set(who) - self.waited_for:
            self.waited_for |= set(who)
            runs = "1 run" if len(busy) == 1 else f"{len(busy)} runs"
            self._say(f"waiting for {listing(who)}, at work on {runs} of these")

    def _one_more(self, recipe: Recipe, came_of_it: str, worker: int | None = None) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress.update(self.all_task, completed=self.done, left=self._left())
            if worker is not None and self.workers > 1:
                self._show(worker, visible=False)  # until it has something else to do
            return
        left = f"; {self._left()}" if self._left() else ""
        self._say(f"[{self.done}/{self.total}] {recipe.description}: {came_of_it}{left}")

    def _show(self, worker: int, **fields: Any) -> None:
        if self.progress is not None and worker in self.lines:
            self.progress.update(self.lines[worker], **fields)

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _left(self) -> str:
        if not self.time.waiting:
            return "done"
        return f"about {_duration(self.time.seconds)} left" if self.time.known else ""


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"
