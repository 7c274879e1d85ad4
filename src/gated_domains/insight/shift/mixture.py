"""Which bases a site draws on: the mixture of bases whose mean embedding is nearest to that of the site's rows.

    w = argmin ||mu_site - sum_j w_j mu_j||^2,   w >= 0, sum w = 1

A basis is a sample of N vectors of its elementary distribution. Each vector is at no distance from itself, so a mean
over all pairs makes ``||mu_j||^2`` too large, the more so the fewer vectors there are, and draws the weights together.
Here only pairs of different vectors count. Intervals are a bootstrap that resamples both the rows of the site and the
vectors of every basis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.errors import DataError
from gated_domains.insight.shift.rows import checked_rows, fine, kernel_blocks
from gated_domains.insight.shift.simplex import project_on_simplex
from gated_domains.layer.fitting import subsample
from gated_domains.layer.kernels import KernelLike

MOST_ROWS = 10_000
"""Rows of a site that are looked at; of a larger one so many are drawn at random."""
PAIRED_ROWS = 2_000
"""Rows whose pairs tell the length of the site's mean embedding."""
_AT_ONCE = 8 * 2**20  # numbers in a block of draws
_LEAST = 1e-6  # of the largest eigenvalue, that a Gram matrix of few pairs is lifted to


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteMixture:
    """The weight of every basis in a site, with bootstrap intervals of a ``level``.

    ``outside`` is the share of the site's squared length that no combination of the bases expresses, 0 to 1. ``rows``
    are those that were looked at.
    """

    weights: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    level: float
    outside: float
    draws: int
    rows: int


@torch.no_grad()
def site_mixture(
    kernel: KernelLike,
    bases: Float[Tensor, "bases size gating"],
    view: Float[Tensor, "rows gating"],
    *,
    level: float = 0.9,
    draws: int = 500,
    groups: NDArray[Any] | None = None,
    seed: int = 0,
) -> SiteMixture:
    """Weights of the bases in the rows of a site, as gates see them.

    ``groups`` hold a label for every row: rows that share one (a patient) are redrawn together.

    The interval of a weight reaches from its estimate as far as the percentiles of the bootstrap do, times a factor for
    the few vectors of a basis: ``sqrt(N / (N - 1))``, by which redrawing N of N vectors varies too little, and the
    quantile of t with N - 1 degrees of freedom over the normal one. Of a basis of one vector no more is known than
    that vector: the bootstrap then draws rows alone.
    """
    if not 0 < level < 1:
        raise DataError(f"level must lie between 0 and 1, got {level}")
    if draws < 20:
        raise DataError(f"draws must be 20 or more, so that they have percentiles; got {draws}")
    bases = bases.detach()
    vectors = bases.flatten(0, 1)
    checked_rows(vectors, "bases")
    checked_rows(view, "view", like=vectors)
    generator = torch.Generator().manual_seed(seed)
    kept = subsample(torch.arange(len(view)).double().unsqueeze(1), MOST_ROWS, seed)[:, 0].long()
    vectors, view = fine(kernel, vectors), fine(kernel, view[kept.to(view.device)])
    member = kept if groups is None else torch.from_numpy(np.unique(groups, return_inverse=True)[1])[kept]
    member = torch.unique(member, return_inverse=True)[1]
    to_rows = torch.cat(list(kernel_blocks(kernel, view, vectors))).double()
    among = torch.cat(list(kernel_blocks(kernel, vectors, vectors))).double()
    pairs = _Pairs((among + among.T) / 2, *bases.shape[:2])
    gram = _definite(pairs.gram(pairs.even))
    if not bool((gram.diagonal(dim1=-2, dim2=-1) > 0).all()):
        raise DataError("no two vectors of a basis are near for this kernel; take a larger sigma")
    cross = (to_rows.mean(0).reshape(pairs.even.shape) * pairs.even).sum(-1)
    weights = project_on_simplex(gram, cross)[0]
    redrawn = torch.cat(
        [
            project_on_simplex(_definite(pairs.gram(of_vectors)), (of_rows * of_vectors).sum(-1))
            for of_rows, of_vectors in _redrawn(to_rows, pairs, draws, member, generator)
        ]
    )
    ends = torch.quantile(redrawn, redrawn.new_tensor([(1 - level) / 2, (1 + level) / 2]), dim=0)
    low, high = weights + _few_vectors(bases.shape[1], level) * (ends - weights)
    return SiteMixture(
        weights=weights.cpu().numpy(),
        low=torch.minimum(low, weights).clamp(0, 1).cpu().numpy(),
        high=torch.maximum(high, weights).clamp(0, 1).cpu().numpy(),
        level=level,
        outside=_outside(kernel, view, gram[0], cross[0], seed),
        draws=draws,
        rows=len(view),
    )


