"""The axes of panels as plotly's layout has them: names, ends and scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gated_domains.reports.charts.chart import Axis, Direction, Panel
from gated_domains.reports.charts.traces import LONGEST_NAME, escaped
from gated_domains.reports.terminal_table import shortened

Layout = dict[str, Any]

ROOM = 0.5  # of a category, at both ends of an axis
_FEW_WHOLE = 8
_PADDING = 0.06  # of what an axis goes over
_CLEAR = "rgba(0,0,0,0)"


def names_of(panel: Panel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The categories of both axes; those of a heat-map are its columns and rows."""
    if panel.heat is not None:
        return panel.heat.columns, panel.heat.rows
    return panel.x.categories, panel.y.categories


def bold_of(panel: Panel) -> tuple[str, ...]:
    """The names that are marked."""
    return () if panel.heat is None else panel.heat.bold_rows


def is_whole(panel: Panel) -> bool:
    """Whether lines go over whole numbers, such as epochs, which no number between them is written for."""
    lines = any(marks.form == "line" for marks in panel.marks)
    return lines and all(place.is_integer() for marks in panel.marks for place in marks.x)


def tick_texts(names: Sequence[str], bold: Sequence[str] = (), *, longest: int = LONGEST_NAME) -> list[str]:
    """Names as they are written beside an axis."""
    short = [escaped(name) for name in shortened(names, longest)]
    return [f"<b>{text}</b>" if name in bold else text for name, text in zip(names, short, strict=True)]


def plotly_axes(panel: Panel) -> tuple[Layout, Layout]:
    """The axis below a panel and the one at its left."""
    columns, rows = names_of(panel)
    across = _axis(panel, "x", columns)
    upright = _axis(panel, "y", rows, bold=bold_of(panel))
    if is_whole(panel) and not columns and not panel.x.log:
        low, high = reach(panel, "x")
        across |= {"dtick": 1} if high - low <= _FEW_WHOLE else {}
    if panel.heat is not None:
        for axis in (across, upright):
            axis |= {"fixedrange": True, "showgrid": False}
    return across, upright


def _axis(panel: Panel, along: Direction, names: Sequence[str], *, bold: Sequence[str] = ()) -> Layout:
    axis: Axis = getattr(panel, along)
    made: Layout = {
        "automargin": True, "zeroline": False, "exponentformat": "power", "minexponent": 5,
        "title": {"text": escaped(axis.label), "standoff": 8},
        # Ticks that nobody sees keep the numbers off what is drawn.
        "ticks": "outside", "ticklen": 4, "tickcolor": _CLEAR,
    }  # fmt: skip
    if axis.hidden:
        made |= {"showticklabels": False, "showgrid": False}
    elif names:
        made |= {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": tick_texts(names, bold)}
        made["showgrid"] = along == "y"
    if names:
        ends = [-ROOM, len(names) - 1 + ROOM]
        made["range"] = ends[::-1] if along == "y" else ends
        return made
    if axis.log:
        made["type"] = "log"
    if axis.low is not None or axis.high is not None:
        made["range"] = _ends(panel, along)
    return made


def _ends(panel: Panel, along: Direction) -> list[float]:
    """Of an axis that is told one or both; the other has all values, and some room."""
    axis: Axis = getattr(panel, along)
    low, high = (on_scale(axis, end) for end in reach(panel, along))
    room = _PADDING * (high - low)
    return [low if axis.low is not None else low - room, high if axis.high is not None else high + room]


def on_scale(axis: Axis, value: float) -> float:
    """A value as plotly places it: on an axis that counts in powers, its logarithm."""
    return math.log10(max(value, 1e-300)) if axis.log else value


def reach(panel: Panel, along: Direction) -> tuple[float, float]:
    """The ends of an axis: those that it is told, else of all values and intervals."""
    axis: Axis = getattr(panel, along)
    values = [value for marks in panel.marks for value in getattr(marks, along)]
    for marks in panel.marks:
        if marks.interval == along:
            values += [*(marks.low or ()), *(marks.high or ())]
    there = [value for value in values if math.isfinite(value) and not (axis.log and value <= 0)] or [1.0]
    low = axis.low if axis.low is not None and not (axis.log and axis.low <= 0) else min(there)
    return low, max(there) if axis.high is None else axis.high


def number_letters(panel: Panel) -> int:
    """How many letters the numbers at the left of a panel have, about."""
    low, high = reach(panel, "y")
    # Some four steps from end to end; their numbers differ in the place of the first digit of a step.
    step = (high - low) / 4
    decimals = max(0, -math.floor(math.log10(step))) if step > 0 else 2
    return len(f"{max(abs(low), abs(high)):.{min(decimals, 6)}f}") + 1


def diagonal_ends(panel: Panel) -> tuple[float, float]:
    """The part of the diagonal that both axes go over, or where they share little of it, that either does."""
    (x_low, x_high), (y_low, y_high) = reach(panel, "x"), reach(panel, "y")
    shared = max(x_low, y_low), min(x_high, y_high)
    if shared[1] - shared[0] >= 0.5 * min(x_high - x_low, y_high - y_low):
        return shared
    return min(x_low, y_low), max(x_high, y_high)
