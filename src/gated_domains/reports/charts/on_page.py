"""A chart as plotly's figure, plain data for a page that brings its own colours of text and grid."""

from __future__ import annotations

import math
from typing import Any

from gated_domains.reports.charts.axes import (
    Layout,
    bold_of,
    diagonal_ends,
    names_of,
    number_letters,
    on_scale,
    plotly_axes,
    tick_texts,
)
from gated_domains.reports.charts.chart import Chart, Panel, Rule
from gated_domains.reports.charts.traces import LONGEST_NAME, escaped, legend_traces, panel_traces
from gated_domains.reports.terminal_table import shortened

_RULE = "#7f7f7f"  # is seen on a light page and on a dark one
_WIDTH = 860  # pixels that the gaps between panels are reckoned for
_LETTER = 6.6  # pixels
_TITLE, _TICKS, _LABEL, _GAP, _LEGEND = 26, 22, 22, 18, 44  # pixels
_CLEAR = "rgba(0,0,0,0)"
_SHORT_NAME = 14


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """``data`` and ``layout`` of the figure, and ``narrow``: what ``Plotly.relayout`` is given on a small screen.

    There panels stand below each other. Every trace has ``meta``: the domain that it is filtered by (None: always
    shown) and, where its points have pictures, their ``tiles``.
    """
    legend = legend_traces(chart.panels)
    data = [trace for place, panel in enumerate(chart.panels) for trace in panel_traces(panel, _axes(place))]
    wide, narrow = _Places(chart, chart.columns), _Places(chart, 1, _SHORT_NAME)
    layout: Layout = {
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "font": {"size": 12},
        "margin": {"l": 8, "r": 12, "t": _TITLE if any(panel.title for panel in chart.panels) else 10, "b": 8},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "dragmode": False if any(panel.heat for panel in chart.panels) else "zoom",
        "barmode": "overlay",
        "showlegend": len(legend) > 1,
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom", "yref": "container",
            "bgcolor": _CLEAR, "itemsizing": "constant", "xref": "container",
        },
        "shapes": [_shape(rule, panel, place) for place, panel in enumerate(chart.panels) for rule in panel.rules],
        "annotations": wide.annotations(),
        "height": wide.height(legend=len(legend)),
    }  # fmt: skip
    for place, panel in enumerate(chart.panels):
        layout |= _axis_pair(panel, place, square=chart.square)
    layout = _merged(layout, wide.axes())
    return {
        "data": [*legend, *data],
        "layout": layout,
        "narrow": {
            **narrow.axes(),
            "annotations": narrow.annotations(),
            # The legend breaks into more lines there.
            "height": narrow.height(legend=2 * len(legend)),
        },
    }


def _axes(place: int) -> tuple[str, str]:
    suffix = "" if place == 0 else str(place + 1)
    return f"x{suffix}", f"y{suffix}"


def _keys(place: int) -> tuple[str, str]:
    x, y = _axes(place)
    return f"xaxis{x[1:]}", f"yaxis{y[1:]}"


def _merged(layout: Layout, dotted: Layout) -> Layout:
    """A layout with keys such as ``xaxis2.domain`` put into it."""
    for key, value in dotted.items():
        axis, name = key.split(".")
        layout[axis][name] = value
    return layout


