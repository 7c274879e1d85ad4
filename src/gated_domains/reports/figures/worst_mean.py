"""The worst held-out domain against the mean over all: what an average may hide."""

from __future__ import annotations

from dataclasses import replace

from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures.runs import counted, drawn, drawn_methods, headed, methods_said
from gated_domains.reports.summary import MethodNumbers, Numbers
from gated_domains.runs.collection import RunCollection


def chart(numbers: Numbers, gathered: RunCollection, palette: Palette) -> Chart | None:
    """A dot a seed that has all hold-outs, a large one the mean; None where there is but one held-out domain."""
    rows = [row for row in numbers.rows if row.mean is not None and row.worst is not None]
    domains = {domain for row in numbers.rows for _, domain, _ in row.scores}
    if not rows or len(domains) < 2:
        return None
    shown = drawn_methods(numbers, rows)
    unit = " in percent" * numbers.metric.percent
    panel = Panel(
        x=Axis(label=f"mean over held-out domains{unit}"),
        y=Axis(label=f"worst held-out domain{unit}"),
        marks=tuple(marks for row in shown for marks in _marks(numbers, row, palette)),
    )
    return Chart(
        key="worst_mean",
        title=headed(f"{numbers.metric.label}: worst held-out domain against the mean"),
        caption=f"{_caption(numbers, rows)} {methods_said(numbers, shown, len(rows))}".strip(),
        runs=sum(run.seed in row.mean_by_seed for row in shown for run in row.runs),
        panels=(panel,),
    )


def _marks(numbers: Numbers, row: MethodNumbers, palette: Palette) -> list[Marks]:
    metric, label = numbers.metric, row.label
    assert row.mean is not None  # others are not drawn
    assert row.worst is not None
    seeds = list(row.mean_by_seed)
    mean = Marks(
        name=label,
        x=(drawn(row.mean.mean, metric),),
        y=(drawn(row.worst.mean, metric),),
        colour=palette.method(label),
        marker=palette.marker(label),
        size=13.0,
        hover=(_said(numbers, f"{label}, {counted(len(seeds), 'seed')}", row.mean.mean, row.worst.mean),),
    )
    if len(seeds) == 1:
        return [mean]
    each = replace(
        mean,
        x=tuple(drawn(row.mean_by_seed[seed], metric) for seed in seeds),
        y=tuple(drawn(row.worst_by_seed[seed], metric) for seed in seeds),
        hover=tuple(
            _said(numbers, f"{label}, seed {seed}", row.mean_by_seed[seed], row.worst_by_seed[seed]) for seed in seeds
        ),
        size=6.0,
        alpha=0.55,
        legend=False,
    )
    return [each, mean]


def _said(numbers: Numbers, who: str, mean: float, worst: float) -> str:
    return f"{who}\nmean {numbers.metric.shown(mean)}\nworst {numbers.metric.shown(worst)}"


def _caption(numbers: Numbers, rows: list[MethodNumbers]) -> str:
    metric = numbers.metric
    best, firmest = (metric.best_of(getattr(row, name).mean for row in rows) for name in ("mean", "worst"))
    top = next(row for row in rows if row.mean is not None and row.mean.mean == best)
    safe = next(row for row in rows if row.worst is not None and row.worst.mean == firmest)
    both = f"{top.label} has the best mean, {metric.shown(best)}, and " + (
        "the best worst domain" if top is safe else f"{safe.label} the best worst domain"
    )
    said = f"{both}, {metric.shown(firmest)}." if len(rows) > 1 else ""
    corner = "Up and to the right" if metric.higher_is_better else "Down and to the left"
    return " ".join(filter(None, [f"A small dot is a seed, a large one their mean. {corner} is better.", said]))
