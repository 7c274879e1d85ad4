"""Curves over the number of bases of several data sets in one figure, side by side for each view."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gated_domains.choose.num_bases import NumBasesCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, and a marker each: eight curves are told apart without colour too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444", "#8c6d31")
_MARKERS = "os^Dv<>P"
_TITLES = {"features": "features of the trained network", "tsne": "2-D t-SNE of these features"}

Curves = Mapping[str, Mapping[str, NumBasesCurve]]
"""By view (``features``, ``tsne``), then by data set."""


def plot_many(curves: Curves, *, title: str) -> Figure:
    """One panel a view; mean and one standard deviation of each data set, its best M a large marker."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 * len(curves) + 1.8, 4.6), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    for ax, (view, found) in zip(axes, curves.items(), strict=True):
        _panel(ax, found)
        ax.set_title(_TITLES[view], loc="left", fontsize=10)
    axes[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def curves_csv(curves: Curves) -> str:
    """One line a data set, view and number of bases."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", "view", "num_bases", "mean", "std", "runs", "best"])
    for view, found in curves.items():
        for name, curve in found.items():
            for m, mean, std in zip(curve.candidates.tolist(), curve.mean.tolist(), curve.std.tolist(), strict=True):
                writer.writerow([name, view, m, mean, std, len(curve.scores), m == curve.best])
    return text.getvalue()


def verdict(curves: Curves) -> list[str]:
    """Which M each view would choose: for how many data sets, and on average over all of them."""
    lines = []
    for view, found in curves.items():
        if not found:
            continue
        best = sorted(Counter(curve.best for curve in found.values()).items())
        each = ", ".join(f"{m} ({count})" for m, count in best)
        among = next(iter(found.values())).candidates
        # Each data set has its own level: what counts is how far a score lies above the best of its own curve.
        above = np.mean([curve.mean / curve.mean.min() for curve in found.values()], axis=0)
        shared = int(among[int(above.argmin())])
        at_five = f" The paper's M = 5 lies {above[among == 5].item() - 1:.0%} above the best." if 5 in among else ""
        lines.append(
            f"Davies-Bouldin on {_TITLES[view]} is best at M = {each} (so many data sets); over all of them at "
            f"M = {shared}.{at_five}"
        )
    return lines


def _panel(ax: Axes, found: Mapping[str, NumBasesCurve]) -> None:
    for number, (name, curve) in enumerate(found.items()):
        colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
        m, mean, std = curve.candidates, curve.mean, curve.std
        ax.fill_between(m, mean - std, mean + std, color=colour, alpha=0.12, linewidth=0)
        ax.plot(m, mean, color=colour, marker=marker, markersize=4, linewidth=1.5, label=name)
        ax.scatter([curve.best], [mean[m == curve.best].item()], s=70, color=colour, marker=marker, zorder=4)
        ax.set_xticks(m)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel("number of bases M")
    ax.set_ylabel("Davies-Bouldin score (lower is better)")
