"""What each basis stands for: the training rows nearest to it, and whose weight it gets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.inputs import Inputs, Rows

NEAREST = 8
_TOGETHER = 64  # rows whose samples are compared at a time


def nearest(distances: NDArray[Any], rows: Rows, inputs: Inputs, *, count: int = NEAREST) -> NDArray[np.int64]:
    """(bases, count): of these rows the nearest to each basis, nearest first, no sample twice.

    ``distances`` are of every row to every basis. Where there are fewer different samples, as many as there are.
    """
    found = [_first_different(rows[np.argsort(own, kind="stable")], inputs, count) for own in distances.T]
    fewest = min(map(len, found))
    return np.array([own[:fewest] for own in found], np.int64)


def _first_different(rows: Rows, inputs: Inputs, count: int) -> list[int]:
    """The first rows whose samples differ from all before them."""
    seen: dict[int, int] = {}
    for start in range(0, len(rows), _TOGETHER):
        some = rows[start : start + _TOGETHER]
        for row, digest in zip(some.tolist(), inputs.take(some).digests().tolist(), strict=True):
            seen.setdefault(digest, row)
        if len(seen) >= count:
            break
    return list(seen.values())[:count]


def weights(beta: NDArray[Any]) -> NDArray[np.float64]:
    """``max(beta, 0)``: what a basis gets from a row. A projection may give less than nothing, which is no share."""
    return np.maximum(np.asarray(beta, np.float64), 0)


def mass(beta: NDArray[Any]) -> NDArray[np.float32]:
    """(bases,): the mean weight over rows."""
    return weights(beta).mean(axis=0).astype(np.float32)


def share(beta: NDArray[Any], groups: NDArray[np.int64], count: int) -> NDArray[np.float32]:
    """(bases, count): of the weight that a basis gets from rows of a group, the part of each group.

    ``groups`` are numbers below ``count``, or negative for rows of none. A basis without weight has shares of 0.
    """
    known = groups >= 0
    total = np.zeros((count, beta.shape[1]))
    np.add.at(total, groups[known], weights(beta)[known])
    sums = total.sum(axis=0)
    return np.divide(total, sums, out=np.zeros_like(total), where=sums > 0).T.astype(np.float32)
