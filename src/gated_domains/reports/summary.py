"""The numbers of a comparison: methods against hold-outs over seeds, and each method's differences to the baseline."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, TypeVar

from gated_domains.common.validation import PRESETS
from gated_domains.data.errors import DataError, listing
from gated_domains.data.published import STATISTICS
from gated_domains.evaluation.metrics import Metric, metric_named
from gated_domains.evaluation.statistics import (
    SIGNIFICANT,
    Effect,
    Record,
    Spread,
    Verdict,
    decide,
    domain_record,
    domains_to_decide,
    holm,
    new_domain_effect,
    percentile,
    sign_flip_p,
    spread,
    these_domains_effect,
)
from gated_domains.runs.result import RunResult

Key = tuple[str, str, int]
"""What is paired: hold-out, held-out domain, seed."""
Scores = Mapping[Key, float]
_Method = TypeVar("_Method", bound=Hashable)
_ROUNDING = 1e-12  # as a share of the scores: differences this small are rounding alone
_FOLD = re.compile(r"fold \d+( of \d+)?")  # of very many domains, scored under one name
PERCENTILE = 10
"""Of the groups, counted from the worst; WILDS reports this one."""


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


@dataclass(frozen=True, kw_only=True)
class MethodNumbers:
    """One row of the table. ``mean`` and ``worst`` are None where no seed has all hold-outs.

    ``cells`` has the hold-outs that were run; ``against`` is None for the baseline and where no pair is shared.
    ``worst_group`` and ``percentile`` are over the groups of all hold-outs, where groups were scored.
    """

    method: str
    label: str
    uses_domains: bool
    oracle: bool
    batchwise: bool
    runs: tuple[RunResult, ...]
    scores: dict[Key, float]
    cells: dict[str, Spread]
    mean_by_seed: dict[int, float]
    worst_by_seed: dict[int, float]
    mean: Spread | None
    worst: Spread | None
    worst_group: Spread | None
    percentile: Spread | None
    against: Against | None
    best: bool
    """Whether no other method has a better mean."""

    @property
    def worse(self) -> bool:
        """Whether it is significantly worse than the baseline on a new domain."""
        return self.against is not None and self.against.verdict == "worse"

    @property
    def seconds(self) -> float:
        """Of one training, the mean over runs."""
        return spread(run.seconds for run in self.runs).mean

    def seeds_of(self, hold_out: str) -> list[int]:
        """The seeds that a hold-out was run with."""
        return sorted({run.seed for run in self.runs if run.hold_out == hold_out})


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A comparison in numbers: its rows, and what they have in common. Hold-outs and rows stand as first met."""

    metric: Metric
    data: str
    protocol: str
    selection: str
    hold_outs: tuple[str, ...]
    seeds: tuple[int, ...]
    rows: tuple[MethodNumbers, ...]
    baseline: MethodNumbers | None
    score_by: tuple[str, ...]
    unscored: tuple[str, ...]
    """Held-out domains whose rows have no score in this metric, and that take no part."""
    margin: float | None
    """Differences smaller than this, in units of the score, are practically none."""

    @property
    def oracle(self) -> bool:
        """Whether any run was selected by what it is scored on."""
        return any(row.oracle for row in self.rows)

    @property
    def tested(self) -> int:
        """How many methods have a p-value against the baseline."""
        return sum(row.against is not None and row.against.holm is not None for row in self.rows)

    @property
    def units(self) -> int:
        """How many held-out domains, or folds of them, the differences are over; the most that any method has."""
        return max((row.against.new_domain.n for row in self.rows if row.against is not None), default=0)

    @property
    def unequal(self) -> bool:
        """Whether some methods share fewer domains with the baseline than others."""
        return len({row.against.new_domain.n for row in self.rows if row.against is not None}) > 1

    @property
    def unit(self) -> str:
        """What a unit is called."""
        runs = [run for row in self.rows for run in row.runs]
        alone = all(len(run.held_out) == 1 and not _FOLD.fullmatch(run.hold_out) for run in runs)
        return "domain" if alone or held_out_repeatedly(key for row in self.rows for key in row.scores) else "fold"

    @property
    def missing(self) -> dict[str, list[tuple[str, int]]]:
        """By label, the (hold-out, seed) that a method lacks, of every hold-out with every seed."""
        wanted = list(product(self.hold_outs, self.seeds))
        there = {row.label: {(run.hold_out, run.seed) for run in row.runs} for row in self.rows}
        lacks = {label: [cell for cell in wanted if cell not in mine] for label, mine in there.items()}
        return {label: cells for label, cells in lacks.items() if cells}


def summarise(results: Sequence[RunResult], baseline: str, *, margin: float | None = None) -> Numbers:
    """The numbers behind a table of those results that have a domain held out.

    ``baseline`` is a method's name, ``margin`` the size of a negligible difference as printed (`Metric.margin`).
    """
    unscored = tuple(dict.fromkeys(name for result in results for name in result.unscored))
    results = [result for result in results if result.test]
    if not results:
        raise DataError(
            f"no held-out domain has such a score: the rows of {listing(unscored)} each share one target; "
            "choose another metric"
            if unscored
            else "there is no finished run with a domain held out to compare; train some, or name another folder"
        )
    metric = metric_named(_the_one(results, "metric"))
    counts = {STATISTICS.get(result.statistic, "") for result in results}
    if len(counts) == 1:
        metric = replace(metric, label=counts.pop() + metric.label)
    shared = {name: _the_one(results, name) for name in ("data", "protocol", "selection")}
    hold_outs = tuple(dict.fromkeys(result.hold_out for result in results))
    grouped = _by_method(results)
    # With several settings, the plain one: what is switched on or set makes a label longer, unless a preset names it.
    candidates = [key for key in grouped if key[0] == baseline]
    base = min(candidates, key=lambda key: (key[1] in PRESETS, len(key[1])), default=None)
    negligible = metric.margin(margin)
    rows = _rows(grouped, base, hold_outs, metric, negligible)
    return Numbers(
        metric=metric,
        **shared,
        hold_outs=hold_outs,
        seeds=tuple(sorted({result.seed for result in results})),
        rows=tuple(rows.values()),
        baseline=None if base is None else rows[base],
        score_by=results[0].score_by if len({result.score_by for result in results}) == 1 else (),
        unscored=unscored,
        margin=negligible,
    )


