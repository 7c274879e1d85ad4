"""Scores by held-out domain: every seed a dot, their mean a stroke, a colour a method."""

from __future__ import annotations

from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.dots import axis_label, scaled
from gated_domains.reports.figures.dodging import band_height, offset
from gated_domains.reports.figures.runs import (
    MOST_CELLS,
    ahead_of_baseline,
    count_runs,
    drawn_methods,
    headed,
    methods_said,
    score,
    seeds_said,
)
from gated_domains.reports.summary import MethodNumbers, Numbers
from gated_domains.runs.collection import RunCollection

_MOST = 40


def chart(numbers: Numbers, gathered: RunCollection, palette: Palette) -> Chart | None:
    """Hold-outs down, scores across; of very many hold-outs those that methods differ most in."""
    rows = drawn_methods(numbers)
    shown = _shown(numbers, len(rows))
    marks = [
        found
        for number, row in enumerate(rows)
        for place, hold_out in enumerate(shown)
        for found in _marks(numbers, row, palette, hold_out, place + offset(number, len(rows)))
    ]
    left_out = ""
    if len(shown) < len(numbers.hold_outs):
        left_out = f"Of {len(numbers.hold_outs):,} hold-outs, the {len(shown)} that methods differ most in are shown."
    said = [seeds_said(numbers), ahead_of_baseline(numbers), left_out, methods_said(numbers, rows, len(numbers.rows))]
    panel = Panel(x=Axis(label=axis_label(numbers.metric)), y=Axis(categories=shown), marks=tuple(marks))
    return Chart(
        key="scores",
        title=headed(f"{numbers.metric.label} by held-out domain"),
        caption=" ".join(filter(None, said)),
        runs=count_runs(rows),
        panels=(panel,),
        height=90 + len(shown) * band_height(len(rows)),
    )


def _shown(numbers: Numbers, methods: int) -> tuple[str, ...]:
    """All hold-outs, or those with the largest spread between methods, in their order."""
    most = max(5, min(_MOST, MOST_CELLS // methods))
    if len(numbers.hold_outs) <= most:
        return numbers.hold_outs

    def between(hold_out: str) -> float:
        means = [row.cells[hold_out].mean for row in numbers.rows if hold_out in row.cells]
        return max(means) - min(means)

    widest = set(sorted(numbers.hold_outs, key=between, reverse=True)[:most])
    return tuple(name for name in numbers.hold_outs if name in widest)


def _marks(numbers: Numbers, row: MethodNumbers, palette: Palette, hold_out: str, y: float) -> list[Marks]:
    runs = [run for run in row.runs if run.hold_out == hold_out]
    if not runs:
        return []
    metric, colour = numbers.metric, palette.method(row.label)
    values = tuple(map(float, scaled([score(run) for run in runs], metric)))
    alone = len(values) == 1
    dots = Marks(
        name=row.label, x=values, y=(y,) * len(values), colour=colour, marker=palette.marker(row.label),
        domain=hold_out, size=8.0 if alone else 6.0, alpha=1.0 if alone else 0.55,
        hover=tuple(f"{row.label}: {metric.shown(score(run))}\n{hold_out} held out, seed {run.seed}" for run in runs),
    )  # fmt: skip
    if alone:
        return [dots]
    mean, std = row.cells[hold_out].mean, row.cells[hold_out].std
    hover = f"{row.label}: {metric.shown(mean)} ± {metric.shown(std or 0.0)}\n{hold_out} held out, {len(values)} seeds"
    stroke = Marks(
        name=row.label, x=(float(scaled([mean], metric)[0]),), y=(y,), colour=colour, form="strokes", domain=hold_out,
        hover=(hover,), legend=False,
    )  # fmt: skip
    return [dots, stroke]
