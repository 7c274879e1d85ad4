"""How far groups of rows are from each other in the kernel's space, whatever their sizes.

    squared = <mu_a, mu_a>' - 2 <mu_a, mu_b> + <mu_b, mu_b>'

where ' leaves out a row with itself. With them, few rows would always look far: by about 1 / rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.insight.sampling import whole_groups
from gated_domains.insight.shift.rows import as_float, checked_rows, kernel_blocks
from gated_domains.layer.kernels import KernelLike, as_kernel

_MOST_ROWS = 1_000  # of a side, for a jackknife


class Distances(NamedTuple):
    """Sums of kernel values: over all pairs of two groups, and of each row with itself. ``sizes`` are rows."""

    pairs: Float[Tensor, "groups groups"]
    own: Float[Tensor, " groups"]
    sizes: Float[Tensor, " groups"]

    @classmethod
    @torch.no_grad()
    def of(cls, kernel: KernelLike, groups: Sequence[Tensor]) -> Distances:
        """Of groups that have no row in common."""
        for number, group in enumerate(groups):
            checked_rows(group, f"group {number}", like=groups[0])
        rows = torch.cat(list(groups))
        sizes = torch.tensor([len(group) for group in groups], device=rows.device)
        member = torch.repeat_interleave(torch.arange(len(groups), device=rows.device), sizes)
        members = torch.nn.functional.one_hot(member, len(groups)).double()
        pairs, start = members.new_zeros(len(groups), len(groups)), 0
        for block in kernel_blocks(kernel, rows, rows):
            pairs += members[start : start + len(block)].T @ (block.double() @ members)
            start += len(block)
        own = members.T @ as_kernel(kernel).diagonal(as_float(rows)).double()
        return cls(pairs.cpu(), own.cpu(), sizes.double().cpu())

    def between(self, some: Sequence[int], others: Sequence[int]) -> float:
        """The distance of groups taken together from others taken together; NaN where either is one row alone."""
        squared = self._norm(some) + self._norm(others) - 2 * self._product(some, others)
        return math.nan if math.isnan(squared) else math.sqrt(max(0.0, squared))

    def _product(self, some: Sequence[int], others: Sequence[int]) -> float:
        total = float(self.pairs[list(some)][:, list(others)].sum())
        return total / float(self.sizes[list(some)].sum() * self.sizes[list(others)].sum())

    def _norm(self, some: Sequence[int]) -> float:
        """``||mu||^2`` over pairs of different rows."""
        own, count = float(self.own[list(some)].sum()), float(self.sizes[list(some)].sum())
        if count < 2:
            return math.nan
        return (float(self.pairs[list(some)][:, list(some)].sum()) - own) / (count * (count - 1))


@torch.no_grad()
def upper_distance(
    kernel: KernelLike,
    rows: Tensor,
    others: Tensor,
    *,
    groups: tuple[NDArray[Any], NDArray[Any]] | None = None,
    seed: int = 0,
) -> float:
    """The upper limit of the distance of two groups of rows: the root of its square and two standard errors.

    The error is that of a jackknife that leaves out one row, or one group of rows with the same label, of either side
    in turn. NaN where a side has fewer than three.
    """
    rng = np.random.default_rng(seed)
    sides, members = [], []
    for side, labels in zip((rows, others), groups or (None, None), strict=True):
        own = np.arange(len(side)) if labels is None else labels
        kept = whole_groups(own, _MOST_ROWS, rng)
        sides.append(side[torch.from_numpy(kept).to(side.device)])
        members.append(torch.from_numpy(np.unique(own[kept], return_inverse=True)[1]))
    counts = [int(member.max()) + 1 for member in members]
    if min(counts) < 3:
        return math.nan
    pooled = torch.cat(sides)
    member = torch.cat([members[0], counts[0] + members[1]])
    one_hot = torch.nn.functional.one_hot(member).double()
    sizes = one_hot.sum(0)
    blocks = [block.double().cpu() @ one_hot for block in kernel_blocks(kernel, pooled, pooled)]
    sums = one_hot.T @ torch.cat(blocks)  # over all pairs of two groups
    first = torch.arange(len(sizes)) < counts[0]
    keep = torch.cat([torch.ones(1, len(sizes)), 1 - torch.eye(len(sizes))]).double()  # all, and all but one

    def norm(side: Tensor) -> Tensor:
        chosen = keep * side
        pairs = ((chosen @ sums) * chosen).sum(1) - chosen @ sums.diagonal()
        return pairs / ((chosen @ sizes) ** 2 - chosen @ sizes**2)

    one, other = keep * first, keep * ~first
    cross = ((one @ sums) * other).sum(1) / ((one @ sizes) * (other @ sizes))
    squared = norm(first) + norm(~first) - 2 * cross
    left = squared[1:].split(counts)
    variance = sum(
        (count - 1) / count * float(((own - own.mean()) ** 2).sum()) for own, count in zip(left, counts, strict=True)
    )
    return math.sqrt(max(0.0, float(squared[0])) + 2 * math.sqrt(variance))
