"""Partial invariance: how much of a new site no basis expresses, which samples, and whether they are a new part.

The paper takes every site for a mixture of the same elementary distributions. Where one of them is new, its samples lie
outside the span of the bases: what is left of them is more than what is left of training rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.errors import DataError
from gated_domains.insight.shift.rows import checked_rows, kernel_blocks
from gated_domains.layer.gates import residual
from gated_domains.layer.kernels import KernelLike, as_kernel
from gated_domains.layer.units import GatedDomainUnits

_AT_ONCE = 2_048
_MOST_PAIRED = 4_000  # rows, at random, of which all pairs are looked at
_DRAWS = 4_000
_REDRAWN = 1_000
_RANK = 1e-6  # of the largest eigenvalue of the Gram matrix: directions below are rounding

_Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Outside:
    """What of a site lies outside the span of the bases; beside it the same of familiar rows, which is the usual.

    - ``of_mean``: ``||mu - P mu||^2 / ||mu||^2`` of the mean embedding mu and its projection P mu on the span
    - ``samples``: which rows are outside, that is have coverage 0
    - ``weight``: of what is new in the site, by the number of samples outside and that which is usual. The truth lies
      between ``low`` and ``high`` with probability ``level``; what of a new part the bases express is not counted
    - ``common``: what samples outside have in common, as a share of all that the bases do not express of them: 0 where
      they are scattered, 1 where they are all the same, NaN where there are fewer than two
    """

    of_mean: float
    usual_of_mean: float
    samples: NDArray[np.bool_]
    usual_share: float
    weight: float
    low: float
    high: float
    level: float
    common: float
    usual_common: float

    @property
    def share(self) -> float:
        """The share of samples outside."""
        return float(self.samples.mean())

    @property
    def excess(self) -> float:
        """The share of samples outside less the usual one, which is about 3 %."""
        return self.share - self.usual_share

    @property
    def new_part(self) -> bool:
        """Whether a part of the site is new: more samples are outside than chance takes there, and they are alike."""
        usual = 0.0 if math.isnan(self.usual_common) else self.usual_common
        return self.low > 0 and self.common > usual


@torch.no_grad()
def outside_span(
    units: GatedDomainUnits,
    view: Float[Tensor, "rows gating"],
    familiar: Float[Tensor, "others gating"],
    *,
    level: float = 0.9,
    groups: tuple[NDArray[Any], NDArray[Any]] | None = None,
    seed: int = 0,
) -> Outside:
    """Compare a site with the bases: ``view`` is what gates see of it, ``familiar`` what they see of source domains.

    ``groups`` are labels of the new and of the familiar rows: where they are given, the interval of the weight is a
    bootstrap of whole groups. Familiar rows should be such as were not trained on. What is usual is counted by the
    basis nearest to a row: a site that draws on the same bases in other proportions is not new.
    """
    if not 0 < level < 1:
        raise DataError(f"level must lie between 0 and 1, got {level}")
    if not units.coverage.fitted:
        raise DataError(
            "coverage was never fitted, so what is usual is not known; call units.fit_coverage with what gates see of "
            "training rows"
        )
    checked_rows(familiar, "familiar rows", at_least=2)
    checked_rows(view, "new rows", at_least=2, like=familiar)
    site, usual = _placed(units, view), _placed(units, familiar)
    rng = np.random.default_rng(seed)
    weight, low, high = weight_of_new(site.by_basis(), usual.by_basis(), level=level, rng=rng)
    if groups is not None:
        own, others = (placed.by_group(labels) for placed, labels in zip((site, usual), groups, strict=True))
        low, high = _redrawn_ends(own, others, weight, level=level, rng=rng)
    whole, usual_whole, beyond, usual_beyond = (
        _apart(units.kernel, some, rng) for some in (site, usual, site.outside(), usual.outside())
    )
    return Outside(
        of_mean=whole.of_mean,
        usual_of_mean=usual_whole.of_mean,
        samples=site.beyond.cpu().numpy(),
        usual_share=float(usual.beyond.double().mean()),
        weight=weight,
        low=low,
        high=high,
        level=level,
        common=beyond.common,
        usual_common=usual_beyond.common,
    )


def weight_of_new(
    site: tuple[_Counts, _Counts], usual: tuple[_Counts, _Counts], *, level: float, rng: np.random.Generator
) -> tuple[float, float, float]:
    """The weight of what is new, and the interval that holds it with probability ``level``.

        weight = 1 - sum_b inside_b / (1 - u_b) / rows

    Both are rows inside and rows outside by their nearest basis b; u_b is the usual share outside there. Of the rows
    that are familiar 1 - u_b are inside, so that each row inside stands for 1 / (1 - u_b) familiar ones.
    """
    (inside, outside), (a, b) = site, _usual(*usual)
    weight = _weight(site, usual)
    counts = np.append(inside + 0.5 / len(inside), outside.sum() + 0.5)  # Jeffreys, for inside and outside
    shares = rng.dirichlet(counts, size=_DRAWS)[:, :-1]
    found = 1 - (shares / (1 - rng.beta(a, b, size=(_DRAWS, len(a))))).sum(axis=1)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    low, weight, high = np.clip([min(low, weight), weight, max(high, weight)], 0, 1).tolist()
    return weight, low, high


def _redrawn_ends(
    site: _Counts, usual: _Counts, weight: float, *, level: float, rng: np.random.Generator
) -> tuple[float, float]:
    """The ends of the interval by drawing whole groups of either side again, with replacement."""
    redrawn = []
    for counts in (site, usual):
        times = rng.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=_REDRAWN)
        redrawn.append(np.tensordot(times, counts, 1))  # (draws, inside or outside, bases)
    found = [_weight(tuple(own), tuple(others)) for own, others in zip(*redrawn, strict=True)]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    low, high = np.clip([min(low, weight), max(high, weight)], 0, 1).tolist()
    return low, high


def _weight(site: tuple[_Counts, ...], usual: tuple[_Counts, ...]) -> float:
    (inside, outside), (a, b) = site, _usual(*usual)
    return 1 - float((inside * (a + b) / b).sum()) / int(inside.sum() + outside.sum())


def _usual(inside: _Counts, outside: _Counts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows outside and inside by basis, and one row more."""
    pooled = (outside.sum() + 0.5) / (outside.sum() + inside.sum() + 1)
    # Where a basis has few rows or none, what is usual is so for all of them: worth one row.
    return outside + pooled, inside + 1 - pooled


