"""Statistics over runs: mean and spread over seeds, and the paired t-test between two methods."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

_Key = TypeVar("_Key", bound=Hashable)
_LEVEL = 0.95
# Differences this near to each other (as a share of the scores) differ by rounding alone.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (``ddof=1``; None for a single value) of n values."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Paired:
    """Mean of the differences a - b over n pairs, its 95 % t interval and the p-value of the paired t-test.

    ``std``, ``low``, ``high`` and ``p_value`` are None where they cannot be told. One pair tells nothing but the
    difference. Where all pairs are equal, nothing speaks against equality: the interval is 0 to 0 and p is 1. Where all
    pairs differ by the same amount, t is infinite and no sane p follows from it: std is 0, the rest None.
    """

    difference: float
    std: float | None
    low: float | None
    high: float | None
    p_value: float | None
    n: int


def spread(values: Iterable[float]) -> Spread:
    """Mean, standard deviation over the values, and how many there are."""
    numbers = np.asarray(list(values), np.float64)
    if not len(numbers):
        raise ValueError("there is no value to take the mean of")
    std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return Spread(float(numbers.mean()), std, len(numbers))


def paired(a: Mapping[_Key, float], b: Mapping[_Key, float]) -> Paired | None:
    """The paired comparison over the keys that both have, such as (held-out domain, seed); None without any."""
    keys = [key for key in a if key in b]
    if not keys:
        return None
    first, second = (np.array([float(scores[key]) for key in keys]) for scores in (a, b))
    differences = first - second
    n, difference = len(keys), float(differences.mean())
    if n < 2:
        return Paired(difference, None, None, None, None, n)
    rounding = _ROUNDING * max(np.abs(first).max(), np.abs(second).max())
    if np.ptp(differences) <= rounding:
        if abs(difference) <= rounding:
            return Paired(0.0, 0.0, 0.0, 0.0, 1.0, n)
        return Paired(difference, 0.0, None, None, None, n)
    # Here, not above: scores alone need no scipy.
    from scipy.special import stdtr, stdtrit

    std = float(differences.std(ddof=1))
    error = std / n**0.5
    reach = float(stdtrit(n - 1, (1 + _LEVEL) / 2)) * error
    p_value = 2 * float(stdtr(n - 1, -abs(difference) / error))
    return Paired(difference, std, difference - reach, difference + reach, p_value, n)
