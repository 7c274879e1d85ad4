"""Vectors that are mostly zeros: what is not zero is kept, and rows are filled up when they are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.inputs import Inputs, Rows, digest
from gated_domains.data.ragged import taken


class SparseRows(Inputs):
    """Row i has ``values`` in ``columns``, from ``offsets[i]`` to ``offsets[i + 1]``, and zeros elsewhere."""

    kind = "words"
    in_memory = True
    # Not of different lengths, but to be streamed as such are: all of them at once is what there is no room for.
    ragged = True

    def __init__(
        self, values: NDArray[np.float16], columns: NDArray[np.int32], offsets: NDArray[np.int64], *, width: int
    ) -> None:
        self.values, self.columns, self.offsets, self.width = values, columns, offsets, width

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.columns.nbytes + self.offsets.nbytes

    @property
    def dense_nbytes(self) -> int:
        """Bytes of all rows with their zeros."""
        return len(self) * self.width * self.values.itemsize

    def read(self, rows: Rows) -> NDArray[np.float16]:
        values, ends = taken(self.values, self.offsets, rows)
        columns, _ = taken(self.columns, self.offsets, rows)
        full = np.zeros((len(rows), self.width), self.values.dtype)
        full[np.repeat(np.arange(len(rows)), np.diff(ends)), columns] = values
        return full

    def digests(self) -> NDArray[np.uint64]:
        return np.fromiter((digest(self.read(np.array([row]))) for row in range(len(self))), np.uint64, len(self))

    def take(self, rows: Rows) -> SparseRows:
        values, ends = taken(self.values, self.offsets, rows)
        return SparseRows(values, taken(self.columns, self.offsets, rows)[0], ends, width=self.width)

    def describe(self) -> str:
        return f"texts as {self.width:,} words"
