"""Temperature scaling: one number that makes probabilities as sure as they have a right to be, no class changed.

Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError

COLDEST, HOTTEST = 0.05, 20.0
_SMALLEST = float(np.finfo(np.float32).tiny)  # stands for a probability of 0, whose logarithm is none


def fit_temperature(probabilities: NDArray[Any], targets: NDArray[Any]) -> float:
    """The T between 0.05 and 20 that minimises the log loss of softmax(log p / T) on these rows.

    In a = 1 / T the loss, mean of logsumexp(a z) - a z_y with z = log p, is convex. Its slope is the mean of
    E[z] - z_y, with E under softmax(a z); it grows with a, and T is where it is zero. Where every row is right the
    loss falls for ever as T does: such rows do not tell how sure to be, and T is 1.
    """
    if probabilities.ndim != 2 or probabilities.shape[1] < 2 or targets.dtype.kind not in "iu":
        raise DataError("there is nothing to calibrate where a number is predicted; leave calibrate out")
    if not len(targets) or len(targets) != len(probabilities):
        raise DataError(f"a temperature is fitted to a target a row, got {len(probabilities):,} and {len(targets):,}")
    logits = _logits(probabilities)
    true = logits[np.arange(len(targets)), targets]
    if bool((true == logits.max(axis=1)).all()):
        return 1.0
    # Here, not above: tempering alone needs no scipy.
    from scipy.optimize import brentq

    def slope(a: float) -> float:
        return float(((_softmax(a * logits) * logits).sum(axis=1) - true).mean())

    if slope(1 / HOTTEST) >= 0:
        return HOTTEST
    if slope(1 / COLDEST) <= 0:
        return COLDEST
    return 1 / float(brentq(slope, 1 / HOTTEST, 1 / COLDEST, xtol=1e-12))


def tempered(probabilities: NDArray[Any], temperature: float) -> NDArray[Any]:
    """softmax(log p / T), row by row, in the precision of the input: surer for T < 1, less sure for T > 1."""
    if not temperature > 0:
        raise DataError(f"a temperature must be positive, got {temperature}")
    if temperature == 1:
        return probabilities
    return _softmax(_logits(probabilities) / temperature).astype(probabilities.dtype)


def _logits(probabilities: NDArray[Any]) -> NDArray[np.float64]:
    return np.log(probabilities.astype(np.float64).clip(_SMALLEST))


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
