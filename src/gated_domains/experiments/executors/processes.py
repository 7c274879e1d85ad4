"""Worker processes on this machine, each with one thread; the data lie in memory once for all."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection, wait
from typing import Any

from gated_domains.data.errors import DataError, first_line
from gated_domains.experiments.executors.base import POLL_SECONDS, RETRIES, AsyncExecutor, RunQueue
from gated_domains.experiments.executors.worker import (
    Busy,
    Failed,
    Finished,
    Ready,
    Refused,
    Warned,
    WorkerSpec,
    attempt,
    settle,
    use_threads,
)
from gated_domains.experiments.planner import PlannedRun
from gated_domains.experiments.runner import Runner
from gated_domains.experiments.source_data import SharedData, SourceData
from gated_domains.training.callbacks.base import ProgressCallback


class ProcessExecutor(AsyncExecutor):
    """Hands runs out to ``workers`` processes. One that dies is replaced, and its run tried again ``retries`` times.

    A script that uses it must keep its own doings under ``if __name__ == "__main__":``, as everywhere in Python where
    processes are not forked.
    """

    def __init__(self, runner: Runner, *, workers: int, retries: int = RETRIES) -> None:
        if workers < 1:
            raise DataError(f"there must be at least one worker, got {workers}")
        self.runner, self.workers, self.retries = runner, workers, retries
        self.spec = WorkerSpec.of(runner)
        self._data: SharedData | None = None
        self._team: list[_Worker] = []
        self._failed_starts = 0
        self._warned: dict[Any, Any] = {}

    def close(self) -> None:
        for worker in self._team:
            worker.end()
        self._team.clear()
        if self._data is not None:
            self._data.close()
            self._data = None

    def _stop(self) -> None:
        self.close()

    def _under_way(self) -> Iterable[PlannedRun]:
        return [worker.run for worker in self._team if worker.run is not None]

    def _hand_out(self, queue: RunQueue) -> None:
        """Start workers while there are too few, and give what is ready to those that have nothing to do."""
        ready = queue.ready
        while len(self._team) < min(self.workers, len(queue.under_way) + len(ready)):
            number = min(set(range(self.workers)) - {worker.number for worker in self._team})
            self._data = self._data or SharedData(self.runner.data)
            self._team.append(_Worker(number, self.spec, self._data))
        idle = [worker for worker in self._team if worker.ready and worker.run is None]
        for worker, run in zip(idle, ready, strict=False):
            if worker.take(run):
                queue.begin(run)

    def _receive(self, queue: RunQueue, callback: ProgressCallback) -> None:
        """Wait until a worker says something, or dies, or it is time to look again at what others do."""
        ears: dict[Any, _Worker] = {}
        for worker in self._team:
            ears[worker.connection] = ears[worker.process.sentinel] = worker
        heard = wait(list(ears), timeout=POLL_SECONDS if queue.busy else None)
        for worker in dict.fromkeys(ears[ear] for ear in heard):
            for message in worker.messages():
                self._take(message, worker, queue, callback)
            if not worker.process.is_alive():
                self._replace(worker, queue, callback)

    def _take(self, message: Any, worker: _Worker, queue: RunQueue, callback: ProgressCallback) -> None:
        if isinstance(message, Ready):
            worker.ready, self._failed_starts = True, 0
        elif isinstance(message, Warned):
            where = (message.file, message.line)
            warnings.warn_explicit(message.message, message.category, *where, registry=self._warned)
        elif isinstance(message, Finished | Busy | Refused | Failed):
            run, worker.run = worker.run, None
            if run is not None:
                settle(message, run, queue, callback, worker=worker.number)
        else:
            message.tell(callback, worker.number)

    def _replace(self, worker: _Worker, queue: RunQueue, callback: ProgressCallback) -> None:
        """Let go of a worker that died: another is started where there is work. What it was at may be tried again."""
        self._team.remove(worker)
        why = worker.end()
        if not worker.ready:
            self._failed_starts += 1
        if self._failed_starts > self.retries:
            raise DataError(
                f"worker processes end as soon as they are started; the last one {why}. In a script, keep what it does "
                'under `if __name__ == "__main__":`; or use one worker, which needs no processes'
            )
        if worker.run is not None:
            queue.lose(worker.run, why, retries=self.retries)
            callback.on_run_lost(worker.run.recipe, why, worker=worker.number)


class _Worker:
    """A process from outside: what it works on, and what it says."""

    def __init__(self, number: int, spec: WorkerSpec, data: SharedData) -> None:
        self.number, self.ready = number, False
        self.run: PlannedRun | None = None
        context = _context()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, spec, data), daemon=True)
        with _interrupts_held_back():
            self.process.start()
        theirs.close()

    def take(self, run: PlannedRun) -> bool:
        """Hand over some work; False where the process is gone."""
        try:
            self.connection.send(run)
        except OSError:
            return False
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # its method was defined in a function
            raise _cannot_import(error) from error
        self.run = run
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


def serve(connection: Connection, spec: WorkerSpec, data: SourceData) -> None:
    """Make the runs that are sent, until nobody sends any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    send = _sending(connection)
    # Bars and lines of several processes would run into each other.
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    warnings.showwarning = _passing_on(send)
    use_threads(1)
    make_runner = cache(lambda: spec.build_runner(data))
    send(Ready())
    while True:
        try:
            run = connection.recv()
        except (EOFError, OSError):
            return
        except (ImportError, AttributeError) as error:  # its method was defined in a notebook
            send(Refused(_cannot_import(error)))
            continue
        except Exception:
            send(Failed(traceback.format_exc()))
            continue
        send(attempt(make_runner, run, send))


def _cannot_import(error: Exception) -> DataError:
    return DataError(
        f"worker processes cannot import the method ({first_line(error)}); define it in a module and import it, or use "
        "one worker"
    )


def _sending(connection: Connection) -> Callable[[object], None]:
    def send(message: object) -> None:
        try:
            connection.send(message)
        except OSError:  # nobody listens
            os._exit(1)

    return send


def _passing_on(send: Callable[[object], None]) -> Callable[..., None]:
    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        send(Warned(str(message), category, filename, lineno))

    return show


def _end_with_parent() -> None:
    """However the parent ends, nothing goes on without it: whoever takes up its work would find the runs held."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
