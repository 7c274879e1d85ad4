"""How sure a method is on held-out rows against how often it is right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gated_domains.data.errors import listing
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel, Rule
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures.predicted import Predicted, all_predictions
from gated_domains.reports.figures.runs import count_runs, drawn_methods, methods_said, some_runs
from gated_domains.reports.summary import Numbers
from gated_domains.runs.collection import RunCollection

BINS = 10
_MOST_READ = 60
_MOST_NAMED = 4


@dataclass(frozen=True)
class Bin:
    """Rows of about one confidence in the class said: how many, how sure on average, how often right."""

    rows: int
    confidence: float
    right: float


def bins(predicted: list[Predicted]) -> list[Bin]:
    """The bins of equal width that have rows, over all runs together."""
    confidence = np.concatenate([output.max(axis=1) for output, _ in predicted]).astype(np.float64)
    right = np.concatenate([output.argmax(axis=1) == targets for output, targets in predicted])
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return [
        Bin(int(mine.sum()), float(confidence[mine].mean()), float(right[mine].mean()))
        for mine in (place == number for number in range(BINS))
        if mine.any()
    ]


def expected_error(found: list[Bin]) -> float:
    """|right - confidence|, the mean over bins, weighted by their rows."""
    rows = sum(mine.rows for mine in found)
    return sum(mine.rows * abs(mine.right - mine.confidence) for mine in found) / rows


def chart(numbers: Numbers, gathered: RunCollection, palette: Palette) -> Chart | None:
    """A line a method, over the rows of its runs together; None where no classes are predicted."""
    if numbers.metric.of != "classes":
        return None
    read = {label: all_predictions(gathered, runs) for label, runs in some_runs(numbers, gathered, _MOST_READ).items()}
    found = {label: mine for label, predicted in read.items() if predicted and (mine := bins(predicted))}
    if not found:
        return None
    marks = [mark for label, mine in found.items() for mark in _marks(label, mine, palette)]
    panel = Panel(
        x=Axis(label="confidence in the class said, in percent", low=0.0, high=100.0),
        y=Axis(label="how often it is right, in percent", low=0.0, high=100.0),
        marks=tuple(marks),
        rules=(Rule(along="diagonal"),),
    )
    count, there = sum(map(len, read.values())), count_runs(numbers.rows)
    errors = [f"{label} {100 * expected_error(mine):.1f}" for label, mine in found.items()]
    some = f" Drawn from {count} of {there:,} runs, evenly over methods and hold-outs." * (count < there)
    left_out = methods_said(numbers, drawn_methods(numbers), len(numbers.rows))
    return Chart(
        key="reliability",
        title="Reliability on held-out rows",
        caption=(
            "Below the diagonal a method is surer than it has a right to be. Expected calibration error in points, "
            f"over {BINS} bins of the rows of all runs together: {listing(errors, _MOST_NAMED)}.{some} {left_out}"
        ).strip(),
        runs=count,
        panels=(panel,),
        height=420,
    )


def _marks(label: str, found: list[Bin], palette: Palette) -> tuple[Marks, Marks]:
    x = tuple(100 * mine.confidence for mine in found)
    y = tuple(100 * mine.right for mine in found)
    error = 100 * expected_error(found)
    hover = tuple(
        f"{label}: right in {100 * mine.right:.1f} % where {100 * mine.confidence:.1f} % sure\n"
        f"{mine.rows:,} rows; expected calibration error {error:.1f} points"
        for mine in found
    )
    dots = Marks(
        name=label, x=x, y=y, colour=palette.method(label), marker=palette.marker(label), size=8.0, hover=hover
    )
    return replace(dots, form="line", legend=False), dots
