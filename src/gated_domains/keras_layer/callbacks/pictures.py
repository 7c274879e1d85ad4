"""The picture of what a monitor measured: gate use on each set of inputs, what it costs, how the bases lie."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

Measured = dict[str, list[float]]

_GATE = re.compile(r"(?P<split>.*)_gate_(?P<basis>\d+)$")
_PANEL = (3.7, 2.7)  # inches
# Below one another at the end of lines, as a share of the panel's height.
_LABEL = 0.075


def plot_measures(epochs: list[int], measured: Measured) -> Figure:
    """A panel of gate use for each set of inputs, then entropy, reconstruction and the measures of the bases."""
    from matplotlib.figure import Figure

    layers = _by_layer(measured)
    sets = max(len(_splits(part)) for part in layers.values())
    panels = sets + 4 if sets else 2
    columns = min(panels, 3 if panels <= 6 else 4)
    rows = math.ceil(panels / columns)
    height = (_PANEL[1] * rows + 0.3) * len(layers)
    figure = Figure(figsize=(_PANEL[0] * columns, height), layout="constrained")
    parts = figure.subfigures(len(layers), 1, squeeze=False)[:, 0]
    for part, (name, layer) in zip(parts, layers.items(), strict=True):
        if name:
            part.suptitle(_plain(name), x=0.01, ha="left", weight="bold")
        _plot_layer(part, (rows, columns), epochs, layer)
    return figure


def _plot_layer(part: SubFigure, shape: tuple[int, int], epochs: list[int], measured: Measured) -> None:
    splits = _splits(measured)
    panels = list(part.subplots(*shape, squeeze=False).flat)
    left = iter(panels)
    most = max(
        (value for split in splits for j in _bases(measured, split) for value in _gate(measured, split, j)), default=1
    )
    for split in splits:
        lines = {f"basis {j}": _gate(measured, split, j) for j in _bases(measured, split)}
        _lines(next(left), epochs, lines, f"gate use, {split}", top=most)
    if splits:
        alike = math.log(max(2, len(_bases(measured, splits[0]))))
        ax = next(left)
        _lines(ax, epochs, {split: measured[f"{split}_gate_entropy"] for split in splits}, "gate entropy", top=alike)
        ax.axhline(alike, color="#9ca3af", linewidth=1, linestyle="--")
        ax.annotate(
            "log M", (0.02, alike), xycoords=("axes fraction", "data"), va="bottom", color="#6b7280", fontsize=8
        )
        _lines(next(left), epochs, {split: measured[f"{split}_reconstruction"] for split in splits}, "reconstruction")
    for names, title in (
        (("distributional_variance", "mutual_coherence"), "bases: apart, alike"),
        (("srip", "soft_orthogonality"), "bases: not orthogonal"),
    ):
        _lines(next(left), epochs, {name.replace("_", "\n"): measured[name] for name in names}, title)
    for ax in left:
        ax.set_axis_off()


def _lines(ax: Axes, epochs: list[int], lines: Measured, title: str, *, top: float | None = None) -> None:
    """Lines from zero on, each with its name at its end, in its colour."""
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    many = len(lines) > 10
    colours = [colormaps["viridis"](i / len(lines)) if many else colormaps["tab10"](i) for i in range(len(lines))]
    for values, colour in zip(lines.values(), colours, strict=True):
        ax.plot(epochs, values, color=colour, linewidth=1.6, marker="o" if len(epochs) < 20 else None, markersize=3)
    every = np.nan_to_num([value for values in lines.values() for value in values], posinf=0, neginf=0)
    low, high = min(0.0, float(every.min())), max(float(every.max()), top or 0.0) or 1.0
    ax.set_ylim(low * 1.1, high * 1.12)
    ends = np.nan_to_num([values[-1] for values in lines.values()], posinf=high, neginf=low)
    places = _apart((ends - low * 1.1) / (high * 1.12 - low * 1.1), [name.count("\n") + 1 for name in lines])
    for name, place, colour in zip(lines, places, colours, strict=True):
        ax.annotate(
            _plain(name),
            (1, place),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            color=colour,
            fontsize=8,
            va="center",
            linespacing=0.95,
        )
    ax.set_title(_plain(title), loc="left", fontsize=10)
    ax.set_xlabel("epoch", fontsize=8)
    ax.tick_params(labelsize=8)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    ax.set_axisbelow(True)


def _apart(heights: np.ndarray, sizes: list[int]) -> list[float]:
    """Heights of labels, each as near to the end of its line as the one below leaves room."""
    places = np.array(heights, dtype=float)
    order = np.argsort(places, kind="stable")
    for lower, upper in pairwise(order):
        places[upper] = max(places[upper], places[lower] + _LABEL * (sizes[lower] + sizes[upper]) / 2)
    return [float(place) for place in places - max(0.0, places.max(initial=0) - 1)]


def _by_layer(measured: Measured) -> dict[str, Measured]:
    """The measures of each layer without its name; of one layer alone there is none."""
    names = [key.removesuffix("_srip") for key in measured if key.endswith("_srip")]
    if not names:
        return {"": measured}
    parts: dict[str, Measured] = {name: {} for name in names}
    for key, values in measured.items():
        name = max((name for name in names if key.startswith(f"{name}_")), key=len)
        parts[name][key.removeprefix(f"{name}_")] = values
    return parts


def _splits(measured: Measured) -> list[str]:
    return list(dict.fromkeys(found["split"] for key in measured if (found := _GATE.match(key))))


def _bases(measured: Measured, split: str) -> list[int]:
    found = [match for key in measured if (match := _GATE.match(key)) and match["split"] == split]
    return [int(match["basis"]) for match in found]


def _gate(measured: Measured, split: str, basis: int) -> list[float]:
    return measured[f"{split}_gate_{basis}"]


def _plain(text: str) -> str:
    """A $ is no formula here."""
    return text.replace("$", r"\$")
