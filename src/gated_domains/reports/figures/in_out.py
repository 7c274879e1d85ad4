"""What a run scores on its sources against what it scores on the held-out domain."""

from __future__ import annotations

from gated_domains.data.errors import listing
from gated_domains.evaluation.statistics import spread
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel, Rule
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures.runs import cells, drawn, drawn_methods, drawn_score, headed, methods_said, score
from gated_domains.reports.summary import Numbers
from gated_domains.runs.collection import RunCollection
from gated_domains.runs.result import RunResult

_MOST_NAMED = 4


def chart(numbers: Numbers, gathered: RunCollection, palette: Palette) -> Chart | None:
    """A dot a run; on the diagonal, nothing is lost. None where validation rows were not scored."""
    metric = numbers.metric
    marks, gaps, count = [], {}, 0
    rows = drawn_methods(numbers)
    for row in rows:
        lost = []
        for hold_out, runs in cells(numbers, row):
            if known := [run for run in runs if run.validation_overall is not None]:
                marks.append(_marks(numbers, row.label, palette, hold_out, known))
                lost += [metric.as_gain(run.validation_overall or 0.0) - metric.as_gain(score(run)) for run in known]
        if lost:
            gaps[row.label], count = spread(lost).mean, count + len(lost)
    if not marks:
        return None
    unit = " in percent" * metric.percent
    panel = Panel(
        x=Axis(label=f"{metric.label} on validation rows of the sources{unit}"),
        y=Axis(label=f"on the held-out domain{unit}"),
        marks=tuple(marks),
        rules=(Rule(along="diagonal"),),
    )
    said = listing([f"{label} {metric.shown(gap)}{metric.unit}" for label, gap in gaps.items()], _MOST_NAMED)
    left_out = methods_said(numbers, rows, len(numbers.rows))
    return Chart(
        key="in_out",
        title=headed(f"{metric.label} on the sources against the held-out domain"),
        caption=f"A dot is a run; on the diagonal nothing is lost. Lost on average: {said}. {left_out}".strip(),
        runs=count,
        panels=(panel,),
        height=420,
    )


def _marks(numbers: Numbers, label: str, palette: Palette, hold_out: str | None, runs: list[RunResult]) -> Marks:
    metric = numbers.metric
    return Marks(
        name=label,
        x=tuple(drawn(run.validation_overall or 0.0, metric) for run in runs),
        y=tuple(drawn_score(run, metric) for run in runs),
        colour=palette.method(label),
        marker=palette.marker(label),
        size=8.0,
        alpha=0.8,
        domain=hold_out,
        hover=tuple(
            f"{label}\n{run.hold_out} held out, seed {run.seed}\n"
            f"sources {metric.shown(run.validation_overall or 0.0)}, held out {metric.shown(score(run))}"
            for run in runs
        ),
    )
