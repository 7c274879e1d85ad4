"""Paired differences to the baseline: over all pairs with their interval, and in each hold-out."""

from __future__ import annotations

import math

from gated_domains.data.errors import listing
from gated_domains.evaluation.statistics import spread
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel, Rule
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures.dodging import band_height, offset
from gated_domains.reports.figures.runs import MOST_CELLS, counted, drawn, drawn_methods, headed, methods_said
from gated_domains.reports.gathering import Gathered
from gated_domains.reports.numbers import MethodNumbers, Numbers

_MOST = 40
_ALL = "all held-out domains"


def chart(numbers: Numbers, gathered: Gathered, palette: Palette) -> Chart | None:
    """The first line is over all pairs (hold-out, seed), the others over the seeds of one hold-out."""
    base, metric = numbers.baseline, numbers.metric
    paired = [row for row in numbers.rows if row.difference is not None]
    if base is None or not paired:
        return None
    rows = drawn_methods(numbers, paired)
    found = {row.label: _by_hold_out(row, base) for row in rows}
    shown = _shown(numbers, found)
    marks = []
    for number, row in enumerate(rows):
        shift = offset(number, len(rows))
        marks.append(_overall(numbers, row, palette, shift))
        marks += [
            _dot(numbers, row, palette, name, place + shift, found[row.label][name])
            for place, name in enumerate(shown, 1)
            if name in found[row.label]
        ]
    better = "right" if metric.higher_is_better else "left"
    label = f"difference to {base.label}{metric.unit and f' in{metric.unit}'} ({better}: better)"
    panel = Panel(
        x=Axis(label=label),
        y=Axis(categories=(_ALL, *shown)),
        marks=tuple(marks),
        rules=(Rule(along="y", at=0.0),),
    )
    return Chart(
        key="differences",
        title=headed(f"{metric.label}: difference to {base.label}, in pairs"),
        caption=f"{_caption(numbers, paired, len(shown))} {methods_said(numbers, rows, len(paired))}".strip(),
        runs=len(base.runs) + sum(len(row.runs) for row in rows),
        panels=(panel,),
        height=90 + (len(shown) + 1) * band_height(len(rows)),
    )


def _by_hold_out(row: MethodNumbers, base: MethodNumbers) -> dict[str, list[float]]:
    """The differences of all pairs of a hold-out."""
    found: dict[str, list[float]] = {}
    for key, value in row.scores.items():
        if key in base.scores:
            found.setdefault(key[0], []).append(value - base.scores[key])
    return found


def _shown(numbers: Numbers, found: dict[str, dict[str, list[float]]]) -> tuple[str, ...]:
    """The hold-outs with any pair; of very many, those with the largest differences, in their order."""
    there = [name for name in numbers.hold_outs if any(name in pairs for pairs in found.values())]
    most = max(5, min(_MOST, MOST_CELLS // len(found)))
    largest = {
        name: max(abs(spread(pairs[name]).mean) for pairs in found.values() if name in pairs) for name in there
    }  # fmt: skip
    kept = set(sorted(there, key=lambda name: -largest[name])[:most])
    return tuple(name for name in there if name in kept)


def _overall(numbers: Numbers, row: MethodNumbers, palette: Palette, y: float) -> Marks:
    metric, pair = numbers.metric, row.difference
    assert pair is not None  # rows without one are not drawn
    ends = [math.nan if end is None else drawn(end, metric) for end in (pair.low, pair.high)]
    about = f"{row.label}: {metric.shown_difference(pair.difference)}{metric.unit}"
    told = "" if pair.low is None or pair.high is None else (
        f"\n95 % interval {metric.shown_difference(pair.low)} to {metric.shown_difference(pair.high)}"
    )  # fmt: skip
    return Marks(
        name=row.label, x=(drawn(pair.difference, metric),), y=(y,), colour=palette.method(row.label),
        marker="D", size=9.0, low=(ends[0],), high=(ends[1],), interval="x",
        hover=(f"{about}{told}\n{counted(pair.n, 'pair')}",),
    )  # fmt: skip


def _dot(
    numbers: Numbers, row: MethodNumbers, palette: Palette, hold_out: str, y: float, differences: list[float]
) -> Marks:
    metric, mean = numbers.metric, spread(differences).mean
    return Marks(
        name=row.label, x=(drawn(mean, metric),), y=(y,), colour=palette.method(row.label),
        marker=palette.marker(row.label), size=8.0, domain=hold_out, legend=False,
        hover=(
            f"{row.label}: {metric.shown_difference(mean)}{metric.unit}\n"
            f"{hold_out} held out, {counted(len(differences), 'pair')}",
        ),
    )  # fmt: skip


def _caption(numbers: Numbers, rows: list[MethodNumbers], shown: int) -> str:
    """What the intervals tell, no more."""
    said: dict[str, list[str]] = {}
    for row in rows:
        pair = row.difference
        if pair is None or pair.low is None or pair.high is None:
            continue
        where = "holds zero" if pair.low <= 0 <= pair.high else "lies above zero" if pair.low > 0 else "lies below zero"
        said.setdefault(where, []).append(row.label)
    told = [f"The 95 % interval {where} for {listing(labels, 4)}." for where, labels in said.items()]
    if len(rows) > 1 and told:
        told.append("Intervals are not corrected for the number of methods; p in the table is.")
    few = len(numbers.hold_outs) - shown
    left_out = [f"{few:,} hold-outs with smaller differences are left out."] if few else []
    opening = "First line: the mean over all pairs of hold-out and seed; below: the mean over seeds of each hold-out."
    return " ".join([opening, *told, *left_out])
