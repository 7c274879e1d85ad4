"""What numbers say, in words: spreads, and whether a difference is more than noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gated_domains.evaluation.statistics import Spread, spread, these_domains_effect

AGREES, DISAGREES, NOISE = "agrees with it", "disagrees with it", "is not significant"


def mean_std(found: Spread, digits: int = 1) -> str:
    """``68.2 ± 0.4``, the mean alone of one run."""
    return f"{found.mean:.{digits}f}" + ("" if found.std is None else f" ± {found.std:.{digits}f}")


def typical_std(spreads: Iterable[Spread]) -> float | None:
    """The mean of standard deviations over seeds; None where none is known."""
    known = [found.std for found in spreads if found.std is not None]
    return spread(known).mean if known else None


def noise(std: float | None) -> str:
    """How far seeds alone move a number."""
    if std is None:
        return "one run a cell: how much is noise is not known"
    return f"over seeds a cell has a standard deviation of {std:.1f} on average"


def difference(
    a: Mapping[int, float], b: Mapping[int, float], *, unit: str = " points", digits: int = 1
) -> tuple[str, int]:
    """``a - b`` over the seeds of both on one target, and its sign where the 95 % interval has one, else 0."""
    gaps = [a[seed] - b[seed] for seed in a if seed in b]
    if not gaps:
        return "no shared seed", 0
    found = these_domains_effect({"target": gaps})
    words, interval = f"{found.difference:+.{digits}f}{unit}", found.interval()
    if interval is None:
        return f"{words} ({found.n} seed{'s' * (found.n != 1)}, no interval)", 0
    ends = f"{interval.low:+.{digits}f} to {interval.high:+.{digits}f}"
    return f"{words} (95 % interval {ends}, {found.n} seeds)", (interval.low > 0) - (interval.high < 0)


def agreement(sign: int, expected: int) -> str:
    """Whether a difference has the sign that the paper says."""
    if sign == 0:
        return NOISE
    return AGREES if sign == expected else DISAGREES


def mean_by_seed(scores: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """The mean over several cells for each seed that all of them have."""
    cells = list(scores)
    shared = set.intersection(*map(set, cells)) if cells else set()
    return {seed: spread(cell[seed] for cell in cells).mean for seed in sorted(shared)}
