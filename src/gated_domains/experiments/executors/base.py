"""Executors make the runs of a plan: the contract that all keep, the queue of runs, and the serial executor."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from gated_domains.data.errors import DataError
from gated_domains.experiments.planner import Plan, PlannedRun
from gated_domains.experiments.runner import Runner
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import BusyError
from gated_domains.training.callbacks.base import ProgressCallback

RETRIES = 3
POLL_SECONDS = 1.0  # between two looks at runs that other processes are making

_Self = TypeVar("_Self", bound="Executor")


class Executor(ABC):
    """Makes the runs of a plan, each once, none before what it needs.

    It is a context: workers last until its end, over any number of calls of ``run``. However it is stopped or killed,
    the same plan continues where it was. A run that another process is making is left for later; when nothing else is
    left, that process is waited for.
    """

    runner: Runner
    workers: int = 1
    """How many runs are made at a time."""

    @abstractmethod
    def run(self, plan: Plan | Sequence[Recipe], *, callback: ProgressCallback | None = None) -> list[RunFolder]:
        """The finished runs that a plan was asked for, in order; a list of recipes is planned first.

        The first run that cannot be made ends it with its error. What workers are making then is not lost: another call
        of ``run`` takes it over, and ``close`` ends it.
        """

    @abstractmethod
    def close(self) -> None:
        """End all workers, whatever they are doing."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _queue(self, plan: Plan | Sequence[Recipe]) -> RunQueue:
        planned = plan if isinstance(plan, Plan) else self.runner.planner.plan(plan)
        return RunQueue(planned, self.runner.root)


class AsyncExecutor(Executor):
    """An executor that hands runs out and hears of them later."""

    def run(self, plan: Plan | Sequence[Recipe], *, callback: ProgressCallback | None = None) -> list[RunFolder]:
        queue, callback = self._queue(plan), callback or ProgressCallback()
        queue.find_done()
        queue.take_over(self._under_way())
        looked = time.monotonic()
        try:
            while queue.left:
                if queue.busy and time.monotonic() - looked >= POLL_SECONDS:
                    queue.retry_busy()
                    looked = time.monotonic()
                self._hand_out(queue)
                if queue.waits:
                    callback.on_wait(list(queue.busy.values()))
                self._receive(queue, callback)
        except KeyboardInterrupt:
            self._stop()  # the next command resumes the runs
            raise
        return queue.folders()

    @abstractmethod
    def _under_way(self) -> Iterable[PlannedRun]:
        """Runs that were handed out before and have not ended yet."""

    @abstractmethod
    def _hand_out(self, queue: RunQueue) -> None:
        """Hand out what is ready, as far as workers are free."""

    @abstractmethod
    def _receive(self, queue: RunQueue, callback: ProgressCallback) -> None:
        """Wait for a message of a worker, or until it is time to look at busy runs again."""

    @abstractmethod
    def _stop(self) -> None:
        """End what is under way at once."""


class RunQueue:
    """The runs of a plan: which are done, under way, ready, or being made by another process."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan, self.root = plan, root
        self.done: dict[str, RunFolder] = {}
        self.under_way: set[str] = set()
        self.busy: dict[str, BusyError] = {}
        self._lost: Counter[str] = Counter()

    def is_done(self, run: PlannedRun) -> bool:
        found = RunFolder.find(self.root, run.identity, data=run.data)
        return found is not None and found.done

    def find_done(self) -> None:
        """Take the runs that are done already."""
        for run in self.plan.runs.values():
            if self.is_done(run):
                self.done[run.name] = RunFolder.open(self.root, run.identity, data=run.data)

    @property
    def left(self) -> list[PlannedRun]:
        """Runs that are not done, in order."""
        return [run for run in self.plan.runs.values() if run.name not in self.done]

    @property
    def ready(self) -> list[PlannedRun]:
        """Runs that may begin, in order: everything they need is done, and nobody is making them."""
        taken = self.under_way | self.busy.keys()
        return [run for run in self.left if run.name not in taken and all(need in self.done for need in run.needs)]

    @property
    def waits(self) -> bool:
        """Whether nothing can be done but to wait for other processes."""
        return bool(self.busy) and not self.under_way and not self.ready

    def begin(self, run: PlannedRun) -> None:
        self.under_way.add(run.name)

    def take_over(self, runs: Iterable[PlannedRun]) -> None:
        """Count runs as under way that an earlier queue handed out, as far as they are part of this one."""
        self.under_way |= {run.name for run in runs} & {run.name for run in self.left}

    def finish(self, run: PlannedRun, folder: RunFolder) -> None:
        self.under_way.discard(run.name)
        self.done[run.name] = folder

    def put_back(self, run: PlannedRun, busy: BusyError) -> None:
        """Leave a run to the process that is making it, until ``retry_busy``."""
        self.under_way.discard(run.name)
        self.busy[run.name] = busy

    def retry_busy(self) -> None:
        """Try once more what other processes were making."""
        self.busy.clear()

    def lose(self, run: PlannedRun, why: str, *, retries: int) -> None:
        """Its process is gone: it may begin again, up to ``retries`` times."""
        if run.name not in self.under_way:  # of an earlier queue
            return
        self.under_way.discard(run.name)
        self._lost[run.name] += 1
        if self._lost[run.name] > retries:
            times = self._lost[run.name]
            raise DataError(
                f"{run}: the process that trained it was lost {times} time{'s' * (times != 1)}; the last one {why}. "
                "What it has done is kept; where memory was short, try fewer at a time"
            )

    def folders(self) -> list[RunFolder]:
        """The finished runs that were asked for, in order."""
        return [self.done[name] for name in self.plan.asked]


class SerialExecutor(Executor):
    """Makes every run in this process. Under torchrun all processes make the same runs in the same order."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def run(self, plan: Plan | Sequence[Recipe], *, callback: ProgressCallback | None = None) -> list[RunFolder]:
        queue = self._queue(plan)
        done_before = {run.name for run in queue.plan.runs.values() if queue.is_done(run)}
        before, self.runner.callback = self.runner.callback, callback or self.runner.callback
        try:
            # What is next follows from what the first process found and told, never from a clock or a disk that
            # another process may see otherwise.
            while queue.left:
                if queue.waits:
                    self.runner.callback.on_wait(list(queue.busy.values()))
                    time.sleep(POLL_SECONDS)
                    queue.retry_busy()
                run = queue.ready[0]
                found = run.name not in done_before and queue.is_done(run)
                try:
                    queue.finish(run, self.runner.make(run))
                except BusyError as busy:
                    queue.put_back(run, busy)
                    continue
                if found and not run.combines:
                    self.runner.callback.on_run_found(run.recipe, queue.done[run.name])
        finally:
            self.runner.callback = before
        return queue.folders()

    def close(self) -> None:
        """There are no workers to end."""
