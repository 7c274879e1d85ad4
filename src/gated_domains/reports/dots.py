"""What pictures of scores share: colours, a row of dots, an axis without clutter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gated_domains.evaluation.metrics import Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which people with any colour vision tell apart; past the last, the marker changes too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
MARKERS = ("o", "s", "^", "D")
QUIET, GRID, BAND = "#6b7280", "#e5e7eb", "#f3f4f6"


def dots(axis: Axes, scores: Sequence[float], y: float, *, colour: str, metric: Metric, marker: str = "o") -> None:
    """The scores of one method at one height: dots, and a stroke at the mean of several."""
    if not scores:
        return
    values = scaled(scores, metric)
    alone = len(values) == 1
    axis.scatter(
        values,
        [y] * len(values),
        s=26 if alone else 15,
        color=colour,
        marker=marker,
        alpha=1.0 if alone else 0.55,
        linewidth=0,
        zorder=3,
    )
    if not alone:
        axis.plot([values.mean()], [y], marker="|", markersize=9, markeredgewidth=2, color=colour, zorder=4)


def clean(axis: Axes) -> None:
    """No frame, quiet numbers, lines behind what is drawn."""
    axis.spines[:].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", colors=QUIET, labelsize=9)
    axis.grid(axis="x", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)


def reach(scores: Sequence[float], metric: Metric) -> tuple[float, float]:
    """The ends of an axis: all values, with some room, however near to each other they are."""
    values = scaled(scores, metric)
    low, high = float(values.min()), float(values.max())
    room = max(0.06 * (high - low), 0.01 * abs(high), 1e-9)
    return low - room, high + room


def scaled(scores: Sequence[float], metric: Metric) -> np.ndarray:
    """Scores as they are drawn: shares in percent."""
    return np.array(scores) * (100.0 if metric.percent else 1.0)


def axis_label(metric: Metric) -> str:
    """What stands below an axis of scores."""
    return metric.label + (" in percent" if metric.percent else "")


def plain(text: str) -> str:
    """A text as matplotlib shows it letter by letter: no formula between $ signs."""
    return text.replace("$", r"\$")
