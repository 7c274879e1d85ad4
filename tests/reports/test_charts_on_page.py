"""Plotly's figure holds the numbers of the chart, is whole JSON, and shows every text letter by letter."""

from __future__ import annotations

import html
import json
import math
import re
from typing import Any

import plotly.graph_objects as go
import pytest
from made_charts import HOSTILE, a_chart, dots, everything

from gated_domains.reports.charts import Axis, Chart, Heat, Panel, Rule
from gated_domains.reports.charts.on_page import plotly_figure


def traces(chart: Chart) -> list[dict[str, Any]]:
    """Those with points; the others stand for the legend."""
    return [trace for trace in plotly_figure(chart)["data"] if trace["x"] != [None]]


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for name, inner in value.items() if name not in ("meta", "legendgroup") for text in texts(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


def test_plotly_takes_all_of_it_wide_and_narrow() -> None:
    made = plotly_figure(everything())
    figure = go.Figure(data=made["data"], layout=made["layout"])
    figure.update_layout({name.replace(".", "_"): value for name, value in made["narrow"].items()})
    assert len(figure.data) == len(made["data"])


def test_what_is_no_number_is_null_in_json() -> None:
    made = plotly_figure(everything())
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    stroke = next(trace for trace in made["data"] if trace["meta"].get("tiles"))
    assert stroke["x"] == [None, None]


def test_no_text_is_taken_for_tags_or_a_template() -> None:
    allowed = {"<br>", "<b>", "</b>"}
    for text in texts(plotly_figure(everything())):
        assert set(re.findall(r"<[^>]*>?", text)) <= allowed
        assert "%{" not in text or text == "%{text}"


def test_hostile_names_are_read_as_they_were_written() -> None:
    layout = plotly_figure(everything())["layout"]
    assert html.unescape(layout["xaxis"]["title"]["text"]) == HOSTILE
    titles = [html.unescape(note["text"]) for note in layout["annotations"]]
    assert f"<b>{HOSTILE}</b>" in titles
    assert HOSTILE in [html.unescape(trace["hovertext"][0]) for trace in traces(everything()) if "hovertext" in trace]


def test_points_are_those_of_the_marks_and_know_their_domain() -> None:
    panel = Panel(marks=(dots(domain="mnist", tile=(4, -1)), dots("ERM")), domain="usps")
    first, second = traces(a_chart(panel))
    assert (first["x"], first["y"]) == ([1.0, 2.0], [3.0, 4.0])
    assert first["meta"] == {"domain": "mnist", "tiles": [4, -1]}
    assert second["meta"] == {"domain": "usps"}


def test_one_name_stands_in_the_legend_once_and_belongs_to_no_domain() -> None:
    marks = (dots(domain="a"), dots(domain="b"), dots("ERM", domain="a"), dots("quiet", legend=False))
    made = plotly_figure(a_chart(Panel(marks=marks)))
    shown = [trace for trace in made["data"] if trace["showlegend"]]
    assert [(trace["name"], trace["legendgroup"]) for trace in shown] == [("GDU", "GDU"), ("ERM", "ERM")]
    assert all(trace["meta"]["domain"] is None and trace["x"] == [None] for trace in shown)
    assert sum(trace["legendgroup"] == "GDU" for trace in made["data"]) == 3
    assert made["layout"]["showlegend"]
    assert not plotly_figure(a_chart(Panel(marks=(dots(),))))["layout"]["showlegend"]


def test_an_interval_is_an_error_bar_from_low_to_high() -> None:
    (trace,) = traces(a_chart(Panel(marks=(dots(low=(2.5, 3.0), high=(3.25, 6.0)),))))
    assert trace["error_y"]["arrayminus"] == [0.5, 1.0]
    assert trace["error_y"]["array"] == [0.25, 2.0]
    (trace,) = traces(a_chart(Panel(marks=(dots(low=(0.0, 1.0), high=(2.0, 4.0), interval="x"),))))
    assert trace["error_x"]["array"] == [1.0, 2.0]


def test_the_band_of_a_line_goes_there_on_top_and_back_below() -> None:
    line = dots(form="line", x=(1.0, 2.0, 3.0), y=(5.0, 5.0, 5.0), low=(4.0, math.nan, 3.0), high=(6.0, 9.0, 7.0))
    band, drawn = traces(a_chart(Panel(marks=(line,), domain="a")))
    assert band["x"] == [1.0, 3.0, 3.0, 1.0]
    assert band["y"] == [6.0, 7.0, 3.0, 4.0]
    assert band["fill"] == "toself"
    assert band["hoverinfo"] == "skip"
    assert band["meta"] == drawn["meta"] == {"domain": "a"}
    assert band["legendgroup"] == drawn["legendgroup"]


@pytest.mark.parametrize(("rows", "annotated"), [(20, True), (21, False)])
def test_cells_say_their_number_where_they_are_few(rows: int, annotated: bool) -> None:
    heat = Heat(rows=tuple(map(str, range(rows))), columns=tuple(map(str, range(20))), values=((0.5,) * 20,) * rows)
    (trace,) = traces(a_chart(Panel(heat=heat)))
    assert ("text" in trace) is annotated
    assert trace["showscale"] is not annotated


def test_a_heat_map_is_that_of_the_values_from_the_top_down() -> None:
    heat = Heat(
        rows=("a", "b"), columns=("x", "y"), values=((1.0, math.nan), (-3.0, 2.0)), signed=True, bold_rows=("b",)
    )
    made = plotly_figure(a_chart(Panel(heat=heat)))
    (trace,) = made["data"]
    assert trace["z"] == [[1.0, None], [-3.0, 2.0]]
    assert trace["text"] == [["1.00", ""], ["-3.00", "2.00"]]
    assert (trace["zmin"], trace["zmax"]) == (-3.0, 3.0)
    assert made["layout"]["yaxis"]["ticktext"] == ["a", "<b>b</b>"]
    low, high = made["layout"]["yaxis"]["range"]
    assert low > high  # the first row on top
    assert made["layout"]["xaxis"]["fixedrange"]


def test_categories_are_named_in_order_with_room_at_both_ends() -> None:
    names = ("first", "second", "third" * 20)
    layout = plotly_figure(a_chart(Panel(y=Axis(categories=names), marks=(dots(),))))["layout"]
    assert layout["yaxis"]["tickvals"] == [0, 1, 2]
    assert layout["yaxis"]["ticktext"][:2] == ["first", "second"]
    assert len(layout["yaxis"]["ticktext"][2]) <= 24
    assert layout["yaxis"]["range"] == [2.5, -0.5]


def test_many_points_are_drawn_by_the_graphics_card() -> None:
    few, many = (dots(x=(1.0,) * count, y=(1.0,) * count) for count in (2_000, 2_001))
    assert traces(a_chart(Panel(marks=(few,))))[0]["type"] == "scatter"
    assert traces(a_chart(Panel(marks=(many,))))[0]["type"] == "scattergl"


def test_rules_lie_where_they_are_said_to() -> None:
    rules = (Rule(along="x", at=3.5, label="<i>half"), Rule(along="y", at=1.5), Rule(along="diagonal"))
    marks = dots(x=(0.0, 10.0), y=(1.0, 9.0))
    layout = plotly_figure(a_chart(Panel(), Panel(marks=(marks,), rules=rules)))["layout"]
    level, upright, diagonal = layout["shapes"]
    assert (level["y0"], level["y1"], level["yref"], level["xref"]) == (3.5, 3.5, "y2", "x2 domain")
    assert (upright["x0"], upright["x1"], upright["xref"]) == (1.5, 1.5, "x2")
    assert (diagonal["x0"], diagonal["y0"], diagonal["x1"], diagonal["y1"]) == (1.0, 1.0, 9.0, 9.0)
    assert [note["text"] for note in layout["annotations"]] == ["&lt;i&gt;half"]


def test_labels_of_rules_on_a_power_axis_stand_at_the_rule() -> None:
    panel = Panel(y=Axis(log=True, low=1.0), marks=(dots(),), rules=(Rule(along="x", at=100.0, label="here"),))
    layout = plotly_figure(a_chart(panel))["layout"]
    assert layout["annotations"][0]["y"] == pytest.approx(2.0)


def test_an_axis_told_one_end_has_all_values_up_to_the_other() -> None:
    marks = dots(y=(3.0, 4.0), low=(2.0, 3.0), high=(5.0, 6.0))
    low, high = plotly_figure(a_chart(Panel(y=Axis(low=0.0), marks=(marks,))))["layout"]["yaxis"]["range"]
    assert low == 0.0
    assert high > 6.0
    low, high = plotly_figure(a_chart(Panel(y=Axis(log=True, high=100.0), marks=(marks,))))["layout"]["yaxis"]["range"]
    assert low < math.log10(2.0)
    assert high == pytest.approx(2.0)


def spans(layout: dict[str, Any], axis: str, count: int) -> list[tuple[float, float]]:
    nested = [layout.get(f"{axis}{place or ''}", {}) for place in (0, *range(2, count + 1))]
    dotted = [layout.get(f"{axis}{place or ''}.domain") for place in (0, *range(2, count + 1))]
    return [tuple(found or own["domain"]) for found, own in zip(dotted, nested, strict=True)]


@pytest.mark.parametrize("columns", [1, 2, 3, 7])
def test_panels_never_overlap(columns: int) -> None:
    chart = a_chart(
        *(Panel(title=str(number), y=Axis(label="y"), marks=(dots(),)) for number in range(5)), columns=columns
    )
    made = plotly_figure(chart)
    for layout in (made["layout"], made["narrow"]):
        places = list(zip(spans(layout, "xaxis", 5), spans(layout, "yaxis", 5), strict=True))
        assert all(0 <= low < high <= 1 for place in places for low, high in place)
        for number, (x, y) in enumerate(places):
            for other_x, other_y in places[:number]:
                assert x[0] >= other_x[1] or other_x[0] >= x[1] or y[1] <= other_y[0]


def test_narrow_panels_stand_below_each_other_and_all_are_named() -> None:
    heat = Heat(rows=("a", "b"), columns=("x",), values=((1.0,), (2.0,)))
    made = plotly_figure(a_chart(Panel(heat=heat), Panel(heat=heat), columns=2))
    assert not made["layout"]["yaxis2"]["showticklabels"]
    assert made["narrow"]["yaxis2.showticklabels"]
    assert spans(made["narrow"], "xaxis", 2) == [(0.0, 1.0), (0.0, 1.0)]
    assert made["narrow"]["height"] == 2 * made["layout"]["height"]


def test_colours_of_text_and_grid_are_left_to_the_page() -> None:
    layout = plotly_figure(a_chart(Panel(marks=(dots(),))))["layout"]
    assert "template" not in layout
    assert "color" not in layout["font"]
    assert not {"gridcolor", "color", "zerolinecolor"} & layout["xaxis"].keys()
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"


def test_a_chart_without_panels_is_empty_and_no_error() -> None:
    made = plotly_figure(a_chart())
    assert made["data"] == []
    go.Figure(data=made["data"], layout=made["layout"])
