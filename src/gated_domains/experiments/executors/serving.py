"""A worker process from inside: it makes the runs that are sent to it, and never outlives whoever sends them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

from gated_domains.experiments.executors.telling import Failed, attempt
from gated_domains.experiments.executors.workshop import Workshop, use_threads


@dataclass(frozen=True)
class Ready:
    """The process has come up, and takes work."""


@dataclass(frozen=True)
class Warned:
    """A warning, to be shown by the process that people look at."""

    message: str
    category: type[Warning]
    file: str
    line: int


def serve(connection: Connection, workshop: Workshop) -> None:
    """Make the runs that are sent, until nobody is there to send any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    send = _sending(connection)
    # Bars and lines of several processes would run into each other.
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    warnings.showwarning = _passing_on(send)
    use_threads(1)
    make = cache(workshop.opened)  # data are loaded once, when there is work
    send(Ready())
    while True:
        try:
            work = connection.recv()
        except (EOFError, OSError):
            return
        except Exception:  # its classes are not known here
            send(Failed(traceback.format_exc()))
            continue
        send(attempt(make, work, send))


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
