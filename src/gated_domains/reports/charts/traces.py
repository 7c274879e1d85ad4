"""Marks and heat-maps as plotly's traces: plain dicts, every text of theirs shown letter by letter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from gated_domains.evaluation.metrics import significant
from gated_domains.reports.charts.chart import Axis, Heat, Marks, Panel
from gated_domains.reports.terminal_table import shortened

Trace = dict[str, Any]

MOST_ANNOTATED = 400
"""Cells of a heat-map that have their number written in them."""
SEQUENTIAL = ("#f7fbff", "#deebf7", "#9ecae1", "#4292c6", "#08519c")
DIVERGING = ("#b2182b", "#ef8a62", "#fddbc7", "#f7f7f7", "#d1e5f0", "#67a9cf", "#2166ac")
LONGEST_NAME = 24
_LONGEST_LEGEND = 40
_MANY = 2_000  # points in a panel past which the graphics card draws them
_BAND = 0.16
_SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross", "X": "x",
    "*": "star", "<": "triangle-left", ">": "triangle-right", "p": "pentagon", "h": "hexagon", "d": "diamond-tall",
}  # fmt: skip


def escaped(text: str) -> str:
    """A text that plotly shows letter by letter: it knows some tags, and entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("%{", "%&#123;")


def number(value: float) -> float | None:
    """A value as JSON has it, to seven digits; None for what is no number."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def panel_traces(panel: Panel, axes: tuple[str, str]) -> list[Trace]:
    """All traces of a panel, on the axes of these names (``x2``, ``y2``)."""
    where = {"xaxis": axes[0], "yaxis": axes[1]}
    if panel.heat is not None:
        return [{**_heat(panel.heat), **where, "meta": {"domain": panel.domain}}]
    many = sum(len(marks.x) for marks in panel.marks) > _MANY
    traces = [trace for marks in panel.marks for trace in _traces(marks, panel, many=many)]
    return [{**trace, **where} for trace in traces]


def legend_traces(panels: Sequence[Panel]) -> list[Trace]:
    """A trace without points for every name of the legend, so that it stays when a filter hides a domain."""
    named: dict[str, Marks] = {}
    for panel in panels:
        for marks in panel.marks:
            if marks.legend:
                named.setdefault(marks.name, marks)
    short = shortened(list(named), _LONGEST_LEGEND)
    return [
        {
            **_look(replace(marks, alpha=1.0), Panel()),
            "x": [None],
            "y": [None],
            "name": escaped(name),
            "legendgroup": marks.name,
            "showlegend": True,
            "hoverinfo": "skip",
            "meta": {"domain": None},
        }
        for name, marks in zip(short, named.values(), strict=True)
    ]


def _traces(marks: Marks, panel: Panel, *, many: bool) -> list[Trace]:
    meta: dict[str, Any] = {"domain": marks.domain or panel.domain}
    shared: Trace = {"name": escaped(marks.name), "legendgroup": marks.name, "showlegend": False}
    trace = {
        **_look(marks, panel),
        **shared,
        "x": list(map(number, marks.x)),
        "y": list(map(number, marks.y)),
        "hovertext": [_lines(text) for text in hover_texts(marks, panel)],
        "hoverinfo": "text",
        "meta": meta | ({"tiles": list(marks.tile)} if marks.tile else {}),
    }
    if many and marks.form == "dots":
        trace["type"] = "scattergl"
    if marks.low is None or marks.high is None:
        return [trace]
    if marks.form == "line":
        return [{**_band(marks, marks.low, marks.high), **shared, "meta": meta}, trace]
    middle = marks.x if marks.interval == "x" else marks.y
    trace[f"error_{marks.interval}"] = {
        "type": "data", "symmetric": False, "color": marks.colour, "thickness": 1.6, "width": 0,
        "array": [number(high - value) for high, value in zip(marks.high, middle, strict=True)],
        "arrayminus": [number(value - low) for low, value in zip(marks.low, middle, strict=True)],
    }  # fmt: skip
    return [trace]


def _look(marks: Marks, panel: Panel) -> Trace:
    """The kind of a trace, its colours and sizes."""
    if marks.form == "bars":
        lying = lies(panel)
        marker = {"color": marks.colour, "opacity": marks.alpha, "line": {"width": 0}}
        return {"type": "bar", "orientation": "h" if lying else "v", "width": bar_width(panel), "marker": marker}
    if marks.form == "line":
        return {"type": "scatter", "mode": "lines+markers" if len(marks.x) <= 1 else "lines", "opacity": marks.alpha,
                "line": {"color": marks.colour, "width": 2}, "marker": {"color": marks.colour}}  # fmt: skip
    marker = {"color": marks.colour, "opacity": marks.alpha, "size": marks.size,
              "symbol": _SYMBOLS.get(marks.marker, "circle"), "line": {"width": 0}}  # fmt: skip
    if marks.form == "strokes":
        symbol = "line-ns" if panel.y.categories or not panel.x.categories else "line-ew"
        marker |= {"symbol": symbol, "size": 1.6 * marks.size, "line": {"width": 2.5, "color": marks.colour}}
    return {"type": "scatter", "mode": "markers", "marker": marker}


def _band(marks: Marks, low: Sequence[float], high: Sequence[float]) -> Trace:
    along = marks.y if marks.interval == "x" else marks.x
    whole = [ends for ends in zip(along, low, high, strict=True) if all(map(math.isfinite, ends))]
    places = [number(place) for place, _, _ in (*whole, *reversed(whole))]
    values = [number(top) for _, _, top in whole] + [number(bottom) for _, bottom, _ in reversed(whole)]
    x, y = (values, places) if marks.interval == "x" else (places, values)
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "fill": "toself", "hoverinfo": "skip",
            "fillcolor": faded(marks.colour, _BAND), "line": {"width": 0, "color": marks.colour}}  # fmt: skip


def faded(colour: str, alpha: float) -> str:
    """A colour ``#rrggbb`` that lets through what is behind it."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def lies(panel: Panel) -> bool:
    """Whether bars grow to the right: what they stand for is written down the side."""
    return bool(panel.y.categories) and not panel.x.categories


