"""Figures of the two choices: the curve over the number of bases, and the distances behind sigma."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gated_domains.choose.num_bases import NumBasesCurve
    from gated_domains.choose.sigma import SigmaSuggestion

_MAIN = "#2b6ca3"
_ACCENT = "#d1495b"
_QUIET = "#6b7280"
# Every candidate gets a tick up to here; beyond, the numbers would run into each other.
_MOST_TICKS = 20


def plot_num_bases(curve: NumBasesCurve, ax: Axes | None = None) -> Axes:
    """Mean score over the number of bases, with a band of one standard deviation, every run a dot, the best marked."""
    ax = _clean(ax)
    m, mean, std = curve.candidates, curve.mean, curve.std
    runs = len(curve.scores)
    if runs > 1:
        ax.fill_between(m, mean - std, mean + std, color=_MAIN, alpha=0.15, linewidth=0, label="± 1 std")
        ax.scatter(np.tile(m, runs), curve.scores.ravel(), s=12, color=_MAIN, alpha=0.35, linewidth=0, label="one run")
    ax.plot(m, mean, color=_MAIN, linewidth=2, label=f"mean of {runs} runs" if runs > 1 else "one run")
    column = m == curve.best
    height, at_best = mean[column].item(), curve.scores[:, column]
    ax.scatter([curve.best], [height], s=70, color=_ACCENT, edgecolor="white", linewidth=1.5, zorder=4)
    # The curve lies above its lowest point and below its highest; the label goes to the other side, beyond every run.
    below = height <= mean.mean()
    edge = min(at_best.min(), height - std[column].item()) if below else max(at_best.max(), height + std[column].item())
    ax.annotate(
        f"M = {curve.best}: {height:.4g}",
        (curve.best, edge),
        xytext=(0, -10 if below else 10),
        textcoords="offset points",
        ha={m[0]: "left", m[-1]: "right"}.get(curve.best, "center"),
        va="top" if below else "bottom",
        color=_ACCENT,
    )
    ax.margins(x=0.08, y=0.16)
    if len(m) <= _MOST_TICKS:
        ax.set_xticks(m)
    ax.set_xlabel("number of bases M")
    ax.set_ylabel(curve.label)
    ax.legend(frameon=False)
    return ax


def plot_sigma(suggestion: SigmaSuggestion, ax: Axes | None = None) -> Axes:
    """Histogram of pairwise distances with sigma marked and, on a second axis, the kernel ``exp(-d^2 / 2 sigma^2)``."""
    ax = _clean(ax)
    d, sigma = suggestion.distances, suggestion.sigma
    share = np.full(len(d), 1 / len(d))
    ax.hist(d, bins=60, weights=share, color=_MAIN, alpha=0.35, label="pairs of rows")
    ax.set_xlim(0, d.max() * 1.02)
    ax.margins(y=0.14)
    ax.set_xlabel("distance d between two rows")
    ax.set_ylabel("share of pairs", color=_MAIN)
    _mark_sigma(suggestion, ax)

    kernel = ax.twinx()
    reach = np.linspace(0, d.max() * 1.02, 200)
    kernel.plot(reach, np.exp(-(reach**2) / (2 * sigma**2)), color=_QUIET, linewidth=1.2)
    kernel.set_ylim(0, 1.05)
    kernel.set_ylabel("Gaussian kernel exp(-d² / 2 sigma²)", color=_QUIET)
    kernel.tick_params(colors=_QUIET, length=0)
    kernel.spines[:].set_visible(False)
    return ax


def plot_choices(curve: NumBasesCurve, suggestion: SigmaSuggestion, *, title: str) -> Figure:
    """Both choices side by side, as a figure that belongs to no window."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot_num_bases(curve, left).set_title("num_bases", loc="left", fontsize=11)
    plot_sigma(suggestion, right).set_title("sigma", loc="left", fontsize=11)
    # A $ is no formula here.
    figure.suptitle(title.replace("$", r"\$"))
    return figure


def _mark_sigma(suggestion: SigmaSuggestion, ax: Axes) -> None:
    """A vertical line at sigma, its value beside it."""
    sigma, spread = suggestion.sigma, suggestion.spread
    label = f"sigma = {sigma:.4g}" + (f" ± {spread:.2g}" if spread > 0 else "")
    ax.axvline(sigma, color=_ACCENT, linewidth=2, label=label)
    # On the side with more room, at the top: there the kernel, 0.61 at sigma, never passes.
    to_the_left = sigma > ax.get_xlim()[1] / 2
    ax.annotate(
        label,
        (sigma, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-8 if to_the_left else 8, -4),
        textcoords="offset points",
        ha="right" if to_the_left else "left",
        va="top",
        color=_ACCENT,
    )


def _clean(ax: Axes | None) -> Axes:
    """The axes given, or new ones, with no more ink than data need."""
    if ax is None:
        # Here, not above: choosing without plotting must not pay for matplotlib.
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    ax.set_axisbelow(True)
    return ax
