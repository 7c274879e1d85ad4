"""The control with frozen gates: a model whose gates are replaced, at test time, by their mean over training rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.insight.doctor.cures import CURES
from gated_domains.insight.doctor.findings import Finding, Level
from gated_domains.insight.doctor.paired import OF_ONE_SEED, Paired
from gated_domains.layer.gates import Gate, InnerProducts
from gated_domains.layer.units import GatedDomainUnits


class _FrozenGate(Gate):
    """The same beta for every sample; novelty and familiarity stay those of the gate in its place."""

    def __init__(self, beta: Tensor, instead_of: Gate) -> None:
        super().__init__()
        self.register_buffer("beta", beta)
        self.instead_of = instead_of

    def forward(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        # A copy for each row: where gates are constant, predictions are then the same to the last bit.
        beta: Tensor = self.get_buffer("beta").to(products.cross)
        return beta.expand(products.cross.shape).contiguous()

    def explaining(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        return self.instead_of.explaining(products)


@contextmanager
def frozen_gates(units: GatedDomainUnits, beta: NDArray[np.floating]) -> Iterator[None]:
    """Inside, gates are the mean of ``beta`` (rows, bases), whatever the input: in the head and in gated batch norms.

    The mean is taken in float64, in which the mean of equal float32 numbers is that number.
    """
    gate = units.gate
    units.gate = _FrozenGate(torch.from_numpy(mean_beta(beta)).to(units.bases.device), gate)
    try:
        yield
    finally:
        units.gate = gate


def mean_beta(beta: NDArray[np.floating]) -> NDArray[np.float64]:
    """``1/n sum_i beta_i`` over training rows."""
    return np.asarray(beta, np.float64).mean(0)


def frozen(parts: Sequence[Paired], *, beta: NDArray[np.float64] | None = None) -> Finding:
    """One finding of all parts, each ``frozen - plain``; ``beta`` is what gates were frozen at, where that is one.

    Ok only where freezing makes the model significantly worse on some part and better on none.
    """
    metric = parts[0].metric
    of_parts = {part.part: part.as_value("frozen", "plain") for part in parts}
    about = {} if beta is None else {"mean_beta": beta.tolist()}
    value = {"metric": metric.name, **about, **of_parts}
    numbers = f"{metric.label}, frozen against plain: {'; '.join(part.describe() for part in parts)}; {OF_ONE_SEED}"
    better, worse = (
        " and ".join(part.part for part in parts if part.outcome == outcome) for outcome in ("better", "worse")
    )
    if worse and not better:
        level: Level = "ok"
        says = f"the model depends on its gates: worse with frozen ones on {worse}"
    else:
        level = "look"
        same = "change nothing" if all(part.negligible for part in parts) else "make no significant difference"
        says = f"frozen gates {f'are better on {better}' if better else same}"
    # Of a model that was trained with gates, freezing tells that it depends on them, not that it could not do without.
    return Finding(
        name="frozen gates", level=level, value=value, says=f"{says} ({numbers})", cures=CURES["frozen gates"]
    )
