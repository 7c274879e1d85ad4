"""Samples of different lengths, one after the other in one array; padded to the longest when a few are read."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Inputs, Rows, digest


class Ragged(Inputs):
    """Sample i is ``values[offsets[i]:offsets[i + 1]]``; a shorter one is filled up with ``pad`` on the right."""

    in_memory = True
    ragged = True
    pad: ClassVar[int]
    # Widths are rounded up to a multiple of this, so that batches do not come in as many widths as there are lengths.
    step: ClassVar[int] = 1

    def __init__(self, values: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        if values.ndim != 1 or values.dtype.kind != "i":
            raise DataError(f"{self.kind} must be whole numbers in one row, got {values.dtype} of shape {values.shape}")
        if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(values):
            raise DataError(f"offsets must go from 0 to {len(values):,}, the number of values, got {_ends(offsets)}")
        if (np.diff(offsets) < 0).any():
            row = int(np.argmax(np.diff(offsets) < 0))
            raise DataError(f"offsets must never fall, but sample {row} ends before it begins")
        self.values, self.offsets = values, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.offsets.nbytes

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How long each sample is."""
        return np.diff(self.offsets)

    def read(self, rows: Rows) -> NDArray[Any]:
        starts, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        longest = int(lengths.max(initial=1))
        places = np.arange(self.width(longest))
        filled = places < lengths[:, None]
        out = np.full(filled.shape, self.pad, self.values.dtype)
        out[filled] = self.values[(starts[:, None] + places)[filled]]
        return out

    def width(self, longest: int) -> int:
        """How wide a batch is whose longest sample has this length."""
        return -(-longest // self.step) * self.step

    def digests(self) -> NDArray[np.uint64]:
        cut = zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)
        return np.fromiter((digest(self.values[start:stop]) for start, stop in cut), np.uint64, len(self))

    def parts(self, rows: Rows) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The values and offsets of some of the samples."""
        return taken(self.values, self.offsets, rows)


def taken(values: NDArray[Any], offsets: NDArray[np.int64], rows: Rows) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Of samples one after the other, some: their values and their offsets."""
    lengths = offsets[rows + 1] - offsets[rows]
    new = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(new[-1]) + np.repeat(offsets[rows] - new[:-1], lengths)
    return values[places], new


def _ends(offsets: NDArray[np.int64]) -> str:
    return f"{offsets[0]} to {offsets[-1]}" if offsets.ndim == 1 and len(offsets) else f"shape {offsets.shape}"
