"""A chart as matplotlib draws it: for a paper, as SVG, PNG and PDF, with the numbers beside it."""

from __future__ import annotations

import io
import math
import os
import re
import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gated_domains.data.errors import written_whole
from gated_domains.reports.charts.axes import ROOM, diagonal_ends, is_whole, names_of
from gated_domains.reports.charts.chart import Axis, Chart, Heat, Marks, Panel, Rule
from gated_domains.reports.charts.traces import LONGEST_NAME, bar_width, cell_text, heat_limits, is_annotated, lies
from gated_domains.reports.dots import GRID, QUIET, plain
from gated_domains.reports.terminal_table import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("svg", "png", "pdf")
_LONGEST_KEY = 80
_PIXELS = 100.0  # of the page to an inch
_MANY = 2_000  # points of one name past which a drawing holds a picture of them
# Without these, the same data would give another file every second.
_UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def write_chart(chart: Chart, folder: str | os.PathLike[str], kinds: Sequence[str] = KINDS) -> list[Path]:
    """Write ``KEY.svg``, ``KEY.png``, ``KEY.pdf`` and the numbers as ``KEY.csv``, each whole or not at all."""
    import matplotlib

    paths, name = [], file_name(chart.key)
    numbers = _write(Path(folder, f"{name}.csv"), chart.csv().encode("utf-8"))
    if not kinds:
        return [numbers]
    with matplotlib.rc_context({"svg.hashsalt": chart.key}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a name in a script that the font lacks
        drawing = figure(chart)
        # Laid out once, not once a kind.
        drawing.draw_without_rendering()
        drawing.set_layout_engine("none")
        for kind in kinds:
            written = io.BytesIO()
            drawing.savefig(written, format=kind, dpi=150, metadata=_UNDATED[kind])
            paths.append(_write(Path(folder, f"{name}.{kind}"), written.getvalue()))
    return [*paths, numbers]


def file_name(key: str) -> str:
    """A key as the name of a file: of one with letters that not every disk takes, a number tells it from others."""
    kept = re.sub(r"[^A-Za-z0-9_-]+", "_", key)[:_LONGEST_KEY]
    return kept if kept == key else f"{kept}-{zlib.crc32(key.encode('utf-8', 'surrogatepass')):08x}"


def _write(path: Path, content: bytes) -> Path:
    with written_whole(path) as draft:
        draft.write_bytes(content)
    return path


def figure(chart: Chart) -> Figure:
    """The chart with its title, without its caption."""
    from matplotlib.figure import Figure

    columns = max(1, min(chart.columns, len(chart.panels)))
    rows = max(1, math.ceil(len(chart.panels) / columns))
    width = 7.4 if columns == 1 else min(3.4 * columns + 1.2, 14.0)
    drawing = Figure(figsize=(width, rows * chart.height / _PIXELS + 0.7), layout="constrained")
    shares = [panel.share for panel in chart.panels[:columns]] or [1.0]
    grid = drawing.subplots(rows, columns, squeeze=False, width_ratios=shares)
    for place, axis in enumerate(grid.flat):
        if place >= len(chart.panels):
            axis.remove()
            continue
        before = chart.panels[place - 1] if place % columns else None
        _panel(axis, chart.panels[place], before)
        if chart.square and chart.panels[place].heat is None:
            axis.set_aspect("equal", adjustable="datalim")
    drawing.suptitle(plain(shortened([chart.title], 90)[0]), x=0.01, ha="left", fontsize=12)
    _legend(drawing, chart.panels, width)
    return drawing


def _legend(drawing: Figure, panels: Iterable[Panel], width: float) -> None:
    """Below, where there is more than one name."""
    named: dict[str, Any] = {}
    for panel in panels:
        for marks in panel.marks:
            if marks.legend and marks.name not in named:
                named[marks.name] = _handle(marks)
    if len(named) < 2:
        return
    names = shortened(list(named), 40)
    across = max(1, int(width / (0.45 + 0.085 * max(map(len, names)))))
    drawing.legend(
        named.values(), [plain(name) for name in names], loc="outside lower left", ncols=min(across, len(names)),
        frameon=False, fontsize=9, handletextpad=0.4, columnspacing=1.4,
    )  # fmt: skip


def _handle(marks: Marks) -> Any:
    """What stands for a name in the legend."""
    from matplotlib.lines import Line2D

    if marks.form == "line":
        return Line2D([], [], color=marks.colour, linewidth=2)
    marker = {"bars": "s", "strokes": "|"}.get(marks.form, marks.marker)
    return Line2D([], [], color=marks.colour, linestyle="", marker=marker, markersize=7)


def _panel(axis: Axes, panel: Panel, before: Panel | None) -> None:
    """One panel; ``before`` stands at its left, and names that they share are written there alone."""
    from matplotlib.ticker import MaxNLocator

    axis.set_title(plain(panel.title), loc="left", fontsize=10)
    axis.set_xlabel(plain(panel.x.label), fontsize=9)
    axis.set_ylabel(plain(panel.y.label), fontsize=9)
    axis.spines[:].set_visible(False)
    axis.tick_params(which="both", length=0, labelsize=9, colors=QUIET)
    if panel.heat is not None:
        _heat(axis, panel.heat)
    else:
        axis.grid(color=GRID, linewidth=0.8)
        axis.set_axisbelow(True)
        for marks in _joined(panel.marks):
            _marks(axis, marks, panel)
        _scale(axis, panel.x, "x")
        _scale(axis, panel.y, "y")
        if is_whole(panel) and not panel.x.categories and not panel.x.log:
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        for rule in panel.rules:
            _rule(axis, rule, panel)
    names = names_of(panel)[1]
    if names and before is not None and names == names_of(before)[1]:
        axis.set_yticklabels([])


def _scale(axis: Axes, said: Axis, along: str) -> None:
    """Names, ends and scale of one axis."""
    own = axis.xaxis if along == "x" else axis.yaxis
    ends = axis.set_xlim if along == "x" else axis.set_ylim
    if said.hidden:
        own.set_ticks([])
        own.grid(False)
    elif said.categories:
        names = [plain(name) for name in shortened(said.categories, LONGEST_NAME)]
        own.set_ticks(range(len(names)), names)
        aslant = along == "x" and sum(map(len, names)) > 60
        axis.tick_params(axis=along, colors="black", **({"labelrotation": 40} if aslant else {}))  # type: ignore[arg-type]
        if aslant:
            for text in axis.get_xticklabels():
                text.set_horizontalalignment("right")
                text.set_rotation_mode("anchor")
        own.grid(along == "y")
    if said.categories:
        low, high = -ROOM, len(said.categories) - 1 + ROOM
        ends(*((high, low) if along == "y" else (low, high)))
        return
    if said.log:
        (axis.set_xscale if along == "x" else axis.set_yscale)("log")
    if said.low is not None or said.high is not None:
        low_end = said.low if not said.log or (said.low or 0) > 0 else None
        ends(low_end, said.high)


def _joined(found: Iterable[Marks]) -> list[Marks]:
    """Marks that look alike as one: matplotlib draws a thousand points at once as quickly as one."""
    alike: dict[tuple[object, ...], list[Marks]] = {}
    for number, marks in enumerate(found):
        points, ends = marks.form in ("dots", "strokes"), marks.low is not None and marks.high is not None
        look = (marks.form, marks.colour, marks.marker, marks.size, marks.alpha, marks.interval, ends)
        alike.setdefault(look if points else (number,), []).append(marks)
    return [same[0] if len(same) == 1 else _one(same) for same in alike.values()]


def _one(same: Sequence[Marks]) -> Marks:
    x, y, low, high = (
        tuple(value for marks in same for value in getattr(marks, name) or ()) for name in ("x", "y", "low", "high")
    )
    ends = same[0].low is not None and same[0].high is not None
    return replace(same[0], x=x, y=y, low=low if ends else None, high=high if ends else None, hover=(), tile=())


def _marks(axis: Axes, marks: Marks, panel: Panel) -> None:
    x, y = np.array(marks.x, float), np.array(marks.y, float)
    if marks.low is not None and marks.high is not None and len(x):
        _interval(axis, marks, np.array(marks.low, float), np.array(marks.high, float))
    if marks.form == "bars":
        lying, width = lies(panel), bar_width(panel)
        if lying:
            axis.barh(y, x, height=width, color=marks.colour, alpha=marks.alpha, linewidth=0)
        else:
            axis.bar(x, y, width=width, color=marks.colour, alpha=marks.alpha, linewidth=0)
    elif marks.form == "line":
        alone = {"marker": "o", "markersize": 4} if len(x) <= 1 else {}
        axis.plot(x, y, color=marks.colour, alpha=marks.alpha, linewidth=1.8, **alone)  # type: ignore[arg-type]
    elif marks.form == "strokes":
        stroke = "|" if panel.y.categories or not panel.x.categories else "_"
        axis.scatter(x, y, marker=stroke, s=(1.6 * marks.size) ** 2, linewidth=2, color=marks.colour, zorder=4)
    else:
        # A pixel of the page is 0.72 points here; the area is what matplotlib wants.
        axis.scatter(
            x, y, s=(0.82 * marks.size) ** 2, color=marks.colour, marker=marks.marker, alpha=marks.alpha, linewidth=0,
            zorder=3, rasterized=len(x) > _MANY,
        )  # fmt: skip


def _interval(axis: Axes, marks: Marks, low: np.ndarray, high: np.ndarray) -> None:
    """The band of a line; the strokes of points."""
    x, y = np.array(marks.x, float), np.array(marks.y, float)
    if marks.form == "line":
        along, fill = (y, axis.fill_betweenx) if marks.interval == "x" else (x, axis.fill_between)
        fill(along, low, high, color=marks.colour, alpha=0.16, linewidth=0)
        return
    draw = axis.hlines if marks.interval == "x" else axis.vlines
    draw(y if marks.interval == "x" else x, low, high, color=marks.colour, linewidth=1.4, zorder=3)


def _rule(axis: Axes, rule: Rule, panel: Panel) -> None:
    look = {"color": QUIET, "linewidth": 0.9, "linestyle": (0, (2, 2)), "zorder": 2}
    if rule.along == "x":
        axis.axhline(rule.at, **look)  # type: ignore[arg-type]
        at, place, side, height = axis.get_yaxis_transform(), (1.0, rule.at), "right", "bottom"
    elif rule.along == "y":
        axis.axvline(rule.at, **look)  # type: ignore[arg-type]
        at, place, side, height = axis.get_xaxis_transform(), (rule.at, 1.0), "left", "top"
    else:
        ends = diagonal_ends(panel)
        axis.plot(ends, ends, **look)  # type: ignore[arg-type]
        at, place, side, height = axis.transData, (ends[1], ends[1]), "right", "bottom"
    if rule.label:
        axis.text(
            *place, f" {plain(rule.label)} ", transform=at, ha=side, va=height, fontsize=8, color=QUIET
        )  # fmt: skip


def _heat(axis: Axes, heat: Heat) -> None:
    low, high = heat_limits(heat)
    values = np.array(heat.values, float).reshape(len(heat.rows), len(heat.columns))
    shown = axis.imshow(
        np.ma.masked_invalid(values), aspect="auto", interpolation="nearest", vmin=low, vmax=high,
        cmap="RdBu" if heat.signed else "Blues",
    )  # fmt: skip
    if is_annotated(heat):
        size = 8 if len(heat.columns) <= 12 else 6
        for (row, column), value in np.ndenumerate(values):
            share = (value - low) / (high - low)
            dark = abs(share - 0.5) > 0.36 if heat.signed else share > 0.6
            text = cell_text(heat, float(value))
            axis.text(column, row, text, ha="center", va="center", fontsize=size, color="white" if dark else "black")
    else:
        axis.figure.colorbar(shown, ax=axis, shrink=0.8, pad=0.02).outline.set_visible(False)
    axis.set_yticks(range(len(heat.rows)), [plain(name) for name in shortened(heat.rows, LONGEST_NAME)])
    apart = math.ceil(len(heat.columns) / 40)
    names = [plain(name) for name in shortened(heat.columns, LONGEST_NAME)]
    aslant = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if sum(map(len, names)) > 60 else {}
    axis.set_xticks(range(0, len(names), apart), names[::apart], **aslant)  # type: ignore[arg-type]
    axis.tick_params(colors="black")
    for tick, name in zip(axis.get_yticklabels(), heat.rows, strict=True):
        tick.set_fontweight("bold" if name in heat.bold_rows else "normal")
