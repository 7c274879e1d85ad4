"""``||mu_a - mu_b||^2`` for every way to deal the same rows to two sides, by matrix products.

With s = 1 for a row of side a and 0 for one of side b, and values centred over all rows,

    ||mu_a - mu_b||^2 = (1 / |a| + 1 / |b|)^2 s' K s

so nothing is recomputed for a labelling but a product with its s.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gated_domains.insight.shift.rows import as_float, fine, kernel_blocks
from gated_domains.layer.kernels import KernelLike

_FEW = 100  # so many units in the last place are rounding


class Rounding(NamedTuple):
    """By how much two equal distances may differ: a share of them, and a number beside it."""

    relative: float
    absolute: float

    def slack(self, squared: float) -> float:
        """Of one squared distance."""
        return self.relative * abs(squared) + self.absolute


class MeanDifference:
    """Pooled rows, the reference first, of which ``s' K s`` is known for every labelling s.

    ``strata`` are sets of groups inside which labels may change places while nothing but the labels changes.
    """

    rounding: Rounding
    strata: list[Int[Tensor, " _"]]

    def __call__(self, labels: Float[Tensor, "labellings rows"]) -> Float[Tensor, " labellings"]:
        """``s' K s`` of every labelling."""
        raise NotImplementedError


class ByPairs(MeanDifference):
    """Every kernel value of the pooled rows, in double precision: near groups differ in late digits."""

    def __init__(self, kernel: KernelLike, reference: Tensor, new: Tensor, groups: int) -> None:
        reference, new = fine(kernel, reference), fine(kernel, new)
        total = len(reference) + len(new)
        values = torch.empty(total, total, dtype=torch.float64, device=reference.device)
        for side, columns in ((reference, slice(0, len(reference))), (new, slice(len(reference), total))):
            start = 0
            for rows in (reference, new):
                for block in kernel_blocks(kernel, rows, side):
                    values[start : start + len(block), columns] = block
                    start += len(block)
        eps = _FEW * torch.finfo(torch.float64).eps
        self.rounding = Rounding(eps, eps * float(values.diagonal().abs().mean()))
        values -= values.mean(0)
        values -= values.mean(1, keepdim=True)
        self.values = values
        self.strata = [torch.arange(groups)]

    def __call__(self, labels: Float[Tensor, "labellings rows"]) -> Float[Tensor, " labellings"]:
        s = labels.double()
        return ((s @ self.values) * s).sum(1)


class ByLandmarks(MeanDifference):
    """What the span of some rows shows of the difference: features ``K_LL^-1/2 k(landmarks, x)``, in linear time.

    Landmarks are whole groups, drawn from those of all rows, whatever their side. Each landmark is at no distance from
    itself, which no other row is: labels change places among landmarks and among other rows, never across. So, given
    which places were drawn, all labellings that are tried are equally likely under no shift, and the level is exact
    for every seed.
    """

    def __init__(
        self,
        kernel: KernelLike,
        reference: Tensor,
        new: Tensor,
        count: int,
        generator: torch.Generator,
        member: Int[Tensor, " rows"],
    ) -> None:
        sizes = member.bincount()
        order = torch.randperm(len(sizes), generator=generator)
        drawn = max(1, int((sizes[order].cumsum(0) <= count).sum()))
        self.strata = [order[:drawn].sort().values, order[drawn:].sort().values]
        landmarks = _taken(reference, new, torch.isin(member, self.strata[0]).nonzero()[:, 0])
        among = torch.cat(list(kernel_blocks(kernel, landmarks, landmarks)))
        root = _inverse_root(among)
        features = root.new_empty(len(member), root.shape[1])
        total, start = root.new_zeros(root.shape[1], dtype=torch.float64), 0
        for rows in (reference, new):
            for block in kernel_blocks(kernel, rows, landmarks):
                own = torch.matmul(block, root, out=features[start : start + len(block)])
                total += own.sum(0)
                start += len(block)
        features -= (total / len(member)).to(features.dtype)
        self.features = features
        eps = _FEW * torch.finfo(features.dtype).eps
        self.rounding = Rounding(eps, eps**2 * float(among.diagonal().abs().mean()))

    def __call__(self, labels: Float[Tensor, "labellings rows"]) -> Float[Tensor, " labellings"]:
        return (labels.to(self.features.dtype) @ self.features).double().square().sum(1)


def _taken(reference: Tensor, new: Tensor, places: Int[Tensor, " some"]) -> Tensor:
    places = places.to(reference.device)
    early = places < len(reference)
    return torch.cat([as_float(reference[places[early]]), as_float(new[places[~early] - len(reference)])])


def _inverse_root(among: Float[Tensor, "landmarks landmarks"]) -> Float[Tensor, "landmarks rank"]:
    """R with ``R R' = K^-1`` on the directions that are more than rounding."""
    spectrum, directions = torch.linalg.eigh(((among + among.mT) / 2).double())
    kept = spectrum > len(among) * torch.finfo(among.dtype).eps * spectrum[-1]
    return (directions[:, kept] * spectrum[kept].rsqrt()).to(among.dtype)
