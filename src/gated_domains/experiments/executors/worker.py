"""The worker's side of an executor: the data it shares with others, the runs it makes, and what it tells of them."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from gated_domains.data.errors import DataError
from gated_domains.experiments.executors.base import RunQueue
from gated_domains.experiments.planner import PlannedRun
from gated_domains.experiments.runner import Runner
from gated_domains.experiments.source_data import SourceData
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import BusyError
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.engine import Hardware

_OURS = "GATED_DOMAINS_"  # variables that name folders of data and caches
_TOLD_EVERY = 0.25  # seconds between two messages about steps


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkerSpec:
    """What a worker needs to become like the process that it works for."""

    root: Path
    hardware: Hardware
    checkpoint_seconds: float
    folder: str = field(default_factory=os.getcwd)
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))
    variables: dict[str, str] = field(
        default_factory=lambda: {name: value for name, value in os.environ.items() if name.startswith(_OURS)}
    )

    @classmethod
    def of(cls, runner: Runner, *, hardware: Hardware | None = None) -> WorkerSpec:
        """The specification of workers of a runner."""
        root = Path(os.path.abspath(runner.root))
        return cls(root=root, hardware=hardware or runner.hardware, checkpoint_seconds=runner.checkpoint_seconds)

    def build_runner(self, data: SourceData) -> Runner:
        """A runner like the one that it works for, in the same folder, with the same command and variables."""
        os.environ.update(self.variables)
        with suppress(OSError):  # on another machine it may not exist, nor be needed
            os.chdir(self.folder)
        sys.argv[:] = self.command
        return Runner(data, self.root, hardware=self.hardware, checkpoint_seconds=self.checkpoint_seconds)


def use_threads(count: int) -> None:
    """Let everything that computes in this process use this many threads."""
    os.environ["OMP_NUM_THREADS"] = str(count)  # for what is loaded later
    torch.set_num_threads(count)
    threadpool_limits(count)


# Events of a run under way.


@dataclass(frozen=True)
class RunStarted:
    """A training begins."""

    recipe: Recipe
    folder: RunFolder
    epochs: int

    def tell(self, callback: ProgressCallback, worker: int) -> None:
        callback.on_run_start(self.recipe, self.folder, epochs=self.epochs, worker=worker)


@dataclass(frozen=True)
class Stepped:
    """A training has taken some of its steps."""

    step: int
    steps: int

    def tell(self, callback: ProgressCallback, worker: int) -> None:
        callback.on_step(self.step, self.steps, worker=worker)


@dataclass(frozen=True)
class EpochEnded:
    """A training has ended an epoch."""

    record: dict[str, Any]

    def tell(self, callback: ProgressCallback, worker: int) -> None:
        callback.on_epoch(self.record, worker=worker)


@dataclass(frozen=True)
class RunEnded:
    """A training is done."""

    recipe: Recipe
    folder: RunFolder
    result: dict[str, Any]
    seconds: float

    def tell(self, callback: ProgressCallback, worker: int) -> None:
        callback.on_run_end(self.recipe, self.folder, self.result, worker=worker, seconds=self.seconds)


Event = RunStarted | Stepped | EpochEnded

# Outcomes of a run.


@dataclass(frozen=True)
class Finished:
    """A finished run, and what was trained for it: nothing if it was found."""

    folder: RunFolder
    trained: list[RunEnded]


@dataclass(frozen=True)
class Busy:
    """Another process is making it."""

    error: BusyError


@dataclass(frozen=True)
class Refused:
    """It cannot be made: bad input, or a full disk."""

    error: DataError | OSError


@dataclass(frozen=True)
class Failed:
    """A fault of ours, with everything that is known of it."""

    traceback: str


Outcome = Finished | Busy | Refused | Failed


class WorkerFaultError(RuntimeError):
    """A fault in another process that is not due to its input."""


class Relay(ProgressCallback):
    """Passes progress on to another process, steps a few times a second, and keeps what was trained."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self.send = send
        self.trained: list[RunEnded] = []
        self._began = self._stepped = 0.0

    def on_run_start(self, recipe: Recipe, folder: RunFolder, *, epochs: int, worker: int = 0) -> None:
        self._began, self._stepped = time.monotonic(), 0.0
        self.send(RunStarted(recipe, folder, epochs))

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
        self.trained.append(RunEnded(recipe, folder, result, time.monotonic() - self._began))


def attempt(make_runner: Callable[[], Runner], run: PlannedRun, send: Callable[[Event], None]) -> Outcome:
    """Make one run; what went wrong is returned."""
    try:
        runner = make_runner()
        runner.callback = relay = Relay(send)
        return Finished(runner.make(run), relay.trained)
    except BusyError as busy:
        return Busy(busy)
    except (DataError, OSError) as error:
        return Refused(error)
    except Exception:
        return Failed(traceback.format_exc())


def settle(outcome: Outcome, run: PlannedRun, queue: RunQueue, callback: ProgressCallback, *, worker: int = 0) -> None:
    """Enter the outcome of a run into the queue, and tell of it; a run that cannot be made raises its error."""
    if run.name not in queue.under_way:  # of an earlier queue
        return
    if isinstance(outcome, Busy):
        queue.put_back(run, outcome.error)
    elif isinstance(outcome, Refused):
        raise outcome.error
    elif isinstance(outcome, Failed):
        raise WorkerFaultError(f"{run}, in another process:\n{outcome.traceback}")
    else:
        queue.finish(run, outcome.folder)
        for trained in outcome.trained:
            trained.tell(callback, worker)
        if not run.combines and not outcome.trained:
            callback.on_run_found(run.recipe, outcome.folder)


# The other side of the connection.


@dataclass(frozen=True)
class Ready:
    """The process has started, and takes runs."""


@dataclass(frozen=True)
class Warned:
    """A warning, to be shown by the process that people look at."""

    message: str
    category: type[Warning]
    file: str
    line: int
