"""Methods against the baseline: differences by held-out domain, their tests and the verdict."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from gated_domains.evaluation.metrics import Metric
from gated_domains.evaluation.statistics import (
    SIGNIFICANT,
    Effect,
    Record,
    Verdict,
    decide,
    domain_record,
    domains_to_decide,
    holm,
    new_domain_effect,
    sign_flip_p,
    spread,
    these_domains_effect,
)

Key = tuple[str, str, int]
"""What is paired: hold-out, held-out domain, seed."""
Scores = Mapping[Key, float]
_Method = TypeVar("_Method", bound=Hashable)
_ROUNDING = 1e-12  # as a share of the scores: differences this small are rounding alone


@dataclass(frozen=True, kw_only=True)
class Against:
    """A method against the baseline, over the (hold-out, domain, seed) that both have.

    ``new_domain`` counts held-out domains (folds, where domains are held out in folds), ``these_domains`` pairs of
    domain and seed. ``holm`` is the p-value of the first, corrected over the methods of the table. ``verdict`` is None
    where there are too few domains for one; ``domains_needed`` is about how many would settle an undecided one.
    """

    new_domain: Effect
    these_domains: Effect
    holm: float | None
    sign_flip: float | None
    record: Record
    verdict: Verdict | None
    domains_needed: int | None

    def as_json(self) -> dict[str, Any]:
        """Plain fields."""
        return {
            "new_domain": {**self.new_domain.as_json(), "holm_p_value": self.holm, "sign_flip_p_value": self.sign_flip},
            "these_domains": self.these_domains.as_json(),
            **asdict(self.record),
            "verdict": self.verdict,
            "domains_needed": self.domains_needed,
        }


def compare_methods(
    scores: Mapping[_Method, Scores], base: _Method | None, *, metric: Metric, margin: float | None
) -> dict[_Method, Against]:
    """Every method against the baseline, but those that share no pair with it. ``margin`` is in units of the score."""
    if base is None:
        return {}
    shared = {key: differences(mine, scores[base]) for key, mine in scores.items() if key != base}
    found = {
        key: Against(
            new_domain=new_domain_effect(gaps),
            these_domains=these_domains_effect(gaps),
            holm=None,
            sign_flip=sign_flip_p(gaps),
            record=domain_record(
                differences(scores[key], scores[base], by="domain"), higher_is_better=metric.higher_is_better
            ),
            verdict=None,
            domains_needed=None,
        )
        for key, gaps in shared.items()
        if gaps
    }
    return dict(zip(found, judged(list(found.values()), metric=metric, margin=margin), strict=True))


def judged(found: Sequence[Against], *, metric: Metric, margin: float | None) -> list[Against]:
    """The same comparisons with p-values corrected over all of them, and the verdicts that follow."""
    corrected = holm([one.new_domain.p_value for one in found])
    tests = sum(p is not None for p in corrected)
    judgements = []
    for one, p_value in zip(found, corrected, strict=True):
        effect = one.new_domain
        verdict = decide(effect, margin=margin, p_value=p_value, higher_is_better=metric.higher_is_better)
        needed = None
        if verdict == "undecided":  # with as many methods, and the strictest of their levels
            needed = domains_to_decide(effect, margin=margin, level=SIGNIFICANT / max(1, tests))
        judgements.append(replace(one, holm=p_value, verdict=verdict, domains_needed=needed))
    return judgements


def differences(mine: Scores, theirs: Scores, *, by: str = "unit") -> dict[str, list[float]]:
    """Of each unit, the difference for every seed that both have.

    A unit is a hold-out: a domain, or a fold of domains that one training holds out together, whose difference is the
    mean over them. Where a domain is part of several hold-outs, or with ``by="domain"``, the units are domains.
    """
    shared = [key for key in mine if key in theirs]
    by_domain = by == "domain" or held_out_repeatedly(shared)
    found: dict[str, dict[int, list[float]]] = {}
    for key in shared:
        hold_out, domain, seed = key
        gap = mine[key] - theirs[key]
        gap = 0.0 if abs(gap) <= _ROUNDING * max(abs(mine[key]), abs(theirs[key])) else gap
        found.setdefault(domain if by_domain else hold_out, {}).setdefault(seed, []).append(gap)
    return {unit: [spread(seeds[seed]).mean for seed in sorted(seeds)] for unit, seeds in sorted(found.items())}


def held_out_repeatedly(keys: Iterable[Key]) -> bool:
    """Whether any domain is part of more than one hold-out."""
    hold_outs: dict[str, set[str]] = {}
    for hold_out, domain, _ in keys:
        hold_outs.setdefault(domain, set()).add(hold_out)
    return any(len(found) > 1 for found in hold_outs.values())
