"""Scaling: ``(x - mean) / scale`` of every column, with statistics of training rows."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.estimators.rows import RowSource


class Scaling(nn.Module):
    """Columns with mean 0 and deviation 1; at first as they are.

    The statistics are kept in float64, so that an offset costs no precision where the numbers have it.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(width, dtype=torch.float64))

    def forward(self, x: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        return (x - self.mean.to(x.dtype)) / self.scale.to(x.dtype)

    def undo(self, standard: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        """The numbers that these are the standardised ones of."""
        return standard * self.scale.to(standard.dtype) + self.mean.to(standard.dtype)

    @torch.no_grad()
    def fit(self, source: RowSource, weights: Tensor) -> Scaling:
        """Take weighted mean and deviation of every column, in two passes; a constant column is only centred."""
        share = (weights / weights.sum()).double()
        mean = torch.zeros_like(self.mean)
        low, high = torch.full_like(mean, torch.inf), torch.full_like(mean, -torch.inf)
        for part, x in source.parts():
            mean += share[part] @ x.double()
            low, high = torch.minimum(low, x.min(0).values.double()), torch.maximum(high, x.max(0).values.double())
        mean = mean.where(low < high, low)  # no rounding where there is nothing to be averaged
        variance = torch.zeros_like(mean)
        for part, x in source.parts():
            variance += share[part] @ (x.double() - mean).square()
        deviation = variance.sqrt()
        # Not 0: what rounding leaves of no spread at all must not be blown up to 1.
        varies = deviation > 8 * torch.finfo(torch.float64).eps * mean.abs()
        self.mean.copy_(mean)
        self.scale.copy_(deviation.where(varies, 1.0))
        return self
