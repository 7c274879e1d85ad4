"""The tiles of ``fused`` in plain torch: what the Triton ones compute, said in a few lines, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gated_domains.layer.precision import autocast_off

Radial = Callable[[Tensor, Tensor, Tensor], Tensor]


def _laplacian_slope(squared: Tensor, sigma: Tensor, alpha: Tensor) -> Tensor:
    distance = torch.where(squared > 0, squared, 1.0).sqrt()
    return torch.where(squared > 0, -0.5 * torch.exp(-distance / sigma) / (sigma * distance), 0.0)


def _rational_base(squared: Tensor, sigma: Tensor, alpha: Tensor) -> Tensor:
    return 1 + squared / (2 * alpha * sigma.square())


def _matern52(squared: Tensor, sigma: Tensor, alpha: Tensor) -> Tensor:
    s = (5 * squared).sqrt() / sigma
    return (1 + s + s.square() / 3) * torch.exp(-s)


def _matern52_slope(squared: Tensor, sigma: Tensor, alpha: Tensor) -> Tensor:
    s = (5 * squared).sqrt() / sigma
    return -5 / 6 / sigma.square() * (1 + s) * torch.exp(-s)


# k and dk / d(squared distance) as functions of (squared distance, sigma, alpha), numbered as in ``fused.KINDS``.
VALUES: tuple[Radial, ...] = (
    lambda squared, sigma, alpha: torch.exp(-0.5 * squared / sigma.square()),
    lambda squared, sigma, alpha: torch.exp(-squared.sqrt() / sigma),
    lambda squared, sigma, alpha: _rational_base(squared, sigma, alpha) ** -alpha,
    lambda squared, sigma, alpha: (1 + (3 * squared).sqrt() / sigma) * torch.exp(-(3 * squared).sqrt() / sigma),
    _matern52,
    lambda squared, sigma, alpha: torch.rsqrt(1 + squared / sigma.square()),
)
SLOPES: tuple[Radial, ...] = (
    lambda squared, sigma, alpha: -0.5 / sigma.square() * torch.exp(-0.5 * squared / sigma.square()),
    _laplacian_slope,
    lambda squared, sigma, alpha: -0.5 / sigma.square() * _rational_base(squared, sigma, alpha) ** (-alpha - 1),
    lambda squared, sigma, alpha: -1.5 / sigma.square() * torch.exp(-(3 * squared).sqrt() / sigma),
    _matern52_slope,
    lambda squared, sigma, alpha: -0.5 / sigma.square() * torch.rsqrt(1 + squared / sigma.square()) ** 3,
)


class Weights(NamedTuple):
    """Gradients with respect to the squared distances of some columns."""

    values: Tensor

    @property
    def row_sums(self) -> Tensor:
        return self.values.sum(1)

    @property
    def column_sums(self) -> Tensor:
        return self.values.sum(0)


class TorchTiles:
    """The steps of ``fused.mean_values`` and ``fused.gradients``, each a line or two of torch."""

    block = 128
    bytes_a_weight = 8

    def split(self, x: Tensor, centre: Tensor) -> Tensor:
        """Centred rows."""
        return x.to(centre.dtype) - centre

    def means(
        self, x: Tensor, z: Tensor, sigma: Tensor, alpha: Tensor, *, kind: int, size: int, rounding: float
    ) -> Tensor:
        """``mean_n k(x_i, v_jn)``."""
        squared = _squared(x, z, rounding)
        values = VALUES[kind](squared, sigma.to(squared.dtype), alpha.to(squared.dtype))
        return values.reshape(x.shape[0], -1, size).mean(-1)

    def weights(
        self, x: Tensor, z: Tensor, sigma: Tensor, alpha: Tensor, gradient: Tensor, *,
        kind: int, size: int, rounding: float, start: int, stop: int,
    ) -> Weights:  # fmt: skip
        """``G k'(d^2) / N`` for the columns from ``start`` to ``stop``."""
        squared = _squared(x, z[start:stop], rounding)
        slope = SLOPES[kind](squared, sigma.to(squared.dtype), alpha.to(squared.dtype))
        basis = torch.arange(start, stop, device=z.device) // size
        return Weights(gradient[:, basis] * slope / size)

    def to_rows(self, out: Tensor, weights: Weights, z: Tensor, *, start: int, add: bool) -> None:
        """``out = W z`` over the columns from ``start`` on, or out + that."""
        product = weights.values @ z[start : start + weights.values.shape[1]]
        out.copy_(out + product if add else product)

    def to_columns(self, out: Tensor, weights: Weights, x: Tensor) -> None:
        """``out = W' x``."""
        out.copy_(weights.values.mT @ x)

    def finish(self, out: Tensor, own: Tensor, centre: Tensor, sums: Tensor) -> None:
        """``out = 2 (sums own - out)``, in place."""
        out.copy_(2 * (sums.unsqueeze(-1) * (own.to(centre.dtype) - centre) - out))


def _squared(x: Tensor, z: Tensor, rounding: float) -> Tensor:
    with autocast_off(x):
        norms = x.square().sum(-1).unsqueeze(-1) + z.square().sum(-1)
        squared = norms - 2 * (x @ z.mT)
    return squared.masked_fill(squared <= rounding * norms, 0)
