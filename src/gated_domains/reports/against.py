"""Methods against each other: what the pairs with the baseline tell, and which methods are not told from the best."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gated_domains.evaluation.metrics import Metric
from gated_domains.evaluation.statistics import (
    Interval,
    Paired,
    Record,
    bootstrap,
    holm,
    paired,
    record,
    wilcoxon,
)

SIGNIFICANT = 0.05
"""Below this p-value, corrected for the number of methods, two methods are told apart."""

Key = tuple[str, str, int]
"""What is paired: hold-out, held-out domain, seed."""
_Method = TypeVar("_Method", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Against:
    """A method against the baseline, over the pairs that both have.

    ``pair`` is the difference with its t interval and the p of the t-test; ``bootstrap`` the interval when held-out
    domains and then seeds are redrawn. What is called ``holm`` is corrected over all methods in the table that were
    tested against the baseline.
    """

    pair: Paired
    bootstrap: Interval | None
    record: Record
    wilcoxon: float | None
    holm: float | None
    wilcoxon_holm: float | None


def against(
    scores: Mapping[_Method, Mapping[Key, float]], base: _Method | None, *, metric: Metric
) -> dict[_Method, Against]:
    """Every method against the baseline, but those that share no pair with it."""
    if base is None:
        return {}
    theirs = scores[base]
    pairs = {key: paired(mine, theirs) for key, mine in scores.items() if key != base}
    tested = {key: pair for key, pair in pairs.items() if pair is not None}
    ranked = [wilcoxon(scores[key], theirs) for key in tested]
    corrected = zip(holm([pair.p_value for pair in tested.values()]), ranked, holm(ranked), strict=True)
    return {
        key: Against(
            pair=pair,
            # A domain that is held out more than once is one cluster all the same.
            bootstrap=bootstrap(scores[key], theirs, cluster=lambda found: found[1]),
            record=record(scores[key], theirs, higher_is_better=metric.higher_is_better),
            wilcoxon=signed,
            holm=p,
            wilcoxon_holm=signed_holm,
        )
        for (key, pair), (p, signed, signed_holm) in zip(tested.items(), corrected, strict=True)
    }


def not_told_from_best(
    means: Mapping[_Method, float], scores: Mapping[_Method, Mapping[Key, float]], *, metric: Metric
) -> set[_Method]:
    """The method with the best mean, and those that the paired t-test, corrected by Holm, does not tell from it."""
    if not means:
        return set()
    value = metric.best_of(means.values())
    top = next(key for key, mean in means.items() if mean == value)
    pairs = {key: paired(scores[key], scores[top]) for key in means if key != top}
    corrected = holm([None if pair is None else pair.p_value for pair in pairs.values()])
    alike = {
        key
        for (key, pair), p in zip(pairs.items(), corrected, strict=True)
        if pair is not None and (pair.difference == 0 or (p or 0) >= SIGNIFICANT)
    }
    return {top, *alike}