_MethodKey = tuple[str, str]  # its name and its label: one method may stand in a table with several settings


def _rows(
    grouped: dict[_MethodKey, list[RunResult]],
    base: _MethodKey | None,
    hold_outs: tuple[str, ...],
    metric: Metric,
    margin: float | None,
) -> dict[_MethodKey, MethodNumbers]:
    scores = {key: _scores(runs) for key, runs in grouped.items()}
    complete = {key: _complete_seeds(runs, hold_outs) for key, runs in grouped.items()}
    worst, means = (
        {key: {seed: of(_tested(runs)) for seed, runs in seeds.items()} for key, seeds in complete.items()}
        for of in (metric.worst_of, _mean)
    )
    overall = {key: _mean(list(by_seed.values())) for key, by_seed in means.items() if by_seed}
    best = metric.best_of(overall.values()) if overall else None
    compared = compare_methods(scores, base, metric=metric, margin=margin)
    labels = _labels(list(grouped))
    return {
        key: MethodNumbers(
            method=key[0],
            label=labels[key],
            uses_domains=runs[0].uses_domains,
            oracle=any(run.oracle for run in runs),
            batchwise=any(run.batchwise for run in runs),
            runs=tuple(runs),
            scores=scores[key],
            cells=_cells(runs),
            mean_by_seed=means[key],
            worst_by_seed=worst[key],
            mean=_spread_or_none(means[key].values()),
            worst=_spread_or_none(worst[key].values()),
            worst_group=_over_groups(complete[key], 0, metric),
            percentile=_over_groups(complete[key], PERCENTILE, metric),
            against=compared.get(key),
            best=key in overall and overall[key] == best,
        )
        for key, runs in grouped.items()
    }


def _mean(values: Sequence[float]) -> float:
    return spread(values).mean


def _spread_or_none(values: Collection[float]) -> Spread | None:
    return spread(values) if values else None


def _the_one(results: Sequence[RunResult], name: str) -> str:
    found = list(dict.fromkeys(str(getattr(result, name)) for result in results))
    if len(found) > 1:
        raise DataError(
            f"these runs differ in their {name} ({listing(map(repr, found))}) and cannot stand in one table; "
            "compare those of one kind"
        )
    return found[0]


def _by_method(results: Sequence[RunResult]) -> dict[_MethodKey, list[RunResult]]:
    grouped: dict[_MethodKey, list[RunResult]] = {}
    taken: dict[tuple[str, str, str, int], str] = {}
    for result in results:
        cell = (result.method, result.label, result.hold_out, result.seed)
        if cell in taken:
            raise DataError(
                f"two runs of {result.label} with {result.hold_out!r} held out and seed {result.seed}, {taken[cell]} "
                f"and {result.run}: their settings differ; leave one out, or give them different labels"
            )
        taken[cell] = result.run
        grouped.setdefault(cell[:2], []).append(result)
    return grouped


def _labels(methods: list[_MethodKey]) -> dict[_MethodKey, str]:
    """The label of each method, with its name where two share a label."""
    counts = Counter(label for _, label in methods)
    return {key: key[1] if counts[key[1]] == 1 else f"{key[1]} ({key[0]})" for key in methods}


def _scores(runs: list[RunResult]) -> dict[Key, float]:
    return {(run.hold_out, domain, run.seed): score for run in runs for domain, score in run.test.items()}


def _cells(runs: list[RunResult]) -> dict[str, Spread]:
    """By hold-out, over seeds, the mean over its held-out domains."""
    values: dict[str, list[float]] = {}
    for run in runs:
        values.setdefault(run.hold_out, []).append(spread(run.test.values()).mean)
    return {hold_out: spread(found) for hold_out, found in values.items()}


def _complete_seeds(runs: list[RunResult], hold_outs: tuple[str, ...]) -> dict[int, list[RunResult]]:
    """The runs of every seed that has all hold-outs."""
    by_seed = {seed: [run for run in runs if run.seed == seed] for seed in sorted({run.seed for run in runs})}
    return {seed: mine for seed, mine in by_seed.items() if {run.hold_out for run in mine} == set(hold_outs)}


def _tested(runs: list[RunResult]) -> list[float]:
    """The scores of all held-out domains."""
    return [score for run in runs for score in run.test.values()]


def _over_groups(by_seed: dict[int, list[RunResult]], k: int, metric: Metric) -> Spread | None:
    """The k-th percentile over the groups of all hold-outs, for every seed, then over seeds."""
    groups = [[score for run in runs for score in (run.by_group or {}).values()] for runs in by_seed.values()]
    return _spread_or_none(
        [percentile(found, k, higher_is_better=metric.higher_is_better) for found in groups if found]
    )
