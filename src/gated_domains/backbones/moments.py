"""Style as moments: the mean and scale of features, taken from samples or from domains, and exchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gated_domains.layer.kernels import at_least_float32, autocast_off

_LEAST = 1e-6  # added to every variance


class Moments(NamedTuple):
    """Means and scales of one shape, a row for each sample or domain."""

    mean: Tensor
    scale: Tensor

    def of(self, rows: Int64[Tensor, " batch"]) -> Moments:
        """Those of some rows."""
        return Moments(self.mean.index_select(0, rows), self.scale.index_select(0, rows))

    def to(self, dtype: torch.dtype) -> Moments:
        """In other numbers."""
        return Moments(self.mean.to(dtype), self.scale.to(dtype))


def restyled(
    x: Float[Tensor, "batch *sample"], own: Moments, other: Moments, share: Float[Tensor, " batch"]
) -> Float[Tensor, "batch *sample"]:
    """``(x - m) / s * s' + m'`` with ``m' = share m + (1 - share) m_other``, and ``s'`` likewise.

    A share of 1 gives x itself, to the last bit. No gradient flows through anything but x.
    """
    rest = 1 - share.to(own.mean).reshape(-1, *(1 for _ in x.shape[1:]))
    widened = rest * (other.scale / own.scale - 1)
    return (x + (x - own.mean) * widened + rest * (other.mean - own.mean)).to(x.dtype)


def map_moments(maps: Float[Tensor, "batch channels height width"]) -> Moments:
    """Mean and scale over the positions of each channel of each sample, without gradient."""
    with torch.no_grad(), autocast_off(maps):
        values = at_least_float32(maps)
        mean = values.mean((2, 3), keepdim=True)
        # Not Tensor.var, which takes many times as long on CPUs.
        variance = (values - mean).square().mean((2, 3), keepdim=True)
    return Moments(mean, (variance + _LEAST).sqrt())


@torch.no_grad()
def domain_moments(
    rows: Iterable[tuple[Float[Tensor, "_ features"], Int64[Tensor, " _"]]], domains: int
) -> tuple[Moments, Float[Tensor, " domains"]]:
    """Mean and scale of the rows of each domain, and how many they are; rows come in batches with their domains."""
    counts, sums, squares = (torch.zeros((), dtype=torch.float64) for _ in range(3))
    for batch, which in rows:
        values = batch.double()  # so that squares far from 0 keep what differs
        # A product, not index_add_, whose order on a GPU differs from time to time.
        member = (which == torch.arange(domains, device=which.device).unsqueeze(1)).to(values)
        counts = counts.to(values) + member.sum(1)
        sums = sums.to(values) + member @ values
        squares = squares.to(values) + member @ values.square()
    per = counts.clamp_min(1).unsqueeze(1)
    mean = sums / per
    return Moments(mean, ((squares / per - mean.square()).clamp_min(0) + _LEAST).sqrt()), counts
