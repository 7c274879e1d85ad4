"""Named arrays from ``.npz`` files of any origin: looked at before they are read, and never unpickled."""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, decoding
from gated_domains.data.memory import available_bytes

Header = tuple[tuple[int, ...], "np.dtype[Any]"]


def array_headers(path: str | Path) -> dict[str, Header]:
    """The shape and type of every array, by name, without reading any."""
    path = Path(path)
    with decoding(path), zipfile.ZipFile(path) as archive:
        return {name: _header(path, archive, name) for name in _members(path, archive)}


def read_arrays(path: str | Path, *, wanted: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file by name (those wanted, where they are there). Nothing is unpickled.

    What the file says of itself is looked at first: one that would not fit into memory is refused before it is read.
    """
    path = Path(path)
    wanted = None if wanted is None else set(wanted)
    with decoding(path), zipfile.ZipFile(path) as archive:
        members = _members(path, archive)
        chosen = [name for name in members if wanted is None or name in wanted]
        total = sum(_checked_size(path, archive, name) for name in chosen)
        if total > available_bytes():
            raise DataError(f"{path} needs {total / 2**20:,.0f} MiB of memory, more than there is; split it up")
        arrays = {}
        for name in chosen:
            with archive.open(f"{name}.npy") as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
            if not _is_text_if_it_says_so(arrays[name]):
                raise DataError(f"{path}: {name!r} says it holds text, but not all of it is; the file is damaged")
    return arrays


@contextmanager
def open_arrays(path: str | Path, names: Iterable[str]) -> Iterator[Callable[[int], dict[str, NDArray[Any]]]]:
    """Yield ``read(rows)``: the next rows of these arrays, by name, in step. They are never in memory as a whole.

    The checks are those of ``read_arrays``. An array in Fortran's order, whose rows do not follow each other, is
    refused: see ``in_row_order``.
    """
    path = Path(path)
    with decoding(path), zipfile.ZipFile(path) as archive, ExitStack() as held:
        members = {}
        for name in names:
            _checked_size(path, archive, name)
            file = held.enter_context(archive.open(f"{name}.npy"))
            members[name] = _Member(path, name, file, *_header_of(path, name, file))
        yield lambda rows: {name: member.next(rows) for name, member in members.items()}


def in_row_order(path: str | Path, name: str) -> bool:
    """Whether the rows of an array lie one after the other in the file."""
    path = Path(path)
    with decoding(path), zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        shape, fortran, _ = _header_of(path, name, file)
    return len(shape) < 2 or not fortran


class _Member:
    """An array of which the next rows are read when they are asked for."""

    def __init__(
        self,
        path: Path,
        name: str,
        file: Any,
        shape: tuple[int, ...],
        fortran: bool,
        dtype: np.dtype[Any],
    ) -> None:
        if fortran and len(shape) > 1:
            raise DataError(f"{path}: the rows of {name!r} do not lie one after the other (Fortran's order)")
        self.path, self.name, self.file, self.shape, self.dtype = path, name, file, shape, dtype

    def next(self, rows: int) -> NDArray[Any]:
        size = rows * self.dtype.itemsize * math.prod(self.shape[1:])
        content = self.file.read(size)
        if len(content) < size:
            raise DataError(f"{self.path}: {self.name!r} ends before its last row; the file is damaged")
        values = np.frombuffer(content, self.dtype).reshape(rows, *self.shape[1:])
        if not _is_text_if_it_says_so(values):
            raise DataError(f"{self.path}: {self.name!r} says it holds text, but not all of it is; the file is damaged")
        return values


def _members(path: Path, archive: zipfile.ZipFile) -> list[str]:
    members = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if not members:
        raise DataError(f"{path} holds no arrays; save them with numpy.savez(path, X=..., y=..., domain=...)")
    return members


def _header(path: Path, archive: zipfile.ZipFile, name: str) -> Header:
    with archive.open(f"{name}.npy") as file:
        shape, _, dtype = _header_of(path, name, file)
    return shape, dtype


def _header_of(path: Path, name: str, file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran's order, and type; the file is then where the values begin."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return read(file)
    except (SyntaxError, TokenError, TypeError, ValueError) as error:
        raise DataError(f"{path}: the header of {name!r} makes no sense; the file is damaged") from error


def _checked_size(path: Path, archive: zipfile.ZipFile, name: str) -> int:
    """Bytes that an array will take up; refused where the file cannot hold as many, or holds Python objects."""
    shape, dtype = _header(path, archive, name)
    if dtype.hasobject:
        raise DataError(f"{path}: {name!r} holds Python objects, which are never read; save plain numbers or text")
    # At least a byte a value: values of no bytes, of which there may be any number, are a trap.
    size = int(np.prod([int(side) for side in shape], dtype=object)) * max(1, dtype.itemsize)
    if size > archive.getinfo(f"{name}.npy").file_size:
        raise DataError(f"{path}: {name!r} says it has shape {shape} but holds fewer bytes; the file is damaged")
    return size


def _is_text_if_it_says_so(values: NDArray[Any]) -> bool:
    """Whether every letter is one that Unicode has: others end in a fault inside Python."""
    if values.dtype.kind != "U" or values.nbytes == 0:
        return True
    letters = np.frombuffer(values.tobytes(), np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
    return int(letters.max()) <= sys.maxunicode