class _Places:
    """Where the panels of a chart stand in so many columns, with names of at most so many letters beside them."""

    def __init__(self, chart: Chart, columns: int, longest: int = LONGEST_NAME) -> None:
        self.panels, self.chart, self.longest = chart.panels, chart, longest
        self.columns = max(1, min(columns, len(chart.panels)))
        self.rows = max(1, math.ceil(len(self.panels) / self.columns))

    def height(self, *, legend: int) -> int:
        """In pixels; ``legend``: how many names it has."""
        lines = 0 if legend <= 1 else 1 + legend // 8
        return self.rows * self.chart.height + (_LEGEND + 20 * (lines - 1) if lines else 0)

    def axes(self) -> Layout:
        """Keys for ``relayout``: the part of the figure that each panel takes, and which names are written."""
        found: Layout = {}
        for place in range(len(self.panels)):
            x, y = _keys(place)
            found[f"{x}.domain"] = self._across(place)
            found[f"{y}.domain"] = self._down(place)
            panel = self.panels[place]
            found[f"{y}.showticklabels"] = not (panel.y.hidden or self._as_before(place))
            if self.longest < LONGEST_NAME and (names := names_of(panel)[1]) and not panel.y.hidden:
                found[f"{y}.ticktext"] = tick_texts(names, bold_of(panel), longest=self.longest)
        return found

    def annotations(self) -> list[Layout]:
        """Titles of panels, at their upper left, and what rules say."""
        titles = [
            {
                "text": f"<b>{escaped(panel.title)}</b>", "xref": "paper", "yref": "paper", "showarrow": False,
                "x": self._across(place)[0], "y": self._down(place)[1], "xanchor": "left", "yanchor": "bottom",
            }
            for place, panel in enumerate(self.panels)
            if panel.title
        ]  # fmt: skip
        labels = [_label(rule, place, panel) for place, panel in enumerate(self.panels) for rule in panel.rules]
        return [*titles, *(label for label in labels if label is not None)]

    def _as_before(self, place: int) -> bool:
        """Whether the panel at the left has the same names, which need not be written again."""
        if place % self.columns == 0:
            return False
        names, before = names_of(self.panels[place])[1], names_of(self.panels[place - 1])[1]
        return bool(names) and names == before

    def _across(self, place: int) -> list[float]:
        """Columns have the shares of the first row, and room at their left for what any row has there."""
        shares = [panel.share for panel in self.panels[: self.columns]]
        gaps = [max(map(self._left_of, range(column, len(self.panels), self.columns))) / _WIDTH for column in
                range(1, self.columns)]  # fmt: skip
        room = max(1 - sum(gaps), 0.1) / sum(shares)
        column = place % self.columns
        start = sum(gaps[:column]) + room * sum(shares[:column])
        return [round(start, 4), round(min(start + room * shares[column], 1.0), 4)]

    def _left_of(self, place: int) -> float:
        """Pixels that a panel needs at its left for what is written there."""
        panel = self.panels[place]
        names = names_of(panel)[1]
        letters = max(map(len, shortened(names, LONGEST_NAME))) if names else number_letters(panel)
        ticks = 0.0 if self._as_before(place) or panel.y.hidden else _LETTER * letters
        return _GAP + ticks + (_LABEL if panel.y.label else 0)

    def _down(self, place: int) -> list[float]:
        gap = self._gap_below() / (self.rows * self.chart.height)
        height = (1 - gap * (self.rows - 1)) / self.rows
        top = 1 - (place // self.columns) * (height + gap)
        return [round(max(top - height, 0.0), 4), round(top, 4)]

    def _gap_below(self) -> float:
        """Pixels between rows of panels: ticks, labels, and the titles of the next."""
        gap = float(_GAP)
        if any(not panel.x.hidden for panel in self.panels):
            gap += max(_TICKS if not _is_long(panel) else 0.7 * _LETTER * LONGEST_NAME for panel in self.panels)
        gap += _LABEL * any(panel.x.label for panel in self.panels)
        return gap + _TITLE * any(panel.title for panel in self.panels)


def _is_long(panel: Panel) -> bool:
    """Whether the names below a panel stand aslant."""
    names = names_of(panel)[0]
    return sum(map(len, shortened(names, LONGEST_NAME))) * _LETTER > 0.4 * _WIDTH


def _axis_pair(panel: Panel, place: int, *, square: bool) -> Layout:
    (x, y), (x_key, y_key) = _axes(place), _keys(place)
    across, upright = plotly_axes(panel)
    if square and panel.heat is None:
        upright |= {"scaleanchor": x, "scaleratio": 1, "constrain": "domain"}
        across |= {"constrain": "domain"}
    return {x_key: {**across, "anchor": y}, y_key: {**upright, "anchor": x}}


def _shape(rule: Rule, panel: Panel, place: int) -> Layout:
    x, y = _axes(place)
    shape: Layout = {"type": "line", "layer": "below", "line": {"color": _RULE, "width": 1, "dash": "dot"}}
    if rule.along == "x":
        return shape | {"xref": f"{x} domain", "yref": y, "x0": 0, "x1": 1, "y0": rule.at, "y1": rule.at}
    if rule.along == "y":
        return shape | {"xref": x, "yref": f"{y} domain", "x0": rule.at, "x1": rule.at, "y0": 0, "y1": 1}
    low, high = diagonal_ends(panel)
    return shape | {"xref": x, "yref": y, "x0": low, "y0": low, "x1": high, "y1": high}


def _label(rule: Rule, place: int, panel: Panel) -> Layout | None:
    if not rule.label:
        return None
    x, y = _axes(place)
    text: Layout = {"text": escaped(rule.label), "showarrow": False, "font": {"size": 11, "color": _RULE}}
    if rule.along == "x":
        at = on_scale(panel.y, rule.at)
        return text | {"xref": f"{x} domain", "x": 1, "xanchor": "right", "yref": y, "y": at, "yanchor": "bottom"}
    if rule.along == "y":
        at = on_scale(panel.x, rule.at)
        return text | {"xref": x, "x": at, "xanchor": "left", "yref": f"{y} domain", "y": 1, "yanchor": "top"}
    ends = [on_scale(axis, diagonal_ends(panel)[1]) for axis in (panel.x, panel.y)]
    return text | {"xref": x, "x": ends[0], "xanchor": "right", "yref": y, "y": ends[1], "yanchor": "bottom"}
