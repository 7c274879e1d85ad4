"""One run after the other, in this process: for a GPU, under torchrun, and wherever more would only be in the way."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gated_domains.experiments.executors.executor import LOOK_AGAIN, Executor
from gated_domains.experiments.executors.plan import Plan, Work
from gated_domains.experiments.recipe import Recipe
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.experiments.runner import Runner
from gated_domains.training.callbacks.progress import ProgressCallback
from gated_domains.utils.locks import BusyError


class OneByOne(Executor):
    """Makes every run here.

    Under torchrun all processes take the same runs in the same order.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def run(self, recipes: Sequence[Recipe], *, watcher: ProgressCallback | None = None) -> list[RunFolder]:
        plan = Plan(self.runner, recipes)
        there = {work.name for work in plan.works.values() if self._done(work)}
        before, self.runner.watcher = self.runner.watcher, watcher or self.runner.watcher
        try:
            # What is next follows from what the first process found and told, never from a clock or a disk that
            # another process may see otherwise.
            while plan.left:
                if plan.waits:
                    if watcher is not None:
                        watcher.on_wait(list(plan.busy.values()))
                    time.sleep(LOOK_AGAIN)
                    plan.look_again()
                work = plan.ready[0]
                found = work.name not in there and self._done(work)
                self._make(work, plan)
                if found and work.trains and watcher is not None and work.name in plan.done:
                    watcher.on_run_found(work.recipe, plan.done[work.name])
        finally:
            self.runner.watcher = before
        return plan.folders()

    def _make(self, work: Work, plan: Plan) -> None:
        try:
            plan.finish(work, self.runner.run(work.recipe))
        except BusyError as busy:
            plan.put_back(work, busy)

    def close(self) -> None:
        """There is nobody to let go of."""

    def _done(self, work: Work) -> bool:
        found = self.runner.find(work.recipe)
        return found is not None and found.done
