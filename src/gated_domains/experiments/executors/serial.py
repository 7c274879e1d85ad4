"""One run after the other in this process: on a GPU, under torchrun, and where workers would only be in the way."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gated_domains.experiments.executors.base import POLL_SECONDS, Executor
from gated_domains.experiments.planner import Plan
from gated_domains.experiments.runner import Runner
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.training.callbacks.progress import ProgressCallback
from gated_domains.utils.locks import BusyError


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
                    if callback is not None:
                        callback.on_wait(list(queue.busy.values()))
                    time.sleep(POLL_SECONDS)
                    queue.retry_busy()
                run = queue.ready[0]
                found = run.name not in done_before and queue.is_done(run)
                try:
                    queue.finish(run, self.runner.make(run))
                except BusyError as busy:
                    queue.put_back(run, busy)
                    continue
                if found and not run.combines and callback is not None:
                    callback.on_run_found(run.recipe, queue.done[run.name])
        finally:
            self.runner.callback = before
        return queue.folders()

    def close(self) -> None:
        """There are no workers to end."""
