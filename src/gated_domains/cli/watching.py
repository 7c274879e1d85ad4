"""Many trainings as a person sees them: bars with the time left, or a line a training where nobody watches."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from gated_domains.evaluation.scores import METRICS
from gated_domains.experiments.recipe import Recipe
from gated_domains.experiments.run_folder import RunFolder

_WARMING_UP = 5.0  # seconds


class Watching:
    """Shows how far a list of trainings is, on standard error."""

    def __init__(self, recipes: Sequence[Recipe], *, done: int = 0) -> None:
        self.waiting = [_kind(recipe) for recipe in recipes]
        self.total, self.done = len(recipes) + done, done
        self.console = Console(file=sys.stderr)
        self.took: dict[str, list[float]] = defaultdict(list)
        self.first: float | None = None
        self.progress: Progress | None = None
        self.all_task, self.one_task = TaskID(0), TaskID(0)
        self.share, self.began, self.now = 0.0, time.monotonic(), ""
        self.before, self.ended, self.epochs = 0.0, 0, 1

    def __enter__(self) -> Watching:
        if self.console.is_terminal:
            # Text, not markup: a label has settings in brackets.
            named, left = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[left]}"))
            columns = (SpinnerColumn(), named, BarColumn(), MofNCompleteColumn(), left)
            self.progress = Progress(*columns, console=self.console, transient=True)
            self.progress.start()
            self.all_task = self.progress.add_task("trainings", total=self.total, completed=self.done, left="")
            self.one_task = self.progress.add_task("", total=1, left="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.progress is not None:
            self.progress.stop()

    def run_began(self, recipe: Recipe, folder: RunFolder, *, epochs: int) -> None:
        self.began, self.share, self.now = time.monotonic(), 0.0, _kind(recipe)
        self.before, self.ended, self.epochs = 0.0, 0, epochs
        if self.progress is not None:
            self.progress.update(self.one_task, description=_named(recipe), total=epochs, completed=0, left="")

    def stepped(self, step: int, steps: int) -> None:
        self.share = step / steps
        if self.progress is not None and step % 5 == 0:
            self.progress.update(self.one_task, completed=self.share * self.epochs)
            self.progress.update(self.all_task, left=self._left())

    def epoch_ended(self, record: dict[str, Any]) -> None:
        self._time_an_epoch(record)
        if self.progress is not None:
            scores = record["validation"]
            shown = METRICS[scores["metric"]].shown(scores["overall"])
            self.progress.update(self.one_task, completed=record["epoch"] + 1, left=f"validation {shown}")

    def _time_an_epoch(self, record: dict[str, Any]) -> None:
        """Say how long all will take, once, from the first epoch; a short one mostly warms up, so from the second."""
        if self.first is not None:
            return
        # A training that goes on tells of its next epoch first: the time until then is that of all before it.
        ended = record["epoch"] + 1
        seconds = (record["seconds"] - self.before) / max(1, ended - self.ended)
        self.before, self.ended = record["seconds"], ended
        if seconds < _WARMING_UP and record["epoch"] == 0 and self.epochs > 1:
            return
        self.first = seconds
        said = f"an epoch takes {_duration(seconds)}: at most {_duration(self._seconds())} for all trainings"
        self.console.print(said, highlight=False)

    def run_ended(self, recipe: Recipe, folder: RunFolder, result: dict[str, Any]) -> None:
        kind = _kind(recipe)
        self.done += 1
        self.took[kind].append(time.monotonic() - self.began)
        if kind in self.waiting:
            self.waiting.remove(kind)
        self.now, self.share = "", 0.0
        if self.progress is not None:
            self.progress.update(self.all_task, completed=self.done, left=self._left())
            return
        metric, test = METRICS[result["metric"]], result["test"]
        held_out = (
            ""
            if test is None
            else f", held out {metric.shown(sum(test['by_domain'].values()) / len(test['by_domain']))}"
        )
        shown = metric.shown(result["validation"]["overall"])
        left = f"; {self._left()}" if self._left() else ""
        self.console.print(
            f"[{self.done}/{self.total}] {_named(recipe)}: validation {shown}{held_out}{left}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    def _left(self) -> str:
        return "done" if not self.waiting else "" if self.first is None else f"about {_duration(self._seconds())} left"

    def _seconds(self) -> float:
        """What is left, from how long trainings of each kind took; at first from one epoch of the first."""
        known = [seconds for took in self.took.values() for seconds in took]
        whole = sum(known) / len(known) if known else (self.first or 0.0) * self.epochs
        left = sum(sum(self.took[kind]) / len(self.took[kind]) if self.took[kind] else whole for kind in self.waiting)
        if self.now in self.waiting:
            took = self.took[self.now]
            left -= self.share * (sum(took) / len(took) if took else whole)
        return max(0.0, left)


def _kind(recipe: Recipe) -> str:
    return recipe.method.label


def _named(recipe: Recipe) -> str:
    held_out = "all domains" if recipe.hold_out is None else f"{recipe.hold_out} held out"
    return f"{recipe.method.label}, {held_out}, seed {recipe.seed}"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"
