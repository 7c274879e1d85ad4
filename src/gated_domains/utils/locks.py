"""A lock on a folder, which the system releases however its holder ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from gated_domains.data.errors import DataError

# Some network file systems have no locks; work there goes on without one.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


class BusyError(DataError):
    """A folder that another process is working in, with the pid of that process where it is known."""

    def __init__(self, folder: str, pid: int | None = None) -> None:
        super().__init__(folder, pid)  # so that it can be pickled
        self.folder, self.pid = folder, pid

    def __str__(self) -> str:
        who = "" if self.pid is None else f" (pid {self.pid})"
        return f"another process{who} is at work in {self.folder}; wait for it, or choose another --out"


@contextmanager
def folder_lock(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a folder for this process, or raise a ``BusyError`` at once. Its file ``.lock`` holds the pid and stays."""
    path = Path(folder, ".lock")
    # ``preserve_lock_file`` also refuses filelock's fallback, a marker file that would outlive a killed process.
    lock = FileLock(path, blocking=False, thread_local=False, preserve_lock_file=True)
    try:
        lock.acquire()
    except Timeout as error:
        pid = ""
        with suppress(OSError):  # Windows refuses to read a locked file
            pid = path.read_text("ascii", "replace").strip()
        raise BusyError(str(folder), int(pid) if pid.isdigit() else None) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    with suppress(OSError):  # a full disk is no reason to stop
        path.write_text(f"{os.getpid()}\n", "ascii")
    try:
        yield
    finally:
        lock.release()