class _Placed(NamedTuple):
    """Rows and where they are: their products with the bases in use, the nearest of these, whether coverage is 0."""

    rows: Float[Tensor, "rows gating"]
    cross: Float[Tensor, "rows bases"]
    gram: Float[Tensor, "bases bases"]
    nearest: Int[Tensor, " rows"]
    beyond: Bool[Tensor, " rows"]

    def by_basis(self) -> tuple[_Counts, _Counts]:
        """Rows inside and rows outside."""
        inside, outside = (
            torch.bincount(self.nearest[which], minlength=len(self.gram)).cpu().numpy()
            for which in (~self.beyond, self.beyond)
        )
        return inside, outside

    def by_group(self, labels: NDArray[Any]) -> _Counts:
        """(groups, 2, bases): rows inside and rows outside of every group."""
        known, member = np.unique(labels, return_inverse=True)
        counts = np.zeros((len(known), 2, len(self.gram)), np.int64)
        np.add.at(counts, (member, self.beyond.long().cpu().numpy(), self.nearest.cpu().numpy()), 1)
        return counts

    def outside(self) -> _Placed:
        return self.take(self.beyond)

    def take(self, which: Tensor) -> _Placed:
        """Some of the rows."""
        return _Placed(self.rows[which], self.cross[which], self.gram, self.nearest[which], self.beyond[which])


def _placed(units: GatedDomainUnits, view: Tensor) -> _Placed:
    used = units.active
    parts = []
    for rows in view.to(units.bases.dtype).split(_AT_ONCE):
        products = units.weigh(rows).products
        beta = units.gate.explaining(products)
        beyond = units.coverage(residual(products, beta)) <= 0
        gram = products.gram[used][:, used]
        parts.append(_Placed(rows, products.cross[:, used].double(), gram.double(), beta[:, used].argmax(1), beyond))
    rows, cross, _, nearest, beyond = (torch.cat(column) for column in zip(*parts, strict=True))
    return _Placed(rows, cross, parts[0].gram, nearest, beyond)


class _Apart(NamedTuple):
    of_mean: float
    common: float


def _apart(kernel: KernelLike, some: _Placed, rng: np.random.Generator) -> _Apart:
    """What is out of the span, ``k(x, z) - cross(x)' gram^-1 cross(z)``, averaged over pairs of different rows.

    A row with itself would add its own residual, which is no part of the mean: with few rows much of the whole.
    """
    if len(some.rows) > _MOST_PAIRED:
        drawn = np.sort(rng.choice(len(some.rows), _MOST_PAIRED, replace=False))
        some = some.take(torch.from_numpy(drawn).to(some.rows.device))
    count = len(some.rows)
    if count < 2:
        return _Apart(math.nan, math.nan)
    own = float(as_kernel(kernel).diagonal(some.rows).double().sum())
    total = sum(float(block.double().sum()) for block in kernel_blocks(kernel, some.rows, some.rows))
    inverse = torch.linalg.pinv(some.gram, rtol=_RANK, hermitian=True)
    summed = some.cross.sum(0)
    spanned, own_spanned = float(summed @ inverse @ summed), float(((some.cross @ inverse) * some.cross).sum())
    pairs = count * (count - 1)
    between, left, own_left = (total - own) / pairs, (total - own - spanned + own_spanned) / pairs, own - own_spanned
    return _Apart(_share(left, between), _share(left, own_left / count))


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0
