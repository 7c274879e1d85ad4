"""How far groups of rows are from each other in the kernel's space, whatever their sizes.

    squared = <mu_a, mu_a>' - 2 <mu_a, mu_b> + <mu_b, mu_b>'

where ' leaves out a row with itself. With them, few rows would always look far: by about 1 / rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.insight.shift.rows import as_float, checked_rows, kernel_blocks
from gated_domains.layer.kernels import KernelLike, as_kernel


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
