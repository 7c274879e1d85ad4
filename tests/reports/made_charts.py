"""Charts made up for tests of what draws them."""

from __future__ import annotations

import math
from typing import Any

from gated_domains.reports.charts import Axis, Chart, Heat, Marks, Panel, Rule

HOSTILE = "<script>alert('%{x}')</script> & $\\frac$ <b>bold</b>"
BLUE, RED = "#0072B2", "#D55E00"


def a_chart(*panels: Panel, **others: Any) -> Chart:
    settings: dict[str, Any] = {"key": "made", "title": "made up", "caption": "Look.", "runs": 3}
    return Chart(panels=panels, **{**settings, **others})


def dots(name: str = "GDU", **others: Any) -> Marks:
    settings: dict[str, Any] = {"x": (1.0, 2.0), "y": (3.0, 4.0), "colour": BLUE}
    return Marks(name=name, **{**settings, **others})


def everything() -> Chart:
    """Every form, a heat-map, all kinds of rules, hostile names, and no numbers here and there."""
    names = ("plain", HOSTILE, "a name so long that nobody would ever write it all below an axis")
    line = {"form": "line", "low": (2.0, math.nan), "high": (4.0, 5.0)}
    interval = {"low": (0.5, math.nan), "high": (1.5, math.inf), "interval": "x"}
    return a_chart(
        Panel(
            title=HOSTILE,
            x=Axis(label=HOSTILE),
            y=Axis(categories=names),
            marks=(
                dots(y=(0.1, 1.1), domain="mnist", hover=(HOSTILE, "two\nlines"), **interval),
                dots(HOSTILE, x=(math.nan, math.inf), y=(0.0, 2.0), form="strokes", colour=RED, tile=(0, -1)),
            ),
            rules=(Rule(along="y", at=1.5, label=HOSTILE),),
        ),
        Panel(title="line", x=Axis(label="epoch"), y=Axis(log=True), marks=(dots(**line),)),
        Panel(
            title="heat",
            domain="usps",
            heat=Heat(
                rows=names, columns=(HOSTILE, "b"), values=((1.0, math.nan), (-2.0, 0.0), (3.0, math.inf)),
                signed=True, bold_rows=(HOSTILE,),
            ),
        ),
        Panel(title="bars", x=Axis(categories=names), marks=(dots(x=(0.0, 1.0), form="bars"),)),
        Panel(title="map", x=Axis(hidden=True), y=Axis(hidden=True), marks=(dots(),)),
        Panel(
            title="all rules",
            marks=(dots(),),
            rules=(Rule(along="diagonal", label="equal"), Rule(along="x", at=3.5, label="level")),
        ),
        Panel(title="nothing"),
        columns=3,
    )  # fmt: skip
