"""P(right) of a row, from how sure the model is and how familiar the row; fitted to rows whose answers are known.

P(right) = sigmoid(logit(confidence) + a + b logit(confidence) + c (1 - coverage))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError

Floats = NDArray[np.float64]
Weights = tuple[float, float, float | None]
"""a, b and c; None without coverage."""

_SUREST = 1e-4  # a confidence is at least this far from 0 and 1, or one row would outweigh hundreds
# On a, b and c, counted in domains: the offset is worth learning from three domains, slope and coverage only from many.
# Chosen on PACS features and digits; benchmarks/shift_constants.py tells what a choice on other data sets is worth.
_RIDGE = (0.3, 3.0, 1.0)
_STEPS, _NEAR = 50, 1e-10


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one left-out domain: how sure, how familiar, and whether right (1 or 0)."""

    confidence: Floats
    coverage: Floats | None
    correct: Floats


def checked_confidence(name: str, values: NDArray[Any] | None) -> Floats:
    """One probability a row, or words for whoever has none."""
    found = None if values is None else np.asarray(values)
    if found is None or found.ndim != 1 or found.dtype.kind not in "fiu":
        raise DataError(
            f"{name}: confidence must be one probability a row, got {None if found is None else found.shape}; a model "
            "that predicts numbers has none, and its accuracy cannot be estimated"
        )
    return _shares(name, "confidence", found)


def checked_coverage(name: str, values: NDArray[Any] | None, rows: int) -> Floats:
    """One share a row."""
    found = np.asarray(values)
    if found.shape != (rows,):
        raise DataError(f"{name}: coverage must be one number for each of {rows:,} rows, got shape {found.shape}")
    return _shares(name, "coverage", found)


def _shares(name: str, what: str, values: NDArray[Any]) -> Floats:
    found = values.astype(np.float64)
    if not len(found):
        raise DataError(f"{name}: there are no rows")
    bad = ~((found >= -1e-6) & (found <= 1 + 1e-6))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"{name}: {what} must lie between 0 and 1, got {found[row]:g} in row {row}")
    return found.clip(0, 1)


def _columns(confidence: Floats, coverage: Floats | None) -> tuple[Floats, Floats]:
    """logit(confidence), and what the weights multiply."""
    sure = confidence.clip(_SUREST, 1 - _SUREST)
    logit = np.log(sure) - np.log1p(-sure)
    columns = [np.ones_like(logit), logit]
    return logit, np.stack(columns if coverage is None else [*columns, 1 - coverage], axis=1)


def _sigmoid(values: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(values / 2))


def right(confidence: Floats, coverage: Floats | None, weights: Weights) -> Floats:
    """P(right) of every row."""
    logit, columns = _columns(confidence, coverage)
    return _sigmoid(logit + columns @ np.array([weight for weight in weights if weight is not None]))


def fit(domains: Sequence[Rows]) -> Weights:
    """The weights, by Newton's method on the sum over domains of their mean log losses, plus the ridge."""
    parts = [_columns(own.confidence, own.coverage) for own in domains]
    logit, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    correct = np.concatenate([own.correct for own in domains])
    weigh = np.concatenate([np.full(len(own.correct), 1 / len(own.correct)) for own in domains])
    ridge = np.array(_RIDGE[: columns.shape[1]])
    found = np.zeros(columns.shape[1])

    def loss(weights: Floats) -> float:
        values = logit + columns @ weights
        return float(weigh @ (np.logaddexp(0, values) - correct * values) + 0.5 * ridge @ weights**2)

    for _ in range(_STEPS):
        chances = _sigmoid(logit + columns @ found)
        slope = columns.T @ (weigh * (chances - correct)) + ridge * found
        curve = (columns * (weigh * chances * (1 - chances))[:, None]).T @ columns + np.diag(ridge)
        step = np.linalg.solve(curve, slope)
        share = 1.0
        while loss(found - share * step) > loss(found) and share > 1e-6:
            share /= 2  # convex, so that a short enough step goes down
        found = found - share * step
        if float(np.abs(share * step).max()) < _NEAR:
            break
    a, b, *c = found.tolist()
    return a, b, c[0] if c else None
