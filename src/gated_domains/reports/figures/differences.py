"""Differences to the baseline: on a new domain with the 95 % interval, and on each hold-out."""

from __future__ import annotations

import math

from gated_domains.data.errors import listing
from gated_domains.evaluation.statistics import spread
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel, Rule
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures.dodging import band_height, offset
from gated_domains.reports.figures.runs import MOST_CELLS, counted, drawn, drawn_methods, headed, methods_said
from gated_domains.reports.summary import MethodNumbers, Numbers, differences
from gated_domains.reports.terminal_table import interval_text
from gated_domains.runs.collection import RunCollection

_MOST = 40
_NEW = "on a new domain"
_MEAN = "all held-out domains"


def chart(numbers: Numbers, gathered: RunCollection, palette: Palette) -> Chart | None:
    """The first line is the mean over domains with its interval, the others the mean over seeds on one hold-out."""
    base, metric = numbers.baseline, numbers.metric
    paired = [row for row in numbers.rows if row.against is not None]
    if base is None or not paired:
        return None
    rows = drawn_methods(numbers, paired)
    found = {row.label: differences(row.scores, base.scores) for row in rows}
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
        y=Axis(categories=(_NEW if numbers.tested else _MEAN, *shown)),
        marks=tuple(marks),
        rules=(Rule(along="y", at=0.0),),
    )
    return Chart(
        key="differences",
        title=headed(f"{metric.label}: difference to {base.label}"),
        caption=f"{_caption(numbers, paired, len(shown))} {methods_said(numbers, rows, len(paired))}".strip(),
        runs=len(base.runs) + sum(len(row.runs) for row in rows),
        panels=(panel,),
        height=90 + (len(shown) + 1) * band_height(len(rows)),
    )


def _shown(numbers: Numbers, found: dict[str, dict[str, list[float]]]) -> tuple[str, ...]:
    """The hold-outs with any pair; of very many, those with the largest differences, in their order."""
    names = dict.fromkeys([*numbers.hold_outs, *(name for pairs in found.values() for name in pairs)])
    there = [name for name in names if any(name in pairs for pairs in found.values())]
    most = max(5, min(_MOST, MOST_CELLS // len(found)))
    largest = {
        name: max(abs(spread(pairs[name]).mean) for pairs in found.values() if name in pairs) for name in there
    }  # fmt: skip
    kept = set(sorted(there, key=lambda name: -largest[name])[:most])
    return tuple(name for name in there if name in kept)


def _overall(numbers: Numbers, row: MethodNumbers, palette: Palette, y: float) -> Marks:
    metric, against = numbers.metric, row.against
    assert against is not None  # rows without one are not drawn
    effect = against.new_domain
    interval = effect.interval()
    ends = [math.nan] * 2 if interval is None else [drawn(interval.low, metric), drawn(interval.high, metric)]
    about = f"{row.label}: {metric.shown_difference(effect.difference)}{metric.unit}"
    told = "" if interval is None else f"\n95 % interval {interval_text(interval, metric)}"
    return Marks(
        name=row.label, x=(drawn(effect.difference, metric),), y=(y,), colour=palette.method(row.label),
        marker="D", size=9.0, low=(ends[0],), high=(ends[1],), interval="x",
        hover=(f"{about}{told}\n{counted(effect.n, numbers.unit)}",),
    )  # fmt: skip


def _dot(
    numbers: Numbers, row: MethodNumbers, palette: Palette, hold_out: str, y: float, by_seed: list[float]
) -> Marks:
    metric, mean = numbers.metric, spread(by_seed).mean
    return Marks(
        name=row.label, x=(drawn(mean, metric),), y=(y,), colour=palette.method(row.label),
        marker=palette.marker(row.label), size=8.0, domain=hold_out, legend=False,
        hover=(
            f"{row.label}: {metric.shown_difference(mean)}{metric.unit}\n"
            f"{hold_out} held out, {counted(len(by_seed), 'seed')}",
        ),
    )  # fmt: skip


def _caption(numbers: Numbers, rows: list[MethodNumbers], shown: int) -> str:
    """What the intervals show, no more."""
    found: dict[str, list[str]] = {}
    for row in rows:
        interval = None if row.against is None else row.against.new_domain.interval()
        if interval is not None:
            where = "includes" if interval.low <= 0 <= interval.high else "is above" if interval.low > 0 else "is below"
            found.setdefault(where, []).append(row.label)
    lines = [
        f"The 95 % interval on a new domain {where} zero for {listing(labels, 4)}." for where, labels in found.items()
    ]
    if len(rows) > 1 and lines:
        lines.append("Intervals are not corrected for the number of methods; p in the table is.")
    few = numbers.units - shown
    left_out = [f"{few:,} hold-outs with smaller differences are left out."] if few > 0 else []
    opening = f"First line: the mean over {numbers.unit}s; below: the mean over seeds on each held-out {numbers.unit}."
    return " ".join([opening, *lines, *left_out])
