"""The numbers of a comparison: methods against hold-outs, over seeds, each method paired with the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from gated_domains.data.errors import DataError, listing
from gated_domains.evaluation.scores import Metric, metric_named
from gated_domains.evaluation.statistics import Paired, Spread, paired, spread
from gated_domains.reports.results import RunResult

SIGNIFICANT = 0.05
"""Below this p-value two methods are told apart."""

Key = tuple[str, str, int]
"""What is paired: hold-out, held-out domain, seed."""


@dataclass(frozen=True, kw_only=True)
class MethodNumbers:
    """One row of the table. ``mean`` and ``worst`` are None where no seed has all hold-outs.

    ``cells`` has the hold-outs that were run; ``difference`` is None for the baseline and where no pair is shared.
    """

    method: str
    label: str
    uses_domains: bool
    runs: tuple[RunResult, ...]
    scores: dict[Key, float]
    cells: dict[str, Spread]
    mean_by_seed: dict[int, float]
    worst_by_seed: dict[int, float]
    mean: Spread | None
    worst: Spread | None
    difference: Paired | None
    best: bool

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

    @property
    def missing(self) -> dict[str, list[tuple[str, int]]]:
        """By label, the (hold-out, seed) that a method lacks, of every hold-out with every seed."""
        wanted = list(product(self.hold_outs, self.seeds))
        there = {row.label: {(run.hold_out, run.seed) for run in row.runs} for row in self.rows}
        lacks = {label: [cell for cell in wanted if cell not in mine] for label, mine in there.items()}
        return {label: cells for label, cells in lacks.items() if cells}


def summarise(results: Sequence[RunResult], baseline: str) -> Numbers:
    """The numbers behind a table of those results that have a domain held out; ``baseline`` is a method's name."""
    results = [result for result in results if result.test]
    if not results:
        raise DataError(
            "there is no finished run with a domain held out to compare; train some, or name another folder"
        )
    metric = metric_named(_the_one(results, "metric"))
    shared = {name: _the_one(results, name) for name in ("data", "protocol", "selection")}
    hold_outs = tuple(dict.fromkeys(result.hold_out for result in results))
    grouped = _by_method(results)
    scores = {key: _scores(runs) for key, runs in grouped.items()}
    base = next((key for key in grouped if key[0] == baseline), None)
    by_seed = {key: _by_seed(runs, hold_outs) for key, runs in grouped.items()}
    means = {key: {seed: spread(found).mean for seed, found in seeds.items()} for key, seeds in by_seed.items()}
    best = _best(means, scores, metric)
    labels = _labels(list(grouped))
    rows = {
        key: MethodNumbers(
            method=key[0],
            label=labels[key],
            uses_domains=runs[0].uses_domains,
            runs=tuple(runs),
            scores=scores[key],
            cells=_cells(runs),
            mean_by_seed=means[key],
            worst_by_seed=(worst := {seed: metric.worst_of(found) for seed, found in by_seed[key].items()}),
            mean=spread(means[key].values()) if means[key] else None,
            worst=spread(worst.values()) if worst else None,
            difference=None if base in (None, key) else paired(scores[key], scores[base]),
            best=key in best,
        )
        for key, runs in grouped.items()
    }
    return Numbers(
        metric=metric,
        **shared,
        hold_outs=hold_outs,
        seeds=tuple(sorted({result.seed for result in results})),
        rows=tuple(rows.values()),
        baseline=None if base is None else rows[base],
    )


_Method = tuple[str, str]  # its name and its label: one method may stand in a table with several settings


def _the_one(results: Sequence[RunResult], name: str) -> str:
    found = list(dict.fromkeys(str(getattr(result, name)) for result in results))
    if len(found) > 1:
        raise DataError(
            f"these runs differ in their {name} ({listing(map(repr, found))}) and cannot stand in one table; "
            "compare those of one kind"
        )
    return found[0]


def _by_method(results: Sequence[RunResult]) -> dict[_Method, list[RunResult]]:
    grouped: dict[_Method, list[RunResult]] = {}
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


def _labels(methods: list[_Method]) -> dict[_Method, str]:
    """The label of each method, with its name where two share a label."""
    labels = [label for _, label in methods]
    return {key: key[1] if labels.count(key[1]) == 1 else f"{key[1]} ({key[0]})" for key in methods}


def _scores(runs: list[RunResult]) -> dict[Key, float]:
    return {(run.hold_out, domain, run.seed): score for run in runs for domain, score in run.test.items()}


def _cells(runs: list[RunResult]) -> dict[str, Spread]:
    """By hold-out, over seeds, the mean over its held-out domains."""
    values: dict[str, list[float]] = {}
    for run in runs:
        values.setdefault(run.hold_out, []).append(spread(run.test.values()).mean)
    return {hold_out: spread(found) for hold_out, found in values.items()}


def _by_seed(runs: list[RunResult], hold_outs: tuple[str, ...]) -> dict[int, list[float]]:
    """The scores of all held-out domains, by seed; only seeds that have every hold-out."""
    complete = {}
    for seed in sorted({run.seed for run in runs}):
        mine = [run for run in runs if run.seed == seed]
        if {run.hold_out for run in mine} == set(hold_outs):
            complete[seed] = [score for run in mine for score in run.test.values()]
    return complete


def _best(
    means: dict[_Method, dict[int, float]], scores: dict[_Method, dict[Key, float]], metric: Metric
) -> set[_Method]:
    """The method with the best mean, and those that a paired test does not tell from it."""
    overall = {key: spread(by_seed.values()).mean for key, by_seed in means.items() if by_seed}
    if not overall:
        return set()
    value = metric.best_of(overall.values())
    top = next(key for key, mean in overall.items() if mean == value)
    tied = {top}
    for key in overall:
        pair = paired(scores[key], scores[top])
        if pair is not None and (pair.difference == 0 or (pair.p_value or 0) >= SIGNIFICANT):
            tied.add(key)
    return tied
