"""What makes the runs of many recipes: the contract that all executors keep."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

from gated_domains.experiments.executors.plan import Plan, Work
from gated_domains.experiments.run_job import RunWatcher
from gated_domains.experiments.runner import Runner
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.utils.locks import BusyError

RETRIES = 3
LOOK_AGAIN = 1.0  # seconds between two looks at what other processes are at work in

_Self = TypeVar("_Self", bound="Executor")


@runtime_checkable
class GridWatcher(RunWatcher, Protocol):
    """Who is told of several trainings at a time; ``worker``, counted from 0, says whose.

    An executor that knows of nothing but ends calls ``run_ended`` alone, with the ``seconds`` that the training took.
    """

    def run_began(self, recipe: Recipe, folder: RunFolder, *, epochs: int, worker: int = 0) -> None: ...
    def stepped(self, step: int, steps: int, *, worker: int = 0) -> None: ...
    def epoch_ended(self, record: dict[str, Any], *, worker: int = 0) -> None: ...
    def run_ended(
        self,
        recipe: Recipe,
        folder: RunFolder,
        result: dict[str, Any],
        *,
        worker: int = 0,
        seconds: float | None = None,
    ) -> None: ...

    def run_found(self, recipe: Recipe, folder: RunFolder) -> None:
        """Another process has made it meanwhile."""

    def run_lost(self, recipe: Recipe, why: str, *, worker: int = 0) -> None:
        """The process at work on it is gone; it will be tried again."""

    def waiting(self, busy: Sequence[BusyError]) -> None:
        """Nothing is left but what other processes are at work in."""


class Executor(ABC):
    """Makes the runs of recipes and those that they need, each once, none before what it needs.

    It is a context: workers last until its end, over any number of calls of ``run``. Whenever it is stopped or killed,
    the same recipes go on where they were. A run that another process is at work in is left for later; when nothing
    else is left, that process is waited for.
    """

    workers: int = 1
    """How many runs are made at a time."""

    @abstractmethod
    def run(self, recipes: Sequence[Recipe], *, watcher: GridWatcher | None = None) -> list[RunFolder]:
        """The finished runs of these recipes, in their order.

        The first that cannot be made ends it with its error. What workers are at then is not lost: another call of
        ``run`` hears of it, and ``close`` ends it.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of all workers, whatever they are at."""

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Elsewhere(Executor):
    """An executor that hands runs out and hears of them later."""

    runner: Runner

    def run(self, recipes: Sequence[Recipe], *, watcher: GridWatcher | None = None) -> list[RunFolder]:
        plan = Plan(self.runner, recipes)
        plan.find_done()
        plan.take_over(self._under_way())
        looked = time.monotonic()
        try:
            while plan.left:
                if plan.busy and time.monotonic() - looked >= LOOK_AGAIN:
                    plan.look_again()
                    looked = time.monotonic()
                self._hand_out(plan)
                if plan.waits and watcher is not None:
                    watcher.waiting(list(plan.busy.values()))
                self._hear(plan, watcher)
        except KeyboardInterrupt:
            self._stop()  # the next command goes on where they were
            raise
        return plan.folders()

    @abstractmethod
    def _under_way(self) -> Iterable[Work]:
        """What was handed out before and not heard of yet."""

    @abstractmethod
    def _hand_out(self, plan: Plan) -> None:
        """Hand out what is ready, as far as there is room."""

    @abstractmethod
    def _hear(self, plan: Plan, watcher: GridWatcher | None) -> None:
        """Wait until there is something to hear, or it is time to look again at what others do."""

    @abstractmethod
    def _stop(self) -> None:
        """Let what is under way end at once."""
