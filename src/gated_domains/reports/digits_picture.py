"""A picture of the table of Digits-5: every seed a dot by target and row, the paper's mean a cross."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gated_domains.data.pictures import write_figure
from gated_domains.reports.digits_numbers import DigitsNumbers, Paper
from gated_domains.reports.dots import COLOURS, plain
from gated_domains.reports.many_methods import many_methods
from gated_domains.reports.summary import Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PAPER = COLOURS[1]


def draw_digits(numbers: DigitsNumbers, path: Path, *, title: str) -> list[Path]:
    """Write the picture; its path, or none where nothing is done."""
    if numbers.comparison is None:
        return []
    return [write_figure(digits_figure(numbers, numbers.comparison, title=title), path)]


def digits_figure(numbers: DigitsNumbers, comparison: Numbers, *, title: str) -> Figure:
    """A panel for the mean and one a target, a line a row."""
    figure = many_methods(comparison)
    figure.suptitle(plain(title), x=0.01, ha="left", fontsize=12)
    crosses = [
        _crosses(axis, [numbers.paper(row.method, target) for row in comparison.rows])
        for axis, target in zip(figure.axes, [None, *comparison.hold_outs], strict=True)
    ]
    if any(crosses):
        figure.text(0.99, 0.99, "cross: the paper's mean", ha="right", va="top", fontsize=9, color=_PAPER)
    return figure


def _crosses(axis: Axes, papers: Sequence[Paper | None]) -> bool:
    """Mark the published means at the heights of their rows; whether there are any."""
    points = [(paper.mean, place) for place, paper in enumerate(papers) if paper is not None]
    if not points:
        return False
    means = [mean for mean, _ in points]
    low, high = axis.get_xlim()
    room = 0.03 * (max(high, *means) - min(low, *means))
    axis.scatter(means, [place for _, place in points], marker="x", s=22, color=_PAPER, linewidth=1.2, zorder=5)
    axis.set_xlim(min(low, min(means) - room), max(high, max(means) + room))
    return True