def bar_width(panel: Panel) -> float:
    """Of every bar of a panel, on its axis: most of what is between two of them."""
    found = (marks.y if lies(panel) else marks.x for marks in panel.marks if marks.form == "bars")
    places = sorted({place for values in found for place in values if math.isfinite(place)})
    return 0.85 * min([1.0, *(after - before for before, after in pairwise(places))])


def hover_texts(marks: Marks, panel: Panel) -> list[str]:
    """What is said of each point: what it says of itself, else its name and place."""
    if marks.hover:
        return list(marks.hover)
    return [
        "\n".join([marks.name, _said(panel.x, x), _said(panel.y, y)]) for x, y in zip(marks.x, marks.y, strict=True)
    ]


def _said(axis: Axis, value: float) -> str:
    if axis.categories and math.isfinite(value):
        return axis.categories[min(max(round(value), 0), len(axis.categories) - 1)]
    return f"{axis.label}: {significant(value)}" if axis.label else significant(value)


def _lines(text: str) -> str:
    return escaped(text).replace("\n", "<br>")


def heat_limits(heat: Heat) -> tuple[float, float]:
    """The values of the first and the last colour."""
    there = [value for row in heat.values for value in row if math.isfinite(value)] or [0.0]
    if heat.signed:
        top = max([abs(value) for value in (*there, heat.low or 0.0, heat.high or 0.0)]) or 1.0
        return -top, top
    low = min(there) if heat.low is None else heat.low
    high = max(there) if heat.high is None else heat.high
    return low, high if high > low else low + 1.0


def is_annotated(heat: Heat) -> bool:
    """Whether the numbers are written in the cells."""
    return len(heat.rows) * len(heat.columns) <= MOST_ANNOTATED


def cell_text(heat: Heat, value: float) -> str:
    """The number in a cell."""
    return f"{value:.{heat.digits}f}" if math.isfinite(value) else ""


def _heat(heat: Heat) -> Trace:
    low, high = heat_limits(heat)
    texts = [[cell_text(heat, value) for value in row] for row in heat.values]
    annotated = is_annotated(heat)
    return {
        "type": "heatmap",
        "x": list(range(len(heat.columns))),
        "y": list(range(len(heat.rows))),
        "z": [list(map(number, row)) for row in heat.values],
        "zmin": low,
        "zmax": high,
        "colorscale": _scale(DIVERGING if heat.signed else SEQUENTIAL),
        "showscale": not annotated,
        "colorbar": {"thickness": 10, "outlinewidth": 0},
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": False,
        "hoverinfo": "text",
        "hovertext": [
            [_lines(f"{row}\n{column}\n{text}") for column, text in zip(heat.columns, line, strict=True)]
            for row, line in zip(heat.rows, texts, strict=True)
        ],
        **({"text": texts, "texttemplate": "%{text}"} if annotated else {}),
    }


def _scale(colours: Iterable[str]) -> list[list[object]]:
    found = list(colours)
    return [[place / (len(found) - 1), colour] for place, colour in enumerate(found)]
