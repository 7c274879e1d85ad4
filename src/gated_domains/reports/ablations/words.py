"""What numbers say, in words: spreads, and whether a difference is more than noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gated_domains.evaluation.statistics import Spread, paired, spread

AGREES, DISAGREES, NOISE = "agrees with it", "disagrees with it", "cannot be told from noise"


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
    """``a - b`` over the seeds of both in words, and its sign where the 95 % interval has one, else 0."""
    found = paired(a, b)
    if found is None:
        return "no pair of runs", 0
    said = f"{found.difference:+.{digits}f}{unit}"
    if found.low is None or found.high is None:
        return f"{said} ({found.n} pair{'s' * (found.n != 1)}, no interval: allows no test)", 0
    ends = f"{found.low:+.{digits}f} to {found.high:+.{digits}f}"
    return f"{said} (95 % interval {ends}, {found.n} pairs)", (found.low > 0) - (found.high < 0)


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
