"""The pictures of a comparison, one module each, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable

from gated_domains.reports.charts.chart import Chart
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures import (
    confusion,
    cost,
    curves,
    differences,
    in_out,
    reliability,
    scores,
    worst_mean,
)
from gated_domains.reports.summary import Numbers
from gated_domains.runs.collection import RunCollection

__all__ = ["FIGURES", "Figure", "comparison_charts"]

Figure = Callable[[Numbers, RunCollection, Palette], Chart | None]
"""From numbers and run folders to a chart; None where they do not allow it."""

FIGURES: dict[str, Figure] = {
    "scores": scores.chart,
    "differences": differences.chart,
    "worst_mean": worst_mean.chart,
    "in_out": in_out.chart,
    "curves": curves.chart,
    "reliability": reliability.chart,
    "confusion": confusion.chart,
    "cost": cost.chart,
}


def comparison_charts(numbers: Numbers, gathered: RunCollection, palette: Palette) -> dict[str, Chart]:
    """All that the runs allow, by name."""
    made = {name: figure(numbers, gathered, palette) for name, figure in FIGURES.items()}
    return {name: chart for name, chart in made.items() if chart is not None}
