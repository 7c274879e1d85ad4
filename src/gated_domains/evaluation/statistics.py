"""Statistics over runs: mean and spread over seeds, and what the pairs of two methods tell.

A pair is a (held-out domain, seed) that both methods have. Pairs of one domain are not independent: a method may suit a
domain with every seed. The t-test and Wilcoxon's take pairs as independent, and their p is optimistic where seeds are
many and domains few; the bootstrap draws whole domains first and is not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Key = TypeVar("_Key", bound=Hashable)
_LEVEL = 0.95
# Differences this near to each other (as a share of the scores) differ by rounding alone.
_ROUNDING = 1e-12
_EXACT = 50  # pairs that Wilcoxon's distribution is counted out for
_DRAWS, _SEED, _AT_ONCE = 5_000, 0, 1_000_000


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


@dataclass(frozen=True)
class Interval:
    """From ``low`` to ``high``, at 95 %."""

    low: float
    high: float


@dataclass(frozen=True)
class Record:
    """In how many pairs the first method was better, equal, worse."""

    wins: int
    ties: int
    losses: int


def spread(values: Iterable[float]) -> Spread:
    """Mean, standard deviation over the values, and how many there are."""
    numbers = np.asarray(list(values), np.float64)
    if not len(numbers):
        raise ValueError("there is no value to take the mean of")
    std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return Spread(float(numbers.mean()), std, len(numbers))


def percentile(values: Sequence[float], k: int, *, higher_is_better: bool) -> float:
    """The k-th percentile of scores, counted from the bad end, on the line between two of them."""
    return float(np.percentile(values, k if higher_is_better else 100 - k))


def paired(a: Mapping[_Key, float], b: Mapping[_Key, float]) -> Paired | None:
    """The paired comparison over the keys that both have, such as (held-out domain, seed); None without any."""
    differences, rounding = _differences(a, b)
    n = len(differences)
    if not n:
        return None
    difference = float(differences.mean())
    if n < 2:
        return Paired(difference, None, None, None, None, n)
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


def wilcoxon(a: Mapping[_Key, float], b: Mapping[_Key, float]) -> float | None:
    """The two-sided p-value of Wilcoxon's signed-rank test over the keys that both have; None below two.

    Equal pairs are left out, as Wilcoxon did; where all are equal, p is 1. Equal differences share their mean rank. Up
    to 50 pairs p is exact, given these ranks: the share of all 2^n choices of signs whose rank sum lies as far out.
    Above, scipy's normal approximation.
    """
    differences, rounding = _differences(a, b)
    if len(differences) < 2:
        return None
    # In whole steps of rounding, so that what is equal but for it is a tie.
    steps = np.rint(differences / rounding) if rounding else differences
    steps = steps[steps != 0]
    if not len(steps):
        return 1.0
    if len(steps) > _EXACT:
        from scipy import stats

        return float(stats.wilcoxon(steps).pvalue)
    _, place, counts = np.unique(np.abs(steps), return_inverse=True, return_counts=True)
    doubled = (2 * np.cumsum(counts) - counts + 1)[place]  # twice the mean rank, a whole number
    total = int(doubled.sum())
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in doubled.tolist():
        ways[rank:] += ways[: total + 1 - rank].copy()  # each rank is in the sum, or not
    least = min(int(doubled[steps > 0].sum()), int(doubled[steps < 0].sum()))
    return float(min(1.0, 2 * ways[: least + 1].sum() / ways.sum()))


def bootstrap(
    a: Mapping[_Key, float], b: Mapping[_Key, float], *, cluster: Callable[[_Key], Hashable]
) -> Interval | None:
    """The 95 % percentile interval of the mean difference over pairs, under redrawn domains and seeds; None below two.

    5,000 times: draw as many clusters (held-out domains) as there are, with replacement, and of each as many of its
    pairs (seeds) as it has, with replacement; take the mean of all. The interval lies between the 2.5th and the 97.5th
    percentile of these means. The draws are always the same. With few clusters it is somewhat too narrow; with one it
    speaks of that domain alone.
    """
    differences, _ = _differences(a, b)
    if len(differences) < 2:
        return None
    members: dict[Hashable, list[float]] = {}
    for key, difference in zip((key for key in a if key in b), differences.tolist(), strict=True):
        members.setdefault(cluster(key), []).append(difference)
    sizes = np.array([len(found) for found in members.values()])
    table = np.zeros((len(members), sizes.max()))
    for row, found in zip(table, members.values(), strict=True):
        row[: len(found)] = sorted(found)  # the order of the runs changes nothing
    table = table[(order := np.lexsort((*table.T, sizes)))]
    low, high = np.percentile(_redrawn_means(table, sizes[order]), [50 * (1 - _LEVEL), 50 * (1 + _LEVEL)])
    return Interval(float(low), float(high))


def record(a: Mapping[_Key, float], b: Mapping[_Key, float], *, higher_is_better: bool) -> Record:
    """In how many of the shared pairs ``a`` is better than ``b``, equal (but for rounding), worse."""
    differences, rounding = _differences(a, b)
    above, below = int((differences > rounding).sum()), int((differences < -rounding).sum())
    wins, losses = (above, below) if higher_is_better else (below, above)
    return Record(wins, len(differences) - wins - losses, losses)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values of m tests, corrected so that the chance of one false finding among them stays below the level.

    Holm: the i-th smallest (from 0) is multiplied by m - i, is at least the one before it, and at most 1. None, where
    nothing was tested, stays None and is not among the m.
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        corrected[place] = largest
    return corrected


def _differences(a: Mapping[_Key, float], b: Mapping[_Key, float]) -> tuple[NDArray[np.float64], float]:
    """a - b over the keys that both have, in the order of ``a``, and what is rounding in them."""
    keys = [key for key in a if key in b]
    first, second = (np.array([float(scores[key]) for key in keys], np.float64) for scores in (a, b))
    return first - second, _ROUNDING * max((float(np.abs(side).max()) for side in (first, second) if keys), default=0.0)


def _redrawn_means(table: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Means of redrawn tables; a row is a cluster, of which the first so many cells are its pairs."""
    rng = np.random.default_rng(_SEED)
    clusters, most = table.shape
    means = []
    at_once = max(1, _AT_ONCE // table.size)
    for start in range(0, _DRAWS, at_once):
        drawn = rng.integers(clusters, size=(min(at_once, _DRAWS - start), clusters))
        count = sizes[drawn][..., None]
        pair = (rng.random((*drawn.shape, most)) * count).astype(np.int64)
        kept = np.arange(most) < count
        means.append((table[drawn[..., None], pair] * kept).sum(axis=(1, 2)) / kept.sum(axis=(1, 2)))
    return np.concatenate(means)
