"""What makes the runs of many recipes: the contract that all executors keep."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TypeVar

from gated_domains.experiments.executors.plan import Plan, Work
from gated_domains.experiments.recipe import Recipe
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.experiments.runner import Runner
from gated_domains.training.callbacks.progress import ProgressCallback

RETRIES = 3
LOOK_AGAIN = 1.0  # seconds between two looks at what other processes are at work in

_Self = TypeVar("_Self", bound="Executor")


class Executor(ABC):
    """Makes the runs of recipes and those that they need, each once, none before what it needs.

    It is a context: workers last until its end, over any number of calls of ``run``. Whenever it is stopped or killed,
    the same recipes go on where they were. A run that another process is at work in is left for later; when nothing
    else is left, that process is waited for.
    """

    workers: int = 1
    """How many runs are made at a time."""

    @abstractmethod
    def run(self, recipes: Sequence[Recipe], *, watcher: ProgressCallback | None = None) -> list[RunFolder]:
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

    def run(self, recipes: Sequence[Recipe], *, watcher: ProgressCallback | None = None) -> list[RunFolder]:
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
                    watcher.on_wait(list(plan.busy.values()))
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
    def _hear(self, plan: Plan, watcher: ProgressCallback | None) -> None:
        """Wait until there is something to hear, or it is time to look again at what others do."""

    @abstractmethod
    def _stop(self) -> None:
        """Let what is under way end at once."""
