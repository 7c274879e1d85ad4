"""Pictures of a comparison (every seed a dot, by held-out domain) and of the gates (who uses which basis)."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.pictures import picture_path, write_figure
from gated_domains.reports.numbers import Numbers
from gated_domains.reports.table import Comparison
from gated_domains.reports.terminal import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any colour vision tell apart; past the last, the marker changes too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
_MARKERS = ("o", "s", "^", "D")
_QUIET, _GRID, _BAND = "#6b7280", "#e5e7eb", "#f3f4f6"
_MOST_LINES = 90  # of dots below each other, in one panel
_MOST_PANELS = 4
_LONGEST_NAME = 24
_MOST_ANNOTATED = 400


def draw_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Scores by held-out domain, a colour a method, every seed a dot, the mean a stroke; the means at the right."""
    path = picture_path(path)
    return write_figure(comparison_figure(comparison), path)


def comparison_figure(comparison: Comparison) -> Figure:
    """The figure behind ``draw_comparison``."""
    from matplotlib.figure import Figure

    numbers = comparison.numbers
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
    low, high = _reach([score for row in numbers.rows for score in row.scores.values()], numbers)
    for place in range(panels):
        axis = figure.add_subplot(grid[:, place])
        _hold_out_panel(axis, numbers, numbers.hold_outs[place * size : (place + 1) * size], size)
        axis.set_xlim(low, high)
        axis.set_title("by held-out domain" if place == 0 else "", loc="left", fontsize=10)
    _mean_panel(figure.add_subplot(grid[0, -1] if share < 0.8 else grid[:, -1]), numbers)
    figure.suptitle(_plain(shortened([comparison.title], 90)[0]), x=0.01, ha="left", fontsize=12)
    if any(len(row.runs) > len(row.cells) for row in numbers.rows):
        figure.supxlabel("a dot is a seed, a stroke their mean", x=0.01, ha="left", fontsize=8, color=_QUIET)
    return figure


def _hold_out_panel(axis: Axes, numbers: Numbers, names: Sequence[str], size: int) -> None:
    """A band a hold-out, in it a line a method."""
    methods = len(numbers.rows)
    step = 1 / (methods + 1)
    for place, name in enumerate(names):
        if place % 2 == 0:
            axis.axhspan(place - 0.5, place + 0.5, color=_BAND, linewidth=0, zorder=0)
        for number, row in enumerate(numbers.rows):
            scores = [sum(run.test.values()) / len(run.test) for run in row.runs if run.hold_out == name]
            _dots(axis, scores, place + (number - (methods - 1) / 2) * step, number, numbers)
    axis.set_yticks(range(len(names)), [_plain(name) for name in shortened(names, _LONGEST_NAME)], fontsize=9)
    axis.set_ylim(size - 0.5, -0.5)
    _clean(axis, numbers)


def _mean_panel(axis: Axes, numbers: Numbers) -> None:
    """A line a method: the mean over all held-out domains, every complete seed a dot. Names the colours."""
    means = [list(row.mean_by_seed.values()) for row in numbers.rows]
    for number, values in enumerate(means):
        _dots(axis, values, float(number), number, numbers)
    labels = [row.label for row in numbers.rows]
    axis.yaxis.tick_right()
    axis.set_yticks(range(len(labels)), [_plain(name) for name in shortened(labels, _LONGEST_NAME)], fontsize=9)
    for number, text in enumerate(axis.get_yticklabels()):
        text.set_color(_colour(number))
        text.set_fontweight("bold")
    axis.set_ylim(len(labels) - 0.4, -0.6)
    if any(means):
        axis.set_xlim(*_reach([value for values in means for value in values], numbers))
    axis.set_title("mean over held-out domains", loc="left", fontsize=10)
    _clean(axis, numbers)


