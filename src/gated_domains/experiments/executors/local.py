"""Worker processes on this machine, each with one thread and data of its own."""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

from gated_domains.data.errors import DataError
from gated_domains.experiments.executors.executor import LOOK_AGAIN, RETRIES, Elsewhere
from gated_domains.experiments.executors.plan import Plan, Work
from gated_domains.experiments.executors.serving import Ready, Warned, serve
from gated_domains.experiments.executors.telling import Busy, Ended, Failed, Refused, settle
from gated_domains.experiments.executors.workshop import Loading, Workshop
from gated_domains.experiments.runner import Runner
from gated_domains.training.callbacks.progress import ProgressCallback


class Workers(Elsewhere):
    """Hands runs out to ``workers`` processes. One that dies is replaced, and its run tried again ``retries`` times.

    ``data`` loads in every worker what the runner has in memory; without it the data themselves are sent. A script that
    uses it must keep its own doings under ``if __name__ == "__main__":``, as everywhere in Python where processes are
    not forked.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        workers: int,
        data: Loading | None = None,
        retries: int = RETRIES,
    ) -> None:
        if workers < 1:
            raise DataError(f"there must be at least one worker, got {workers}")
        self.runner, self.workers, self.retries = runner, workers, retries
        self.workshop = Workshop.of(runner, data)
        self._team: list[_Worker] = []
        self._stillborn = 0
        self._warned: dict[Any, Any] = {}

    def close(self) -> None:
        for worker in self._team:
            worker.end()
        self._team.clear()

    def _stop(self) -> None:
        self.close()

    def _under_way(self) -> Iterable[Work]:
        return [worker.work for worker in self._team if worker.work is not None]

    def _hand_out(self, plan: Plan) -> None:
        """Start workers while there are too few, and give what is ready to those that have nothing to do."""
        ready = plan.ready
        while len(self._team) < min(self.workers, len(plan.under_way) + len(ready)):
            number = min(set(range(self.workers)) - {worker.number for worker in self._team})
            self._team.append(_Worker(number, self.workshop))
        idle = [worker for worker in self._team if worker.came_up and worker.work is None]
        for worker, work in zip(idle, ready, strict=False):
            if worker.take(work):
                plan.begin(work)

    def _hear(self, plan: Plan, watcher: ProgressCallback | None) -> None:
        """Wait until a worker says something, or dies, or it is time to look again at what others do."""
        ears: dict[Any, _Worker] = {}
        for worker in self._team:
            ears[worker.connection] = ears[worker.process.sentinel] = worker
        heard = wait(list(ears), timeout=LOOK_AGAIN if plan.busy else None)
        for worker in dict.fromkeys(ears[ear] for ear in heard):
            for message in worker.messages():
                self._take(message, worker, plan, watcher)
            if not worker.process.is_alive():
                self._replace(worker, plan, watcher)

    def _take(self, message: Any, worker: _Worker, plan: Plan, watcher: ProgressCallback | None) -> None:
        if isinstance(message, Ready):
            worker.came_up, self._stillborn = True, 0
        elif isinstance(message, Warned):
            where = (message.file, message.line)
            warnings.warn_explicit(message.message, message.category, *where, registry=self._warned)
        elif isinstance(message, Ended | Busy | Refused | Failed):
            work, worker.work = worker.work, None
            if work is not None:
                settle(message, work, plan, watcher, worker=worker.number)
        elif watcher is not None:
            message.tell(watcher, worker.number)

    def _replace(self, worker: _Worker, plan: Plan, watcher: ProgressCallback | None) -> None:
        """Let go of a worker that died: another is started where there is work. What it was at may be tried again."""
        self._team.remove(worker)
        why = worker.end()
        if not worker.came_up:
            self._stillborn += 1
        if self._stillborn > self.retries:
            raise DataError(
                f"worker processes end as soon as they are started; the last one {why}. In a script, keep what it does "
                'under `if __name__ == "__main__":`; or use one worker, which needs no processes'
            )
        if worker.work is not None:
            plan.lose(worker.work, why, retries=self.retries)
            if watcher is not None:
                watcher.on_run_lost(worker.work.recipe, why, worker=worker.number)


class _Worker:
    """A process from outside: what it works on, and what it says."""

    def __init__(self, number: int, workshop: Workshop) -> None:
        self.number, self.came_up = number, False
        self.work: Work | None = None
        context = _context()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, workshop), daemon=True)
        with _interrupts_held_back():
            self.process.start()
        theirs.close()

    def take(self, work: Work) -> bool:
        """Hand over some work; False where the process is gone."""
        try:
            self.connection.send(work)
        except OSError:
            return False
        self.work = work
        return True

    def messages(self) -> Iterator[Any]:
        """What it has said so far; all of it, where it has died meanwhile."""
        try:
            while self.connection.poll():
                yield self.connection.recv()
        except (EOFError, OSError):
            self.process.join()  # cut off in a word, or done with speaking: it is gone, or about to go

    def end(self) -> str:
        """Make sure that the process has ended; how it did, in words."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name if -code in {int(known) for known in signal.Signals} else f"signal {-code}"
        return f"was killed ({name})" + ", as by a system that is out of memory" * (name == "SIGKILL")


def _context() -> Any:
    """How processes start: as forks of a server that has done nothing but import what is needed, else anew."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__])
    return context


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """While a process starts, Ctrl-C waits: it would end a child that does not yet know to leave it to the parent."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
