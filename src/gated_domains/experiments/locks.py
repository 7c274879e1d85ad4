"""One worker in a folder at a time: a lock that the system lets go of however its holder ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gated_domains.data.errors import DataError

LOCK = ".lock"
_HELD = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK}
# Some network file systems know no locks; what they cannot promise is not worth stopping for.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
_held: set[int] = set()


class BusyError(DataError):
    """A folder that another process is at work in, and the number of that process where it has signed."""

    def __init__(self, folder: str, pid: int | None = None) -> None:
        super().__init__(folder, pid)  # so that it can be sent to another process
        self.folder, self.pid = folder, pid

    def __str__(self) -> str:
        who = "" if self.pid is None else f" (pid {self.pid})"
        return f"another process{who} is at work in {self.folder}; wait for it, or choose another --out"


@contextmanager
def only_worker(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a folder for this process; held by another one, it is a BusyError at once. The file ``.lock`` stays."""
    folder = Path(folder)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(handle)
    try:
        try:
            _take(handle)
        except OSError as error:
            if error.errno in _HELD:
                raise BusyError(str(folder), _signed(handle)) from error
            if error.errno not in _NO_LOCKS:
                raise
        _sign(handle)
        yield
    finally:
        if handle in _held:  # not in a forked child, which has let go of it
            _held.remove(handle)
            os.close(handle)


def _signed(handle: int) -> int | None:
    pid = os.read(handle, 20).decode("ascii", "replace").strip()
    return int(pid) if pid.isdigit() else None


def _sign(handle: int) -> None:
    """Write down whose lock it is; a full disk is no reason to go without one."""
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())


if sys.platform == "win32":
    import msvcrt

    def _take(handle: int) -> None:
        # A byte far behind the text, which others want to read.
        os.lseek(handle, 1 << 20, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)

else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _forget() -> None:
    """In a forked child: let go of the parent's locks, or they would outlive it."""
    for handle in _held:
        os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
