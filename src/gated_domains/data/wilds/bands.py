"""Satellite images of several bands, as arrays of floats: a file each, or all in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, decoding, listing
from gated_domains.data.inputs import Inputs, Rows, digest
from gated_domains.data.wilds.sample_files import SampleFiles

KEY = "x"


class Bands(Inputs):
    """Bands in memory: float32 of shape (rows, bands, height, width). ``digests``: of their files, if any."""

    kind = "bands"
    in_memory = True

    def __init__(self, values: NDArray[np.float32], *, digests: NDArray[np.uint64] | None = None) -> None:
        if values.ndim != 4 or values.dtype != np.float32:
            raise DataError(
                f"bands must be float32 of shape (rows, bands, height, width), got {values.dtype} of {values.shape}"
            )
        self.values, self._digests = values, digests

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def read(self, rows: Rows) -> NDArray[Any]:
        return self.values[rows]

    def digests(self) -> NDArray[np.uint64]:
        if self._digests is not None:
            return self._digests
        return np.fromiter((digest(row) for row in self.values), np.uint64, len(self))

    def take(self, rows: Rows) -> Bands:
        return Bands(self.values[rows], digests=None if self._digests is None else self._digests[rows])

    def describe(self) -> str:
        return describe_bands(self.values.shape[1:])


class BandFiles(SampleFiles):
    """``.npz`` files with one array, ``x``, of shape (bands, side, side). A smaller ``size`` is made by averaging."""

    kind = "bands"

    def __init__(
        self, root: Path, paths: Sequence[str] | NDArray[Any], *, bands: int, side: int, size: int, name: str
    ) -> None:
        super().__init__(root, paths, name=name)
        if not 1 <= size <= side:
            raise DataError(f"the image size must be 1 to {side} pixels for {name}, got {size}")
        self.bands, self.side, self.size = bands, side, size

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.bands, self.size, self.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def decode(self, path: str) -> NDArray[Any]:
        values = read_bands(path)
        if values.shape != (self.bands, self.side, self.side):
            raise DataError(f"{path} has the shape {values.shape} instead of {(self.bands, self.side, self.side)}")
        return averaged(values, self.size)

    def at_hand(self) -> BandFiles | Bands:
        """All in memory where they are few, else as they are."""
        # One after the other: files so small are unpacked by Python itself, where threads get in each other's way.
        return Bands(self.read(np.arange(len(self))), digests=self.digests()) if self.is_small else self

    def take(self, rows: Rows) -> BandFiles:
        return BandFiles(self.root, self.paths[rows], bands=self.bands, side=self.side, size=self.size, name=self.name)

    def describe(self) -> str:
        return describe_bands(self.shape)


def read_bands(path: str) -> NDArray[np.float32]:
    """The array in a file; one with NaN or infinity is refused."""
    with decoding(path), np.load(path, allow_pickle=False) as arrays:
        if KEY not in arrays:
            raise DataError(f"{path} has no array {KEY!r}, only {listing(arrays)}; unpack the archive again")
        values = arrays[KEY]
    if values.ndim != 3 or values.dtype.kind not in "fiu":
        raise DataError(f"{path}: {values.dtype} of shape {values.shape} are no bands (bands, height, width)")
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise DataError(f"{path} holds NaN or infinity; unpack the archive again")
    return values


def averaged(values: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Squares of pixels -> their mean, weighted by how much of a pixel falls into the square."""
    side = values.shape[-1]
    if size == side:
        return values
    weights = _weights(side, size)
    return weights @ values @ weights.T


@lru_cache(maxsize=4)
def _weights(side: int, size: int) -> NDArray[np.float32]:
    """The share of each of ``side`` pixels in each of ``size`` larger ones, every row adding up to 1."""
    edges = np.arange(size + 1) * (side / size)
    pixels = np.arange(side)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return (overlap.clip(0) * (size / side)).astype(np.float32)


def describe_bands(shape: tuple[int, ...]) -> str:
    """``images of 8 bands, 224 x 224``."""
    bands, height, width = shape
    return f"images of {bands} bands, {width} x {height}"
