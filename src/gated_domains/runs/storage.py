"""How runs are stored: JSON files written whole, hashes that name runs, and locks of folders."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from filelock import FileLock, Timeout

from gated_domains.data.errors import DataError, first_line, written_whole

# Some network file systems have no locks; work there goes on without one.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


def write_json(path: str | os.PathLike[str], obj: Any) -> None:
    """Write plain values whole or not at all; NaN and infinity, which JSON does not know, become null."""
    text = json.dumps(jsonable(obj), indent=2, allow_nan=False)
    with written_whole(path) as draft:
        draft.write_text(text + "\n", "utf-8")


def read_json(path: str | os.PathLike[str], *, cure: str) -> Any:
    """What a JSON file holds; a damaged one is a DataError that ends with the cure."""
    return parsed_json(Path(path).read_bytes(), where=str(path), cure=cure)


def parsed_json(text: bytes, *, where: str, cure: str) -> Any:
    """What some JSON says, the errors naming where it stands."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: {first_line(error)}; it is cut short or damaged: {cure}") from error


def jsonable(obj: Any) -> Any:
    """The same in what JSON knows: numpy's numbers as numbers, tuples as lists, NaN and infinity as None."""
    if isinstance(obj, Mapping):
        return {str(key): jsonable(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [jsonable(value) for value in obj]
    if isinstance(obj, np.ndarray):
        return jsonable(obj.tolist())
    if isinstance(obj, np.generic):
        return jsonable(obj.item())
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    return os.fspath(obj) if isinstance(obj, os.PathLike) else obj


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


LENGTH = 12


def canonical(obj: Any) -> str:
    """The one way to write plain values as JSON: keys sorted, floats by ``repr``, no NaN; a tuple is a list."""
    _refuse_odd_keys(obj)
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_hash(fields: Mapping[str, Any]) -> str:
    """12 hexadecimal characters that stand for these fields."""
    return hashlib.sha256(canonical(dict(fields)).encode()).hexdigest()[:LENGTH]


def _refuse_odd_keys(obj: Any) -> None:
    """JSON writes the keys 1 and "1" alike, and two runs would share a name."""
    if isinstance(obj, dict):
        for key, value in obj.items():
            if not isinstance(key, str):
                raise TypeError(f"a key must be text, got {key!r}")
            _refuse_odd_keys(value)
    elif isinstance(obj, (list, tuple)):
        for value in obj:
            _refuse_odd_keys(value)


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
