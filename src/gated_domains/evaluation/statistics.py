"""Statistics over runs: the spread over seeds, and what paired differences between two methods show.

Two methods are compared by their differences on the same (held-out domain, seed) pairs. The differences of one domain
are strongly correlated, so pairs are not independent. Two questions are therefore kept apart:

* *On a new domain* (`new_domain_effect`): domains are the sample, and each contributes one number, its mean over seeds.
* *On these domains* (`these_domains_effect`): domains are fixed, and only the seeds are a sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

SIGNIFICANT = 0.05
"""Differences with a p-value below this level are called significant."""
MIN_DOMAINS = 4
"""With fewer held-out domains nothing is inferred about a new one."""
MIN_DATASETS = 3
"""With fewer data sets there is no random-effects analysis."""
MIN_SIGN_FLIP = 6
"""With fewer domains the sign-flip test cannot reach p < 0.05."""
_EXACT_SIGN_FLIP = 16  # domains up to which all sign patterns are enumerated
_RANDOM_FLIPS = 20_000
_MOST_DOMAINS = 100_000
_ROUNDING = 1e-12  # as a share of the largest difference

Differences = Mapping[Any, Sequence[float]]
"""By held-out domain, the difference between two methods for each seed."""
Verdict = Literal["better", "worse", "practically equal", "undecided"]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (``ddof=1``; None for a single value) of n values."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Interval:
    """A confidence interval from ``low`` to ``high``."""

    low: float
    high: float


@dataclass(frozen=True)
class Record:
    """In how many domains the first method was better, equal, worse."""

    wins: int
    ties: int
    losses: int


@dataclass(frozen=True)
class Effect:
    """An estimated difference with its standard error, for t intervals and t-tests.

    ``error`` is None where it cannot be estimated; then there is no interval and no p-value. An error of 0 allows a
    statement only about a difference of 0: the interval is 0 to 0 and p is 1. ``n`` counts the units behind it.
    """

    difference: float
    error: float | None
    df: float
    n: int

    def interval(self, level: float = 0.95) -> Interval | None:
        """The t interval at this confidence level."""
        if self.error is None or (self.error == 0 and self.difference != 0):
            return None
        from scipy.special import stdtrit  # imported here: computing scores alone needs no scipy

        reach = float(stdtrit(self.df, (1 + level) / 2)) * self.error
        return Interval(self.difference - reach, self.difference + reach)

    @property
    def p_value(self) -> float | None:
        """Of the two-sided t-test of no difference."""
        if self.error is None or (self.error == 0 and self.difference != 0):
            return None
        if self.error == 0:
            return 1.0
        from scipy.special import stdtr

        return 2 * float(stdtr(self.df, -abs(self.difference) / self.error))

    def as_json(self) -> dict[str, float | None]:
        """Difference, 95 % interval and p-value as plain fields."""
        found = self.interval()
        return {
            "difference": self.difference,
            "low": None if found is None else found.low,
            "high": None if found is None else found.high,
            "p_value": self.p_value,
            "standard_error": self.error,
            "df": self.df,
            "n": self.n,
        }


@dataclass(frozen=True)
class RandomEffects:
    """A difference over several data sets, and the standard deviation ``tau`` of the true differences between them."""

    effect: Effect
    tau: float


def spread(values: Iterable[float]) -> Spread:
    """Mean and standard deviation of the values, and how many there are."""
    numbers = [float(value) for value in values]
    if not numbers:
        raise ValueError("there is no value to take the mean of")
    # Sums that do not depend on the order: a value at the edge of rounding must look the same in every table.
    mean = math.fsum(numbers) / len(numbers)
    squares = math.fsum((value - mean) ** 2 for value in numbers)
    return Spread(mean, math.sqrt(squares / (len(numbers) - 1)) if len(numbers) > 1 else None, len(numbers))


def percentile(values: Sequence[float], k: int, *, higher_is_better: bool) -> float:
    """The k-th percentile of scores, counted from the worst, with linear interpolation."""
    return float(np.percentile(values, k if higher_is_better else 100 - k))


def new_domain_effect(differences: Differences) -> Effect:
    r"""The difference to expect on a domain that is not among these.

    With :math:`d_D` the mean over seeds on domain D: the mean of the D values :math:`d_D`, its standard error
    :math:`s / \sqrt{D}` and D - 1 degrees of freedom. Below `MIN_DOMAINS` there is no standard error.
    """
    means = _domain_means(differences)
    n = len(means)
    error = float(means.std(ddof=1)) / math.sqrt(n) if n >= MIN_DOMAINS else None
    return Effect(float(means.mean()), error, float(n - 1), n)


def these_domains_effect(differences: Differences) -> Effect:
    r"""The difference on exactly these domains, had the seeds been others.

    The mean of the domains' means. Its variance comes from the residuals within domains:
    :math:`s^2 = \sum_{D,s} (d_{Ds} - d_D)^2 / \sum_D (S_D - 1)`, standard error :math:`s \sqrt{\sum_D 1 / S_D} / D`,
    degrees of freedom :math:`\sum_D (S_D - 1)`. There is no standard error with one seed only. ``n`` counts pairs.
    """
    means = _domain_means(differences)
    seeds = np.array([len(values) for values in differences.values()])
    df = int((seeds - 1).sum())
    residual = sum(
        float(((np.asarray(values) - mean) ** 2).sum())
        for values, mean in zip(differences.values(), means, strict=True)
    )
    scale = max(abs(value) for values in differences.values() for value in values)
    residual = 0.0 if residual <= seeds.sum() * (_ROUNDING * scale) ** 2 else residual
    error = math.sqrt(residual / df * float((1 / seeds).sum())) / len(seeds) if df else None
    return Effect(float(means.mean()), error, float(df), int(seeds.sum()))


def sign_flip_p(differences: Differences) -> float | None:
    """The two-sided p-value of the sign-flip permutation test over the domains' means; None below `MIN_SIGN_FLIP`.

    The share of all sign patterns whose absolute sum is at least the observed one; with more than 16 domains, of
    20,000 random patterns and the observed one.
    """
    means = _domain_means(differences)
    if len(means) < MIN_SIGN_FLIP:
        return None
    if len(means) <= _EXACT_SIGN_FLIP:
        signs = np.array(list(product((1.0, -1.0), repeat=len(means))))
    else:
        drawn = np.random.default_rng(0).choice((1.0, -1.0), size=(_RANDOM_FLIPS, len(means)))
        signs = np.vstack([np.ones(len(means)), drawn])
    observed = abs(float(means.sum()))
    return float((np.abs(signs @ means) >= observed - 1e-12 * float(np.abs(means).sum())).mean())


def domain_record(differences: Differences, *, higher_is_better: bool) -> Record:
    """In how many domains the mean difference is in favour of the first method, zero, against it."""
    means = _domain_means(differences)
    above, below = int((means > 0).sum()), int((means < 0).sum())
    wins, losses = (above, below) if higher_is_better else (below, above)
    return Record(wins, len(means) - above - below, losses)


def equivalent(effect: Effect, margin: float | None) -> bool:
    """Whether the 90 % interval lies inside the margin: two one-sided tests at 5 % each."""
    found = None if margin is None else effect.interval(1 - 2 * SIGNIFICANT)
    return found is not None and margin is not None and -margin < found.low and found.high < margin


def decide(
    effect: Effect, *, margin: float | None, p_value: float | None, higher_is_better: bool = True
) -> Verdict | None:
    """The verdict on a difference; None where the effect allows no statement.

    ``p_value`` is the one that counts, corrected for multiple comparisons. Equivalence takes precedence.
    """
    if effect.error is None:
        return None
    if equivalent(effect, margin):
        return "practically equal"
    if p_value is None or p_value >= SIGNIFICANT:
        return "undecided"
    return "better" if (effect.difference > 0) == higher_is_better else "worse"


def domains_to_decide(effect: Effect, *, margin: float | None, level: float = SIGNIFICANT) -> int | None:
    """About how many domains would decide it, if mean and spread over domains stay as they are.

    The smallest number with which the difference is significant at ``level``, or equivalent to zero within the margin.
    None where no number up to 100,000 does.
    """
    if not effect.error:
        return None
    std = effect.error * math.sqrt(effect.n)

    def decided(n: int) -> bool:
        more = Effect(effect.difference, std / math.sqrt(n), float(n - 1), n)
        p_value = more.p_value
        return equivalent(more, margin) or (p_value is not None and p_value < level)

    low, high = effect.n, _MOST_DOMAINS
    if not decided(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values of m tests, corrected by Holm's procedure for the family-wise error rate.

    The i-th smallest (from 0) is multiplied by m - i, is at least the one before it, and at most 1. None, where
    nothing was tested, stays None and is not among the m.
    """
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        corrected[index] = largest
    return corrected


