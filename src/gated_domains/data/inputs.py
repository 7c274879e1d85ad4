"""What a model is fed, before it is encoded: images, vectors of features, or the columns of a table."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, RowError

Rows = NDArray[np.int64]
_CHUNK = 1 << 24  # bytes looked at together where a check would otherwise double the memory


class Inputs(ABC):
    """Samples in order, read a few rows at a time."""

    kind: str
    # Whether reading costs so little that no processes are needed for it.
    in_memory: ClassVar[bool] = False
    # Whether samples differ in length, so that batches do: they are padded when they are read.
    ragged: ClassVar[bool] = False
    # Two samples with the same numbers: copies of one thing, or two people of the same age, sex and blood pressure?
    repeats_are_copies: ClassVar[bool] = True

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all samples once they are in memory."""

    @abstractmethod
    def read(self, rows: Rows) -> NDArray[Any]:
        """These samples as one array, in the order asked for."""

    @abstractmethod
    def digests(self) -> NDArray[np.uint64]:
        """A number a sample, equal for equal samples (and, but for a chance of one in 2^64, only for those)."""

    @abstractmethod
    def take(self, rows: Rows) -> Inputs:
        """Some of the samples, in the order asked for."""

    def decided_on(self, rows: Rows) -> Inputs:
        """The same samples, with all that was found out about them from data found out from these rows alone."""
        return self

    def describe(self) -> str:
        """A few words for people: ``images, 32 x 32, RGB``."""
        return self.kind


class _Array(Inputs):
    in_memory = True

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def read(self, rows: Rows) -> NDArray[Any]:
        return self.values[rows]

    def digests(self) -> NDArray[np.uint64]:
        return np.fromiter((digest(row) for row in self.values), np.uint64, len(self.values))


class Images(_Array):
    """Images in memory: bytes of shape (rows, height, width, channels). ``digests``: of their files, if any."""

    kind = "images"

    def __init__(self, values: NDArray[Any], *, digests: NDArray[np.uint64] | None = None) -> None:
        self._digests = digests
        if values.ndim == 3:
            values = values[..., None]
        if values.ndim != 4 or 0 in values.shape[1:]:
            raise DataError(
                f"images must have shape (rows, height, width) or (rows, height, width, channels), got {values.shape}"
            )
        if values.shape[1] in (1, 3, 4) and values.shape[3] not in (1, 3, 4):
            raise DataError(
                f"images of shape {values.shape} have their channels first; turn them: X.transpose(0, 2, 3, 1)"
            )
        if values.dtype != np.uint8:
            raise DataError(f"images must be bytes (uint8, 0 to 255), got {values.dtype}; scale and convert them first")
        super().__init__(values)

    def digests(self) -> NDArray[np.uint64]:
        return super().digests() if self._digests is None else self._digests

    def take(self, rows: Rows) -> Images:
        return Images(self.values[rows], digests=None if self._digests is None else self._digests[rows])

    def describe(self) -> str:
        return describe_images(*self.values.shape[1:])


class Features(_Array):
    """Vectors of finite numbers: embeddings of a model, measurements. Floats keep their width; a model gets float32."""

    kind = "features"

    def __init__(self, values: NDArray[Any]) -> None:
        if values.ndim != 2 or values.shape[1] == 0:
            raise DataError(f"features must have shape (rows, features), got {values.shape}; reshape them")
        if values.dtype.kind not in "fiub":
            raise DataError(f"features must be numbers, got {values.dtype}; convert them first")
        values = values if values.dtype in (np.float16, np.float32, np.float64) else values.astype(np.float32)
        refuse_non_finite(values)
        super().__init__(values)

    def take(self, rows: Rows) -> Features:
        return type(self)(self.values[rows])

    def describe(self) -> str:
        return f"features, {self.values.shape[1]:,} numbers each"


class Measurements(_Array):
    """Vectors of numbers, of which some may be missing: NaN stands for those. For models that say what comes of it."""

    kind = "columns"
    repeats_are_copies = False

    def __init__(self, values: NDArray[np.float64]) -> None:
        if values.ndim != 2 or values.shape[1] == 0:
            raise DataError(f"measurements must have shape (rows, columns), got {values.shape}; reshape them")
        super().__init__(values)

    def take(self, rows: Rows) -> Measurements:
        return Measurements(self.values[rows])

    def describe(self) -> str:
        return f"{self.values.shape[1]:,} columns of numbers"


def describe_images(height: int, width: int, channels: int) -> str:
    """``images, 32 x 32, RGB``."""
    colours = {1: "grey", 3: "RGB", 4: "RGBA"}.get(channels, f"{channels} channels")
    return f"images, {width} x {height}, {colours}"


def digest(row: NDArray[Any]) -> int:
    """Sixty-four bits of a hash of the bytes of one sample."""
    return digest_of_bytes(np.ascontiguousarray(row).tobytes())


def digest_of_bytes(content: bytes) -> int:
    """Sixty-four bits of a hash."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def refuse_non_finite(values: NDArray[Any], names: list[str] | None = None) -> None:
    """Refuse NaN, infinity, and numbers that float32 cannot hold, naming the first one's row and column."""
    if values.dtype.kind != "f":
        return
    first: tuple[int, int] | None = None
    count = 0
    for start, broken in _broken(values):
        if first is None and broken.any():
            row, column = (int(place) for place in np.argwhere(broken)[0])
            first = start + row, column
        count += int(broken.sum())
    if first is None:
        return
    found = float(values[first])
    what = "a number that float32 cannot hold" if np.isfinite(found) else "not a finite number"
    where = repr(names[first[1]]) if names else first[1]

    def say(row: str, count: int, of: int) -> str:
        return f"{row}, column {where} holds {found}: {what}; clean it or drop the row (such values: {count:,})"

    raise RowError(say, row=first[0], count=count, of=len(values))


def _broken(values: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Where no finite number stands that float32 can hold, a few rows at a time."""
    largest = np.finfo(np.float32).max
    step = max(1, _CHUNK // max(1, values[:1].nbytes))
    for start in range(0, len(values), step):
        yield start, ~(np.abs(values[start : start + step]) <= largest)  # not <=: true for NaN too