def _dots(axis: Axes, scores: list[float], y: float, number: int, numbers: Numbers) -> None:
    """The scores of one method at one height: dots, and a stroke at the mean of several."""
    if not scores:
        return
    values = np.array(scores) * _factor(numbers)
    colour, marker = _colour(number), _MARKERS[number // len(_COLOURS) % len(_MARKERS)]
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


def _clean(axis: Axes, numbers: Numbers) -> None:
    axis.spines[:].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", colors=_QUIET, labelsize=9)
    axis.grid(axis="x", color=_GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.set_xlabel(numbers.metric.label + (" in percent" if numbers.metric.percent else ""), fontsize=9)


def _reach(values: list[float], numbers: Numbers) -> tuple[float, float]:
    """The ends of an axis: all values, with some room, however near to each other they are."""
    scaled = np.array(values) * _factor(numbers)
    low, high = float(scaled.min()), float(scaled.max())
    room = max(0.06 * (high - low), 0.01 * abs(high), 1e-9)
    return low - room, high + room


def _factor(numbers: Numbers) -> float:
    return 100.0 if numbers.metric.percent else 1.0


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def draw_gates(
    beta: NDArray[Any],
    path: str | os.PathLike[str],
    *,
    domains: NDArray[Any],
    domain_names: Sequence[str],
    unseen: Sequence[str] = (),
    coverage: NDArray[Any] | None = None,
    title: str = "who uses which basis",
) -> Path:
    """Mean gate weight of each basis for each domain as a heat-map, mean coverage at its right.

    ``beta`` is (rows, bases), ``coverage`` (rows,); ``domains`` are indices into ``domain_names``. Domains named in
    ``unseen`` stand last and are marked.
    """
    path = picture_path(path)
    return write_figure(
        gates_figure(beta, domains=domains, domain_names=domain_names, unseen=unseen, coverage=coverage, title=title),
        path,
    )


def gates_figure(
    beta: NDArray[Any],
    *,
    domains: NDArray[Any],
    domain_names: Sequence[str],
    unseen: Sequence[str] = (),
    coverage: NDArray[Any] | None = None,
    title: str = "who uses which basis",
) -> Figure:
    """The figure behind ``draw_gates``."""
    from matplotlib.figure import Figure

    _check_gates(beta, domains, coverage)
    present = [domain_names[index] for index in np.unique(domains).tolist()]
    names = [name for name in present if name not in unseen] + [name for name in present if name in unseen]
    rows = [domains == list(domain_names).index(name) for name in names]
    means = np.stack([beta[mine].mean(axis=0, dtype=np.float64) for mine in rows])
    bases = beta.shape[1]
    width, height = min(2.6 + 0.52 * max(bases, 4), 14.0), 1.3 + max(0.24 * len(names), 0.6)
    figure = Figure(figsize=(width + (1.9 if coverage is not None else 0.4), height), layout="constrained")
    if coverage is None:
        axis = figure.subplots()
    else:
        axis, side = figure.subplots(1, 2, width_ratios=[max(bases, 4) * 0.52, 1.5])
        _coverage_panel(side, [float(coverage[mine].mean()) for mine in rows])
    _heat_map(axis, means)
    labels = [name + "  (unseen)" * (name in unseen) for name in shortened(names, _LONGEST_NAME)]
    marked = [name in unseen for name in names]
    axis.set_yticks(range(len(names)), [_plain(label) for label in labels], fontsize=9)
    for text, mark in zip(axis.get_yticklabels(), marked, strict=True):
        text.set_fontweight("bold" if mark else "normal")
    if any(marked) and not all(marked):
        axis.axhline(marked.index(True) - 0.5, color="black", linewidth=1.2)
    figure.suptitle(_plain(title), x=0.01, ha="left", fontsize=12)
    return figure


def _heat_map(axis: Axes, means: NDArray[np.float64]) -> None:
    # Weights of a projection may be negative: then zero is white, and the two signs have two colours.
    signed = bool(means.min() < -1e-6)
    top = max(float(np.abs(means).max()), 1e-12)
    limits = {"cmap": "RdBu", "vmin": -top, "vmax": top} if signed else {"cmap": "Blues", "vmin": 0.0, "vmax": top}
    axis.imshow(means, aspect="auto", interpolation="nearest", **limits)  # type: ignore[arg-type]
    if means.size <= _MOST_ANNOTATED and means.shape[1] <= 20:
        for (row, column), value in np.ndenumerate(means):
            colour = "white" if abs(value) > 0.6 * top else "black"
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    apart = math.ceil(means.shape[1] / 20)
    axis.set_xticks(range(0, means.shape[1], apart), [str(number) for number in range(1, means.shape[1] + 1, apart)])
    axis.set_xlabel("basis", fontsize=9)
    axis.set_title("mean gate weight", loc="left", fontsize=10)
    axis.tick_params(length=0, labelsize=9)
    axis.spines[:].set_visible(False)


def _coverage_panel(axis: Axes, values: list[float]) -> None:
    axis.barh(range(len(values)), values, color=_COLOURS[2], height=0.6)
    for place, value in enumerate(values):
        axis.text(value + 0.03, place, f"{value:.2f}", va="center", fontsize=8)
    axis.set_xlim(0, 1.3)
    axis.set_xticks([0, 0.5, 1.0], ["0", "0.5", "1"])
    axis.set_ylim(len(values) - 0.5, -0.5)
    axis.set_yticks([])
    axis.set_title("mean coverage", loc="left", fontsize=10)
    axis.tick_params(colors=_QUIET, labelsize=9)
    axis.spines[:].set_visible(False)


def _check_gates(beta: NDArray[Any], domains: NDArray[Any], coverage: NDArray[Any] | None) -> None:
    if beta.ndim != 2 or not beta.size or len(domains) != len(beta):
        raise DataError(f"gates must be (rows, bases) with a domain for every row, got {beta.shape}, {domains.shape}")
    if coverage is not None and coverage.shape != (len(beta),):
        raise DataError(f"coverage must be one number a row, got {coverage.shape} for {len(beta):,} rows")
    for name, values in (("gates", beta), ("coverage", coverage)):
        if values is not None and not np.isfinite(values).all():
            raise DataError(f"{name} hold NaN or infinity: the model has diverged; lower the learning rate")


def _plain(text: str) -> str:
    """A text as matplotlib shows it letter by letter: no formula between $ signs."""
    return text.replace("$", r"\$")