def random_effects(effects: Sequence[Effect]) -> RandomEffects | None:
    r"""One difference over several data sets: DerSimonian and Laird's estimate, Hartung and Knapp's standard error.

    With :math:`y_i` and :math:`v_i` the difference and squared standard error on data set i, :math:`w_i = 1 / v_i`,
    :math:`Q = \sum w_i (y_i - \bar y_w)^2` and
    :math:`\tau^2 = \max(0, (Q - (k - 1)) / (\sum w_i - \sum w_i^2 / \sum w_i))`: the mean with weights
    :math:`1 / (v_i + \tau^2)`, whose variance is the weighted mean of squared deviations from it over k - 1, with
    k - 1 degrees of freedom. None below `MIN_DATASETS` data sets with a standard error.
    """
    usable = [effect for effect in effects if effect.error]
    if len(usable) < MIN_DATASETS:
        return None
    y = np.array([effect.difference for effect in usable])
    v = np.array([effect.error for effect in usable], np.float64) ** 2
    k, w = len(y), 1 / v
    q = float((w * (y - (w @ y) / w.sum()) ** 2).sum())
    tau2 = max(0.0, (q - (k - 1)) / float(w.sum() - (w @ w) / w.sum()))
    w = 1 / (v + tau2)
    mean = float((w @ y) / w.sum())
    variance = float((w * (y - mean) ** 2).sum() / ((k - 1) * w.sum()))
    return RandomEffects(Effect(mean, math.sqrt(variance), float(k - 1), k), math.sqrt(tau2))


def welch_effect(difference: float, parts: Sequence[tuple[float, int]]) -> Effect:
    """A difference of independent means; each part is a squared standard error and its degrees of freedom.

    Degrees of freedom by Welch and Satterthwaite.
    """
    variance = sum(part for part, _ in parts)
    df = variance**2 / sum(part**2 / freedom for part, freedom in parts) if variance else 1.0
    return Effect(difference, math.sqrt(variance), df, len(parts))


def _domain_means(differences: Differences) -> NDArray[np.float64]:
    """The mean over seeds of each domain; means that differ from each other by rounding alone are made equal."""
    means = np.array([float(np.mean(values)) for values in differences.values()])
    if not len(means):
        raise ValueError("there is no domain to take a difference on")
    scale = max((abs(value) for values in differences.values() for value in values), default=0.0)
    return np.full_like(means, means.mean()) if np.ptp(means) <= _ROUNDING * scale else means
