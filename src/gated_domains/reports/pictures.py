"""A picture of a comparison: every seed a dot, by held-out domain."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gated_domains.data.pictures import picture_path, write_figure
from gated_domains.reports.dots import BAND, COLOURS, MARKERS, QUIET, axis_label, clean, dots, plain, reach
from gated_domains.reports.gates_picture import draw_gates, gates_figure
from gated_domains.reports.many_methods import MOST_PANELS, many_methods
from gated_domains.reports.numbers import Numbers
from gated_domains.reports.table import Comparison
from gated_domains.reports.terminal import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["comparison_figure", "draw_comparison", "draw_gates", "gates_figure"]

_MOST_LINES = 90  # of dots below each other, in one panel
_MOST_PANELS = 4
_LONGEST_NAME = 24


def draw_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Scores by held-out domain, a colour a method, every seed a dot, the mean a stroke; the means at the right."""
    path = picture_path(path)
    return write_figure(comparison_figure(comparison), path)


def comparison_figure(comparison: Comparison) -> Figure:
    """The figure behind ``draw_comparison``: a colour a method in bands of hold-outs; of many methods, a line each."""
    numbers = comparison.numbers
    many = len(numbers.rows) > len(COLOURS) and len(numbers.hold_outs) <= MOST_PANELS
    figure = many_methods(numbers) if many else _banded(numbers)
    figure.suptitle(plain(shortened([comparison.title], 90)[0]), x=0.01, ha="left", fontsize=12)
    return figure


def _banded(numbers: Numbers) -> Figure:
    from matplotlib.figure import Figure

    methods, hold_outs = len(numbers.rows), len(numbers.hold_outs)
    panels = min(_MOST_PANELS, math.ceil(hold_outs * (methods + 1) / _MOST_LINES))
    size = math.ceil(hold_outs / panels)
    band = max(0.34, 0.13 * (methods + 1))  # inches that a hold-out takes
    height = max(size * band, 0.26 * methods) + 1.5
    figure = Figure(figsize=(4.4 * panels + 4.2, height), layout="constrained")
    # The means take as much of the height as they need: their axis stands right below them.
    share = min(1.0, (0.3 * methods + 0.6) / (height - 0.9))
    grid = figure.add_gridspec(
        2, panels + 1, width_ratios=[1.0] * panels + [0.75], height_ratios=[share, max(1 - share, 1e-6)]
    )
    low, high = reach([score for row in numbers.rows for score in row.scores.values()], numbers.metric)
    for place in range(panels):
        axis = figure.add_subplot(grid[:, place])
        _hold_out_panel(axis, numbers, numbers.hold_outs[place * size : (place + 1) * size], size)
        axis.set_xlim(low, high)
        axis.set_title("by held-out domain" if place == 0 else "", loc="left", fontsize=10)
    _mean_panel(figure.add_subplot(grid[0, -1] if share < 0.8 else grid[:, -1]), numbers)
    if any(len(row.runs) > len(row.cells) for row in numbers.rows):
        figure.supxlabel("a dot is a seed, a stroke their mean", x=0.01, ha="left", fontsize=8, color=QUIET)
    return figure


def _hold_out_panel(axis: Axes, numbers: Numbers, names: Sequence[str], size: int) -> None:
    """A band a hold-out, in it a line a method."""
    methods = len(numbers.rows)
    step = 1 / (methods + 1)
    for place, name in enumerate(names):
        if place % 2 == 0:
            axis.axhspan(place - 0.5, place + 0.5, color=BAND, linewidth=0, zorder=0)
        for number, row in enumerate(numbers.rows):
            scores = [sum(run.test.values()) / len(run.test) for run in row.runs if run.hold_out == name]
            _dots(axis, scores, place + (number - (methods - 1) / 2) * step, number, numbers)
    axis.set_yticks(range(len(names)), [plain(name) for name in shortened(names, _LONGEST_NAME)], fontsize=9)
    axis.set_ylim(size - 0.5, -0.5)
    clean(axis)
    axis.set_xlabel(axis_label(numbers.metric), fontsize=9)


def _mean_panel(axis: Axes, numbers: Numbers) -> None:
    """A line a method: the mean over all held-out domains, every complete seed a dot. Names the colours."""
    means = [list(row.mean_by_seed.values()) for row in numbers.rows]
    for number, values in enumerate(means):
        _dots(axis, values, float(number), number, numbers)
    labels = [row.label for row in numbers.rows]
    axis.yaxis.tick_right()
    axis.set_yticks(range(len(labels)), [plain(name) for name in shortened(labels, _LONGEST_NAME)], fontsize=9)
    for number, text in enumerate(axis.get_yticklabels()):
        text.set_color(COLOURS[number % len(COLOURS)])
        text.set_fontweight("bold")
    axis.set_ylim(len(labels) - 0.4, -0.6)
    if any(means):
        axis.set_xlim(*reach([value for values in means for value in values], numbers.metric))
    axis.set_title("mean over held-out domains", loc="left", fontsize=10)
    clean(axis)
    axis.set_xlabel(axis_label(numbers.metric), fontsize=9)


def _dots(axis: Axes, scores: list[float], y: float, number: int, numbers: Numbers) -> None:
    """The scores of the method of this number."""
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number // len(COLOURS) % len(MARKERS)]
    dots(axis, scores, y, colour=colour, metric=numbers.metric, marker=marker)
