"""What a fallback of unfamiliar samples to the shared expert would be worth.

By default familiarity is reported and multiplies nothing; here it is applied, as with ``coverage=True``, to every
sample or to none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.layer.fitting import Coverage
from gated_domains.layer.units import GatedDomainUnits

Outputs = NDArray[Any]


@contextmanager
def covered(units: GatedDomainUnits, everywhere: bool) -> Iterator[None]:
    """The layer with coverage 1 of every sample inside the block, or with coverage 0: the shared expert alone."""
    if units.shared is None:
        raise DataError("there is no shared expert to fall back to: every sample is left to the gates (shared=False)")
    coverage, applied = units.coverage, units.applies_coverage
    before = coverage.q50.clone(), coverage.q97.clone()
    try:
        units.applies_coverage = True
        _set(coverage, *_BEYOND_ALL if everywhere else _BELOW_ALL)
        yield
    finally:
        units.applies_coverage = applied
        _set(coverage, *before)


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """Scores of the same rows: ``gated`` as the model is, ``never`` with none falling back, ``always`` with all.

    ``gated`` and ``never`` are one where the model does not apply coverage.

    NaN where there are no rows.
    """

    rows: int
    gated: float
    never: float
    always: float


def accuracy(output: Outputs, targets: NDArray[Any]) -> float:
    """The share of rows whose most probable class is the true one."""
    return float((output.argmax(axis=1) == targets).mean())


def fallback(
    units: GatedDomainUnits,
    predict: Callable[[], Outputs],
    targets: NDArray[Any],
    outside: NDArray[np.bool_],
    *,
    score: Callable[[Outputs, NDArray[Any]], float] = accuracy,
) -> tuple[Fallback, Fallback]:
    """Scores of the samples inside the span and of those outside.

    ``predict`` asks the model that the units are part of, as often as it is called; ``outside`` says which rows are.
    """
    said = {"gated": predict()}
    for name, everywhere in (("never", True), ("always", False)):
        with covered(units, everywhere):
            said[name] = predict()
    for name, output in said.items():
        if len(output) != len(targets) or len(targets) != len(outside):
            raise DataError(
                f"{len(output):,} predictions ({name}), {len(targets):,} targets and {len(outside):,} marks of what is "
                "outside; there must be one of each for every row"
            )
    inside, beyond = (_scored(said, targets, which, score) for which in (~outside, outside))
    return inside, beyond


def _scored(
    said: dict[str, Outputs], targets: NDArray[Any], which: NDArray[np.bool_], score: Callable[[Any, Any], float]
) -> Fallback:
    found = {name: score(output[which], targets[which]) if which.any() else np.nan for name, output in said.items()}
    return Fallback(rows=int(which.sum()), **found)


# Quantiles that no residual reaches, as before fitting; and such as every residual is beyond.
_BEYOND_ALL = float(Coverage().q50), float(Coverage().q97)
_BELOW_ALL = -2.0, -1.0


@torch.no_grad()
def _set(coverage: Coverage, q50: float | torch.Tensor, q97: float | torch.Tensor) -> None:
    coverage.q50.copy_(torch.as_tensor(q50))
    coverage.q97.copy_(torch.as_tensor(q97))
