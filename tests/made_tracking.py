"""What tests of every tracker share: a command that is tracked, and a training that is cut off under its eyes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from gated_domains.experiments.runner import Runner
from gated_domains.experiments.tracking import Tracking, tracked
from gated_domains.runs.recipe import Recipe
from gated_domains.training.callbacks.base import ProgressCallback
from made_grids import Told
from made_runs import Interrupt, runner, vectors


def tracked_comparison(data: Path, out: Path, tracker: str) -> list[object]:
    """The words of a comparison of one head, whose runs are tracked."""
    reading = ["--target", "sick", "--domain", "site", "--hold-out", "north"]
    short = ["--methods", "linear", "--seeds", 1, "--epochs", 1, "--workers", 1, "--no-report"]
    return ["compare", data, *reading, *short, "--out", out, "--track", tracker]


class CutOff(Told):
    """Stops the training after eight steps, as a person would."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Interrupt(8)

    def on_step(self, step: int, steps: int, *, worker: int = 0) -> None:
        self.inner.on_step(step, steps)


def follow(
    tracking: Tracking, maker: Runner, recipes: Sequence[Recipe], callback: ProgressCallback | None = None
) -> AbstractContextManager[ProgressCallback]:
    """What to tell of the runs of these recipes while they are made, to have them tracked."""
    return tracked(tracking, maker.planner.plan(recipes), maker.root, callback or Told())


def cut_off(recipe: Any, root: Path, tracker: str) -> None:
    """Begin a run that is tracked, and have it stopped on the way."""
    made = runner(vectors(), root, checkpoint_seconds=0.0)
    with (
        Tracking([tracker], root) as tracking,
        pytest.raises(KeyboardInterrupt),
        follow(tracking, made, [recipe], CutOff()) as made.callback,
    ):
        made.run(recipe)
