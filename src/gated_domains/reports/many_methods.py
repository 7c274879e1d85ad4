"""A picture of many methods: a line each, a panel a held-out domain, the baseline as a line to hold them against."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gated_domains.reports.dots import BAND, COLOURS, GRID, QUIET, axis_label, clean, dots, plain, reach, scaled
from gated_domains.reports.summary import MethodNumbers, Numbers
from gated_domains.reports.terminal_table import first_column, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 12
_IN_A_ROW = 6
_LONGEST_METHOD, _LONGEST_TITLE = 28, 16
_BLIND, _TOLD, _BASELINE = COLOURS[0], COLOURS[1], COLOURS[6]


def many_methods(numbers: Numbers) -> Figure:
    """Methods down, their means and then the hold-outs across, in several rows where there are more than five."""
    from matplotlib.figure import Figure

    panels: list[str | None] = [None, *numbers.hold_outs]  # None: the mean over all
    across = min(_IN_A_ROW, len(panels))
    down = math.ceil(len(panels) / across)
    size = (2.3 + 1.8 * across, down * (0.24 * len(numbers.rows) + 0.75) + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    titles = iter(shortened(numbers.hold_outs, _LONGEST_TITLE))
    for place, axis in enumerate(grid.flat):
        if place >= len(panels):
            axis.remove()
            continue
        hold_out = panels[place]
        _panel(axis, numbers, hold_out, named=place % across == 0)
        title = "mean" if hold_out is None else next(titles)
        axis.set_title(plain(title), loc="left", fontsize=10, fontweight="bold" if hold_out is None else "normal")
    figure.supxlabel(plain(_explained(numbers)), x=0.01, ha="left", fontsize=8, color=QUIET)
    return figure


def _panel(axis: Axes, numbers: Numbers, hold_out: str | None, *, named: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    metric, base = numbers.metric, numbers.baseline
    found = [_scores(row, hold_out) for row in numbers.rows]
    for place, (row, scores) in enumerate(zip(numbers.rows, found, strict=True)):
        colour = _BASELINE if row is base else _TOLD if row.uses_domains else _BLIND
        dots(axis, scores, float(place), colour=colour, metric=metric)
    if base is not None and (theirs := _scores(base, hold_out)):
        axis.axvline(scaled(theirs, metric).mean(), color=_BASELINE, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
    if any(found):
        axis.set_xlim(*reach([score for scores in found for score in scores], metric))
    clean(axis)
    axis.grid(axis="y", color=GRID, linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    axis.set_ylim(len(numbers.rows) - 0.4, -0.6)
    labels = [plain(name) for name in shortened(first_column(numbers).cells, _LONGEST_METHOD)] if named else []
    axis.set_yticks(range(len(numbers.rows)), labels or [""] * len(numbers.rows), fontsize=9)
    if hold_out is None:
        axis.set_facecolor(BAND)


def _scores(row: MethodNumbers, hold_out: str | None) -> list[float]:
    """A score a seed: of a hold-out, or the mean over all of them."""
    if hold_out is None:
        return list(row.mean_by_seed.values())
    return [sum(run.test.values()) / len(run.test) for run in row.runs if run.hold_out == hold_out]


def _explained(numbers: Numbers) -> str:
    several = any(len(row.runs) > len(row.cells) for row in numbers.rows)
    told = any(row.uses_domains for row in numbers.rows)
    parts = [
        f"{axis_label(numbers.metric)} on held-out domains, each panel on a scale of its own",
        *(["a dot is a seed, a stroke their mean"] if several else []),
        *([f"dashed: {numbers.baseline.label}"] if numbers.baseline is not None else []),
        *(["orange, †: told the domains in training"] if told else []),
    ]
    return "; ".join(parts)