class _Pairs:
    """Kernel values between all vectors of all bases, and means of them under weights of the vectors."""

    def __init__(self, values: Float[Tensor, "vectors vectors"], bases: int, size: int) -> None:
        self.bases, self.size = bases, size
        self.values = values
        self.own = values.diagonal().reshape(bases, size)
        self.even = values.new_full((1, bases, size), 1 / size)
        self.norms: Tensor | None = None
        self.norms = self.gram(self.even)[0].diagonal()

    def gram(self, weights: Float[Tensor, "draws bases size"]) -> Float[Tensor, "draws bases bases"]:
        """``<mu_j, mu_l>`` of weighted vectors; of a basis with itself without the pairs of a vector with itself."""
        q = weights.double()
        blocks = self.values.reshape(self.bases, self.size, self.bases, self.size)
        half = torch.einsum("dln,lnjm->dljm", q, blocks)
        found = torch.einsum("dljm,djm->dlj", half, q)
        if self.size > 1:
            norms = found.diagonal(dim1=-2, dim2=-1)
            left = 1 - q.square().sum(-1)
            apart = (norms - (q.square() * self.own).sum(-1)) / left.clamp_min(1e-9)
            # Where one vector was drawn over and over there is no pair: the basis keeps the length that it has.
            norms.copy_(apart if self.norms is None else torch.where(left > 1e-9, apart, self.norms))
        return found


def _redrawn(
    to_rows: Float[Tensor, "rows vectors"],
    pairs: _Pairs,
    draws: int,
    member: Int[Tensor, " rows"],
    generator: torch.Generator,
) -> Iterator[tuple[Float[Tensor, "some bases size"], Float[Tensor, "some bases size"]]]:
    """Means of kernel values over redrawn groups of rows, and weights of redrawn vectors, in blocks of draws."""
    groups, rows, bases, size = int(member.max()) + 1, len(to_rows), pairs.bases, pairs.size
    at_once = max(1, _AT_ONCE // max(rows, bases * bases * size))
    for start in range(0, draws, at_once):
        some = min(at_once, draws - start)
        counts = _counts(some, groups, generator)[:, member].to(to_rows.device)
        means = (counts @ to_rows / counts.sum(1, keepdim=True)).reshape(some, bases, size)
        if size == 1:
            yield means, pairs.even.expand(some, bases, size)
        else:
            drawn = _counts(some * bases, size, generator).reshape(some, bases, size)
            yield means, (drawn / size).to(to_rows.device)


def _counts(draws: int, size: int, generator: torch.Generator) -> Float[Tensor, "draws size"]:
    """How often each of ``size`` things comes when so many are drawn with replacement."""
    drawn = torch.randint(size, (draws, size), generator=generator)
    counts = torch.zeros(draws, size, dtype=torch.float64)
    return counts.scatter_add_(1, drawn, torch.ones(1, dtype=torch.float64).expand(draws, size))


def _definite(gram: Float[Tensor, "draws bases bases"]) -> Float[Tensor, "draws bases bases"]:
    """Without the pairs of a vector with itself a Gram matrix may lose its sign; its eigenvalues are lifted."""
    spectrum, directions = torch.linalg.eigh(gram)
    lifted = torch.maximum(spectrum, _LEAST * spectrum[:, -1:])
    return (directions * lifted.unsqueeze(-2)) @ directions.mT


def _few_vectors(size: int, level: float) -> float:
    if size == 1:
        return 1.0
    # Here, not above: it takes a second to import.
    from scipy.special import ndtri, stdtrit

    upper = (1 + level) / 2
    return math.sqrt(size / (size - 1)) * float(stdtrit(size - 1, upper) / ndtri(upper))


def _outside(kernel: KernelLike, view: Tensor, gram: Tensor, cross: Tensor, seed: int) -> float:
    """``1 - cross' gram^-1 cross / ||mu_site||^2``, the length over pairs of different rows."""
    some = subsample(view, PAIRED_ROWS, seed)
    count, total, own = len(some), 0.0, 0.0
    start = 0
    for block in kernel_blocks(kernel, some, some):
        total += float(block.double().sum())
        own += float(block[:, start:].diagonal().double().sum())
        start += len(block)
    length = (total - own) / (count * (count - 1)) if count > 1 else total
    expressed = float(cross @ torch.linalg.solve(gram, cross))
    return min(1.0, max(0.0, 1 - expressed / length)) if length > 0 else 1.0
