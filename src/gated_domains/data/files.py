"""Where files lie, and how they are written: whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gated_domains.data.errors import DataError

DATA_VARIABLE = "GATED_DOMAINS_DATA"
CACHE_VARIABLE = "GATED_DOMAINS_CACHE"


def cache_dir() -> Path:
    """The folder for what can be made again: ``$GATED_DOMAINS_CACHE``, else ``gated-domains`` in the user's cache."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return expanded(chosen)
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "gated-domains"


def data_dir(chosen: str | os.PathLike[str] | None = None) -> Path:
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
