"""What the figures share: the score of a run, its place in the gathered folders, a few of many runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from gated_domains.data.errors import listing
from gated_domains.evaluation.metrics import Metric
from gated_domains.reports.dots import scaled
from gated_domains.reports.summary import MethodNumbers, Numbers
from gated_domains.runs.collection import RunCollection
from gated_domains.runs.result import RunResult

_T = TypeVar("_T")
MOST_CELLS = 400
"""Methods times hold-outs that are drawn one by one, so that the page can hide a hold-out and stays quick."""
MOST_METHODS = 40
"""That are drawn one by one."""
_MOST_NAMED = 3  # methods that a caption speaks of


def score(run: RunResult) -> float:
    """The mean over the held-out domains of a run."""
    return sum(run.test.values()) / len(run.test)


def drawn_score(run: RunResult, metric: Metric) -> float:
    """The same as it is drawn: shares in percent."""
    return drawn(score(run), metric)


def drawn(value: float, metric: Metric) -> float:
    """A value of a metric as it is drawn: shares in percent."""
    return float(scaled([value], metric)[0])


def number(value: object) -> float | None:
    """A finite number; None for whatever else a file may have in its place."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return found if math.isfinite(found) else None


def drawn_methods(
    numbers: Numbers, rows: Sequence[MethodNumbers] | None = None, most: int = MOST_METHODS
) -> list[MethodNumbers]:
    """All of these rows; of very many the baseline and the best by their mean, in their order.

    Those that have all hold-outs go before others, whose means are over fewer.
    """
    rows = numbers.rows if rows is None else rows
    if len(rows) <= most:
        return list(rows)

    def rank(row: MethodNumbers) -> tuple[bool, bool, float]:
        mean = row.mean.mean if row.mean is not None else float(np.mean([cell.mean for cell in row.cells.values()]))
        return row is not numbers.baseline, row.mean is None, -numbers.metric.as_gain(mean)

    kept = {id(row) for row in sorted(rows, key=rank)[:most]}
    return [row for row in rows if id(row) in kept]


def methods_said(numbers: Numbers, shown: Sequence[MethodNumbers], there: int) -> str:
    """Which methods are drawn, where those are not all."""
    if len(shown) >= there:
        return ""
    base = "the baseline and " * any(row is numbers.baseline for row in shown)
    return f"Of {there:,} methods, {len(shown)} are drawn: {base}the best by their mean."


def cells(numbers: Numbers, row: MethodNumbers) -> Iterator[tuple[str | None, list[RunResult]]]:
    """The runs of a method by hold-out; all at once, with None, where there are too many to tell apart."""
    if min(len(numbers.rows), MOST_METHODS) * len(numbers.hold_outs) > MOST_CELLS:
        yield None, list(row.runs)
        return
    for hold_out in numbers.hold_outs:
        if mine := [run for run in row.runs if run.hold_out == hold_out]:
            yield hold_out, mine


def count_runs(rows: Sequence[MethodNumbers]) -> int:
    """Of all these methods."""
    return sum(len(row.runs) for row in rows)


def as_gathered(gathered: RunCollection, runs: Sequence[RunResult]) -> list[RunResult]:
    """Runs as they were gathered, by whose folders their curves and predictions are found; here in any metric."""
    if all(map(gathered.knows, runs)):
        return list(runs)
    known = {_cell(run): run for run in gathered.results}
    found = [run if gathered.knows(run) else known.get(_cell(run)) for run in runs]
    return [run for run in found if run is not None]


def _cell(run: RunResult) -> tuple[str, str, str, int]:
    """What no two runs of a comparison share."""
    return run.method, run.label, run.hold_out, run.seed


def evenly(items: Sequence[_T], most: int) -> list[_T]:
    """At most so many of them, as far from each other as can be."""
    if len(items) <= most:
        return list(items)
    places = np.linspace(0, len(items) - 1, max(most, 1)).round().astype(int)
    return [items[place] for place in dict.fromkeys(places.tolist())]


def some_runs(numbers: Numbers, gathered: RunCollection, most: int) -> dict[str, list[RunResult]]:
    """By label of the methods drawn, runs to read: about as many of each, over all its hold-outs and seeds."""
    rows = drawn_methods(numbers, most=min(most, MOST_METHODS))
    share, places = most // len(rows), {name: place for place, name in enumerate(numbers.hold_outs)}
    found = {}
    for row in rows:
        ordered = sorted(row.runs, key=lambda run: (places[run.hold_out], run.seed))
        found[row.label] = evenly(as_gathered(gathered, ordered), share)
    return found


def counted(number: int, what: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def headed(text: str) -> str:
    """A title with a capital letter first."""
    return text[:1].upper() + text[1:]


def ahead_of_baseline(numbers: Numbers) -> str:
    """In how many held-out domains the mean of a method is better than that of the baseline, in a sentence."""
    base, metric = numbers.baseline, numbers.metric
    others = [row for row in numbers.rows if row is not base]
    if base is None or not others:
        return ""
    said = []
    for row in others:
        shared = [name for name in numbers.hold_outs if name in row.cells and name in base.cells]
        wins = sum(metric.better(row.cells[name].mean, base.cells[name].mean) for name in shared)
        said.append(f"{row.label} {wins} of {len(shared)}")
    which = "higher" if metric.higher_is_better else "lower"
    return f"Held-out domains where the mean is {which} than that of {base.label}: {listing(said, _MOST_NAMED)}."


def seeds_said(numbers: Numbers) -> str:
    """What a dot and a stroke are."""
    several = any(len(row.runs) > len(row.cells) for row in numbers.rows)
    return "A dot is a run, a stroke the mean over seeds." if several else "A dot is a run."
