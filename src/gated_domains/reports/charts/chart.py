"""What a figure shows: panels of marks on two axes, or of a heat-map, and the words around them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Form = Literal["dots", "line", "bars", "strokes"]
Direction = Literal["x", "y"]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis. With ``categories`` a value is a place among them: 0 the first, 0.2 a little after it."""

    label: str = ""
    categories: tuple[str, ...] = ()
    log: bool = False
    low: float | None = None
    high: float | None = None
    hidden: bool = False
    """No ticks and no numbers: the axes of an embedding mean nothing."""


@dataclass(frozen=True, kw_only=True)
class Marks:
    """Points of one thing (a method, a domain, a basis), in the form that suits them.

    ``low`` and ``high`` are the ends of an interval at each point along ``interval``; of a line, a band around it.
    ``domain`` is what the page's filter shows and hides them by; None is always shown. ``hover`` says a line or more of
    each point, ``tile`` its place in the chart's ``sprite``, -1 where it has none.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: str
    form: Form = "dots"
    marker: str = "o"
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    interval: Direction = "y"
    hover: tuple[str, ...] = ()
    tile: tuple[int, ...] = ()
    domain: str | None = None
    size: float = 6.0
    alpha: float = 1.0
    legend: bool = True
    """Of several with one name, one stands in the legend; a click there hides all."""

    def __post_init__(self) -> None:
        for name in ("y", "low", "high", "hover", "tile"):
            values = getattr(self, name)
            if values is not None and (values or name == "y") and len(values) != len(self.x):
                raise ValueError(f"{self.name}: {len(self.x)} x and {len(values)} {name}; there must be one for each")


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A heat-map: ``values[row][column]``, NaN where there is none. ``signed``: zero is the middle of the colours."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    signed: bool = False
    digits: int = 2
    low: float | None = None
    high: float | None = None
    bold_rows: tuple[str, ...] = ()
    """Rows that are marked: the unseen domains."""

    def __post_init__(self) -> None:
        shape = (len(self.values), *{len(row) for row in self.values})
        if shape != (len(self.rows), len(self.columns)):
            raise ValueError(f"{len(self.rows)} rows and {len(self.columns)} columns named, the values are {shape}")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A thin line through a panel: at a value of one axis, or the ``diagonal`` where both are equal."""

    along: Literal["x", "y", "diagonal"]
    """``x``: a level line at a height; ``y``: an upright one."""
    at: float = 0.0
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Marks on two axes, or a heat-map."""

    title: str = ""
    x: Axis = field(default_factory=Axis)
    y: Axis = field(default_factory=Axis)
    marks: tuple[Marks, ...] = ()
    heat: Heat | None = None
    rules: tuple[Rule, ...] = ()
    domain: str | None = None
    """Where the whole panel is of one held-out domain: the filter hides it."""
    share: float = 1.0
    """Of the width of its row."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure: ``key`` names its files, ``caption`` says what to see, ``runs`` how many stand behind it; 0: unsaid."""

    key: str
    title: str
    caption: str
    runs: int
    panels: tuple[Panel, ...]
    columns: int = 1
    """Panels beside each other."""
    height: int = 360
    """Pixels of one row of panels."""
    square: bool = False
    """Both axes to one scale."""
    sprite: str = ""
    """A data URI of small pictures in a grid of ``sprite_columns``, each ``tile_size`` pixels wide and high."""
    sprite_columns: int = 0
    tile_size: int = 0

    @property
    def counted(self) -> str:
        """The caption, with the run count."""
        if not self.runs:
            return self.caption
        return f"{self.caption} {self.runs:,} run{'s' * (self.runs != 1)}."

    def csv(self) -> str:
        """The numbers behind the figure, one line a point or cell, unrounded."""
        written = io.StringIO()
        table = csv.writer(written, lineterminator="\n")
        table.writerow(("panel", "name", "domain", "x", "y", "low", "high"))
        table.writerows(self._lines())
        return written.getvalue()

    def _lines(self) -> Iterator[tuple[object, ...]]:
        for number, panel in enumerate(self.panels, 1):
            title = panel.title or str(number)
            if panel.heat is not None:
                heat = panel.heat
                for row, values in zip(heat.rows, heat.values, strict=True):
                    for column, value in zip(heat.columns, values, strict=True):
                        yield title, row, panel.domain or "", column, "" if math.isnan(value) else value, "", ""
            for marks in panel.marks:
                nothing = ("",) * len(marks.x)
                ends = (marks.low or nothing, marks.high or nothing)
                for x, y, low, high in zip(marks.x, marks.y, *ends, strict=True):
                    yield (
                        title,
                        marks.name,
                        marks.domain or panel.domain or "",
                        _named(x, panel.x),
                        _named(y, panel.y),
                        low,
                        high,
                    )


def _named(value: float, axis: Axis) -> object:
    """A place among categories by its name."""
    return axis.categories[round(value)] if axis.categories else value
