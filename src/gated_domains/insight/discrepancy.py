"""How far domains and bases are from each other in the space of the kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.layer.kernels import KernelLike

_ROWS_AT_ONCE = 1_024


@torch.no_grad()
def mmd_matrix(kernel: KernelLike, groups: Sequence[Tensor]) -> Float[Tensor, "groups groups"]:
    """``||mu_a - mu_b|| = sqrt(max(0, <mu_a, mu_a> - 2 <mu_a, mu_b> + <mu_b, mu_b>))`` of the means of groups of rows.

    ``<mu_a, mu_b>`` is the mean of ``k`` over all pairs of a row of a and a row of b.
    """
    # In double precision: near groups are told apart by what is left of numbers that are nearly the same.
    points = torch.cat([group.double() for group in groups])
    sizes = torch.tensor([len(group) for group in groups], device=points.device)
    of_group = torch.repeat_interleave(torch.arange(len(groups), device=points.device), sizes)
    weights = torch.nn.functional.one_hot(of_group, len(groups)).double() / sizes
    products = weights.new_zeros(len(groups), len(groups))
    for rows, weight in zip(points.split(_ROWS_AT_ONCE), weights.split(_ROWS_AT_ONCE), strict=True):
        products += weight.T @ (kernel(rows, points) @ weights)
    squared_norms = products.diagonal()
    squared = squared_norms[:, None] - (products + products.T) + squared_norms
    return squared.clamp_min(0).sqrt().fill_diagonal_(0)
