"""Errors in words for the person who gave the input, and files: where they are, read and written as a whole."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gated_domains.common.validation import nearest

DATA_VARIABLE = "GATED_DOMAINS_DATA"
CACHE_VARIABLE = "GATED_DOMAINS_CACHE"


class DataError(ValueError):
    """Data that cannot be used as it is. The message names the value and the cure; nobody needs a traceback."""


def row_name(row: int) -> str:
    """What messages call the row with this index: ``row 1`` is the first, below the header of a table."""
    return f"row {row + 1:,}"


class RowError(DataError):
    """Rows that cannot be used: the index of the first, how many there are, and of how many rows that were looked at.

    ``say(where, count, of)`` formats the message; ``name`` turns the index into the text ``where``. For data that are
    read in parts, ``among`` formats it with the counts of all parts. ``column`` and ``stage`` say which column was
    checked, and by which of several checks.
    """

    def __init__(
        self,
        say: Callable[[str, int, int], str],
        *,
        row: int,
        count: int,
        of: int,
        column: str = "",
        stage: int = 0,
        name: Callable[[int], str] = row_name,
    ) -> None:
        super().__init__(say(name(row), count, of))
        self.say, self.row, self.count, self.of = say, row, count, of
        self.column, self.stage, self.name = column, stage, name

    def among(self, *, row: int, count: int, of: int) -> RowError:
        """The same fault, with other counts."""
        return self._but(row=row, count=count, of=of)

    def led_by(self, words: str) -> RowError:
        """The same fault, with words before it."""
        return self._but(say=lambda where, count, of: words + self.say(where, count, of))

    def named_by(self, name: Callable[[int], str]) -> RowError:
        """The same fault, with rows called by ``name``."""
        return self._but(name=name)

    def _but(self, **changes: Any) -> RowError:
        return RowError(
            **{
                "say": self.say,
                "row": self.row,
                "count": self.count,
                "of": self.of,
                "column": self.column,
                "stage": self.stage,
                "name": self.name,
                **changes,
            }
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return DataError, (str(self),)  # to another process go the words alone


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``"; did you mean 'hospital'?"`` where a known name is near, else the known names, to end a message with."""
    known = sorted(names)
    near = nearest(name, known)
    if near is not None:
        return f"; did you mean {near!r}?"
    return f"; there are {listing(known)}" if known else "; there are none"


def listing(things: Iterable[object], most: int = 12) -> str:
    """``a, b, c``, cut short with a count when there are many."""
    words = [str(thing) for thing in things]
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def explain(error: OSError) -> str:
    """What a failed file operation means, and what to do about it."""
    where = f"{error.filename}: " if error.filename else ""
    cures = {
        errno.EACCES: "permission denied; give yourself the right to it, or choose another place",
        errno.EPERM: "permission denied; give yourself the right to it, or choose another place",
        errno.EROFS: "the file system is read-only; choose another place",
        errno.ENOENT: "no such file or folder; check the spelling",
        errno.EEXIST: "a file is in the way; choose another place",
        errno.ENOTDIR: "a part of this path is a file, not a folder",
        errno.EISDIR: "this is a folder; a file is needed",
        errno.ENOSPC: "the disk is full; free some space, or choose another place. Nothing was left half-written",
        errno.EDQUOT: "your quota on this disk is used up; free some space. Nothing was left half-written",
        errno.EFBIG: "the file grew larger than allowed here; choose another place. Nothing was left half-written",
        errno.ENAMETOOLONG: "the name is too long",
        errno.ELOOP: "symbolic links go round in a circle",
        errno.EMFILE: "too many open files; raise the limit (ulimit -n)",
    }
    return where + cures.get(error.errno or 0, error.strerror or str(error))


@contextmanager
def decoding(path: str | os.PathLike[str]) -> Iterator[None]:
    """Around any reading of a foreign file: what its decoder raises becomes a DataError that names the file.

    Decoders of damaged bytes raise errors of every kind (zlib, struct, Unicode, zip, memory); to the person who gave
    the file they all mean the same. Errors of the disk itself pass through, and so do ours.
    """
    try:
        yield
    except DataError:
        raise
    except MemoryError as error:
        raise DataError(f"{path}: too large for the memory of this machine, or damaged") from error
    except Exception as error:
        # A place before the start of the file, where a damaged one sends its reader, is no fault of the disk.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            error.filename = error.filename or os.fspath(path)
            raise
        raise DataError(f"{path}: {first_line(error)}; it is cut short, damaged, or not what its name says") from error


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the file's name before the message of a DataError about what is in it."""
    try:
        yield
    except DataError as error:
        if isinstance(error, RowError) and str(path) not in str(error):
            raise error.led_by(f"{path}: ") from error
        said = str(error).removeprefix(f"{os.path.basename(path)}: ")
        raise error if str(path) in said else DataError(f"{path}: {said}") from error


def first_line(error: BaseException, most: int = 200) -> str:
    """The first line of an error, cut, without characters that would upset a terminal."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= most else line[:most] + " ..."


def cache_dir() -> Path:
    """The folder for what can be made again: ``$GATED_DOMAINS_CACHE``, else ``gated-domains`` in the user's cache."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return expanded(chosen)
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "gated-domains"


def data_folder(chosen: str | os.PathLike[str] | None = None) -> Path:
    """The folder for data sets: the one chosen, else ``$GATED_DOMAINS_DATA``, else ``data`` in the cache."""
    if chosen is not None:
        return expanded(chosen)
    if named := os.environ.get(DATA_VARIABLE):
        return expanded(named)
    return cache_dir() / "data"


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ``~`` and ``~somebody`` filled in."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise DataError(f"{path}: it is not known where that home folder is; write the path out") from error


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new path beside ``path`` to write to; moved there at the end, or removed when anything went wrong.

    A reader sees the old file or the new one, never half of one, and two writers do not get in each other's way.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays: writers such as numpy and matplotlib choose the format by it, or add one.
    draft = path.with_name(f".{path.stem}.{os.getpid()}-{secrets.token_hex(4)}{path.suffix}")
    try:
        yield draft
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        if error.filename in (None, str(draft)):
            error.filename = str(path)  # what people know it by
        raise
    finally:
        draft.unlink(missing_ok=True)
