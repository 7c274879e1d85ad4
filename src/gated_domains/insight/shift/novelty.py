"""What the span of the bases cannot express: of each row, and of a batch as a whole.

    row:    ||phi(x) - projection on span(mu_1 .. mu_M)||^2
    batch:  ||mu_batch - projection on span(mu_1 .. mu_M)||^2

``units.novelty`` takes the gate's beta in place of the projection: how far a row is from the mixture that the gate
makes. No combination of the bases comes nearer than the one here, so what is left is new, whatever the gate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.errors import DataError
from gated_domains.insight.shift.rows import BLOCK, checked_rows
from gated_domains.layer.fitting import subsample
from gated_domains.layer.gates import (
    EXPLAINING_RIDGE,
    InnerProducts,
    exact_projection,
    inner_products,
    pooled,
    residual,
)
from gated_domains.layer.units import GatedDomainUnits

PAIRED_ROWS = 2_000
"""Rows of a batch, drawn at random, whose pairs tell the length of its mean embedding."""


@torch.no_grad()
def sample_novelty(units: GatedDomainUnits, view: Float[Tensor, "rows gating"]) -> Float[Tensor, " rows"]:
    """The residual of each row of the view that gates see."""
    rows = _view(units, view)
    return torch.cat([span_residual(_products(units, block)) for block in rows.split(BLOCK)])


@torch.no_grad()
def batch_novelty(units: GatedDomainUnits, view: Float[Tensor, "rows gating"], *, seed: int = 0) -> float:
    """The residual of the mean embedding of a batch: 0 for a mixture of the bases, up to 1 for a kernel of length 1.

    The squared length of the mean is taken over pairs of different rows (the unbiased one: each row with itself would
    make a small batch look new), of 2,000 rows drawn at random where there are more. One row is a batch of its own.
    """
    rows = _view(units, view)
    blocks = [_products(units, block) for block in rows.split(BLOCK)]
    cross = torch.cat([block.cross for block in blocks]).mean(0, keepdim=True)
    some = subsample(rows, PAIRED_ROWS, seed)
    own = _products(units, some)
    all_pairs = pooled(own, units.kernel, some, budget=units.memory_budget).self_product
    count = len(some)
    length = (count * all_pairs - own.self_product.mean()) / (count - 1) if count > 1 else all_pairs
    return float(span_residual(own._replace(self_product=length, cross=cross)))


def span_residual(products: InnerProducts) -> Float[Tensor, "*batch"]:
    """``||phi - sum_j beta_j mu_j||^2`` for the beta of the exact projection, not below 0."""
    # In double precision: bases that are nearly alike make the projection a difference of large numbers.
    exact = InnerProducts(products.self_product.double(), products.cross.double(), products.gram.double())
    return residual(exact, exact_projection(exact, EXPLAINING_RIDGE)).clamp_min(0)


def auroc(novel: NDArray[Any], familiar: NDArray[Any]) -> float:
    """How often a novel score is larger than a familiar one, ties counting half: the area under the ROC curve."""
    sides = [np.asarray(side, np.float64).reshape(-1) for side in (novel, familiar)]
    for name, side in zip(("novel", "familiar"), sides, strict=True):
        if not len(side) or not np.isfinite(side).all():
            raise DataError(f"{name}: expected some finite scores, got {len(side)} of which not all are finite")
    # Here, not above: it takes a second to import.
    from scipy.stats import rankdata

    count, others = map(len, sides)
    ranks = rankdata(np.concatenate(sides))[:count].sum()
    return float((ranks - count * (count + 1) / 2) / (count * others))


def _view(units: GatedDomainUnits, view: Tensor) -> Tensor:
    checked_rows(view, "view", like=units.active_bases.detach().flatten(0, 1))
    return view.to(units.bases.dtype)


def _products(units: GatedDomainUnits, rows: Tensor) -> InnerProducts:
    return inner_products(units.kernel, rows, units.active_bases, budget=units.memory_budget)
