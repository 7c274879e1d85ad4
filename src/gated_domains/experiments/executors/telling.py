"""How one run is made for somebody else, and what is told of it: events on the way, and what came of it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gated_domains.data.errors import DataError
from gated_domains.experiments.executors.plan import Plan, Work
from gated_domains.experiments.recipe import Recipe
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.experiments.runner import Runner
from gated_domains.training.callbacks.progress import ProgressCallback
from gated_domains.utils.locks import BusyError

_TOLD_EVERY = 0.25  # seconds

# What is said of a run on the way.


@dataclass(frozen=True)
class Began:
    """A training begins."""

    recipe: Recipe
    folder: RunFolder
    epochs: int

    def tell(self, watcher: ProgressCallback, worker: int) -> None:
        watcher.on_run_start(self.recipe, self.folder, epochs=self.epochs, worker=worker)


@dataclass(frozen=True)
class Stepped:
    """It has taken some of its steps."""

    step: int
    steps: int

    def tell(self, watcher: ProgressCallback, worker: int) -> None:
        watcher.on_step(self.step, self.steps, worker=worker)


@dataclass(frozen=True)
class EpochEnded:
    """It has ended an epoch."""

    record: dict[str, Any]

    def tell(self, watcher: ProgressCallback, worker: int) -> None:
        watcher.on_epoch(self.record, worker=worker)


@dataclass(frozen=True)
class Trained:
    """It is done."""

    recipe: Recipe
    folder: RunFolder
    result: dict[str, Any]
    seconds: float

    def tell(self, watcher: ProgressCallback, worker: int) -> None:
        watcher.on_run_end(self.recipe, self.folder, self.result, worker=worker, seconds=self.seconds)


# What comes of it.


@dataclass(frozen=True)
class Ended:
    """A finished run, and what was trained for it: nothing where it was found."""

    folder: RunFolder
    trained: list[Trained]


@dataclass(frozen=True)
class Busy:
    """Another process is at work on it."""

    error: BusyError


@dataclass(frozen=True)
class Refused:
    """It cannot be made, by bad input or a full disk."""

    error: DataError | OSError


@dataclass(frozen=True)
class Failed:
    """A fault of ours, with all that is known of it."""

    traceback: str


Event = Began | Stepped | EpochEnded
Outcome = Ended | Busy | Refused | Failed


class FaultError(RuntimeError):
    """What went wrong in another process, and is no fault of its input."""


class Relay(ProgressCallback):
    """Passes progress on to another process, steps a few times a second, and keeps what was trained."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self.send = send
        self.trained: list[Trained] = []
        self._began = self._stepped = 0.0

    def on_run_start(self, recipe: Recipe, folder: RunFolder, *, epochs: int, worker: int = 0) -> None:
        self._began, self._stepped = time.monotonic(), 0.0
        self.send(Began(recipe, folder, epochs))

    def on_step(self, step: int, steps: int, *, worker: int = 0) -> None:
        now = time.monotonic()
        if now - self._stepped >= _TOLD_EVERY:
            self._stepped = now
            self.send(Stepped(step, steps))

    def on_epoch(self, record: dict[str, Any], *, worker: int = 0) -> None:
        self.send(EpochEnded(record))

    def on_run_end(
        self,
        recipe: Recipe,
        folder: RunFolder,
        result: dict[str, Any],
        *,
        worker: int = 0,
        seconds: float | None = None,
    ) -> None:
        self.trained.append(Trained(recipe, folder, result, time.monotonic() - self._began))


def attempt(make: Callable[[], Runner], work: Work, send: Callable[[Event], None]) -> Outcome:
    """Make one run. ``make`` gives the runner, which may load data first."""
    try:
        runner = make()
        runner.watcher = relay = Relay(send)
        runner.know(work.split, work.recipe)
        return Ended(runner.run(work.recipe), relay.trained)
    except BusyError as busy:
        return Busy(busy)
    except (DataError, OSError) as error:
        return Refused(error)
    except Exception:
        return Failed(traceback.format_exc())


def settle(outcome: Outcome, work: Work, plan: Plan, watcher: ProgressCallback | None, *, worker: int = 0) -> None:
    """Enter what came of a run into the plan, and tell of it; what could not be made is raised."""
    if work.name not in plan.under_way:  # left from an earlier plan, and nothing to this one
        return
    if isinstance(outcome, Busy):
        plan.put_back(work, outcome.error)
    elif isinstance(outcome, Refused):
        raise outcome.error
    elif isinstance(outcome, Failed):
        raise FaultError(f"{work}, in another process:\n{outcome.traceback}")
    else:
        plan.finish(work, outcome.folder)
        if watcher is not None:
            for trained in outcome.trained:
                trained.tell(watcher, worker)
            if work.trains and not outcome.trained:
                watcher.on_run_found(work.recipe, outcome.folder)
