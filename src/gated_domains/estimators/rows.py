"""Rows of an array or a sparse matrix, some at a time, on a device: the whole of it is never copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

_AT_ONCE = 4096
# Fewer of wide ones: so many numbers together, and at least so many rows.
_NUMBERS, _FEWEST = 1 << 20, 128
# Rows, by chance, that bases and heuristics are taken from.
_LOOKED_AT = 4_000


class RowSource:
    """Rows of ``values`` as tensors, in the precision they have; ``only`` some of them, where that is asked for.

    On a GPU they lie there as a whole where they take up at most half of what is free; else they are sent when asked
    for.
    """

    def __init__(self, values: Any, *, device: torch.device) -> None:
        self.values, self.device = values, device
        self.only: NDArray[np.int64] | None = None
        self._resident: Tensor | None = None
        if device.type == "cuda" and not sparse.issparse(values):
            free, _ = torch.cuda.mem_get_info(device)
            self._resident = _tensor(values).to(device) if values.nbytes <= free // 2 else None

    def __len__(self) -> int:
        return int(self.values.shape[0]) if self.only is None else len(self.only)

    @property
    def width(self) -> int:
        """How many columns there are."""
        return int(self.values.shape[1])

    @property
    def at_once(self) -> int:
        """As many rows as take up little memory."""
        return max(_FEWEST, min(_AT_ONCE, _NUMBERS // self.width))

    def some(self, rows: NDArray[np.int64]) -> RowSource:
        """A source of some of the rows, without a copy of them."""
        found = copy(self)
        found.only = rows if self.only is None else self.only[rows]
        return found

    def take(self, rows: NDArray[np.int64] | slice) -> Tensor:
        """These rows, in the order asked for."""
        rows = rows if self.only is None else self.only[rows]
        if self._resident is not None:
            return self._resident[rows if isinstance(rows, slice) else torch.from_numpy(rows).to(self.device)]
        return _tensor(self.values[rows]).to(self.device)

    def parts(self, size: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        """All rows in order, with their places: ``size`` or ``at_once`` at a time."""
        size = self.at_once if size is None else size
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            yield part, self.take(part)

    @torch.no_grad()
    def look(self, scaling: Callable[[Tensor], Tensor], *, seed: int) -> Tensor:
        """Some rows in an order by chance, scaled."""
        drawn = np.random.default_rng(seed).permutation(len(self))[:_LOOKED_AT]
        return scaling(self.take(drawn))


def _tensor(values: Any) -> Tensor:
    # A copy: what is shared with the caller might be read-only, or change under us.
    return torch.from_numpy(values.toarray() if sparse.issparse(values) else np.array(values))
