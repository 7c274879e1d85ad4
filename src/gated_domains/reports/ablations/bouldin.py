"""The Davies-Bouldin score of the features of ERM by the number of clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gated_domains.evaluation.statistics import spread
from gated_domains.reports.ablations.words import mean_std
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel
from gated_domains.reports.charts.palette import METHOD_COLOURS

Scores = Mapping[str, Sequence[Sequence[float]]]
"""By view, the score of every number of clusters in every clustering."""
TITLES = {"features": "features", "tsne": "2-D t-SNE of the features"}
_PAPERS = range(10, 13)


def bouldin_chart(scores: Scores, clusters: Sequence[int], *, networks: int, title: str) -> Chart:
    """A panel a view: mean and one standard deviation over clusterings, the best M marked."""
    tables = {view: np.array(scores[view], np.float64) for view in TITLES if len(scores.get(view, ()))}
    panels = tuple(_panel(view, table, clusters) for view, table in tables.items())
    said = [_said(view, table, clusters) for view, table in tables.items()]
    count = len(next(iter(tables.values()))) if tables else 0
    caption = [
        f"Lower is better; bands are one standard deviation over {count} clusterings of the features of {networks} ERM "
        f"network{'s' * (networks != 1)}.",
        *said,
        f"The paper reads {_PAPERS[0]} to {_PAPERS[-1]} off its curve.",
    ]
    return Chart(
        key="davies-bouldin",
        title=f"Davies-Bouldin score over M, {title} held out",
        caption=" ".join(caption) if tables else "There is no network yet; the same command goes on.",
        runs=networks,
        panels=panels or (Panel(),),
        columns=2,
    )


def _panel(view: str, table: NDArray[np.float64], clusters: Sequence[int]) -> Panel:
    mean, best = table.mean(0), int(table.mean(0).argmin())
    reach = table.std(0, ddof=1) if len(table) > 1 else None
    colour = METHOD_COLOURS[0]
    x = tuple(map(float, clusters))
    line = Marks(
        name="mean",
        x=x,
        y=tuple(mean.tolist()),
        low=None if reach is None else tuple((mean - reach).tolist()),
        high=None if reach is None else tuple((mean + reach).tolist()),
        colour=colour,
        form="line",
        legend=False,
    )
    top = Marks(
        name="best",
        x=(x[best],),
        y=(float(mean[best]),),
        colour=METHOD_COLOURS[1],
        marker="D",
        size=9.0,
        legend=view == "features",
    )
    x_axis, y_axis = Axis(label="number of clusters M"), Axis(label="Davies-Bouldin score")
    return Panel(title=TITLES[view], marks=(line, top), x=x_axis, y=y_axis)


def _said(view: str, table: NDArray[np.float64], clusters: Sequence[int]) -> str:
    mean = table.mean(0)
    best = int(mean.argmin())
    std = table.std(0, ddof=1) if len(table) > 1 else np.zeros(len(mean))
    alike = [
        m for place, m in enumerate(clusters) if place != best and mean[place] - mean[best] <= std[place] + std[best]
    ]
    others = f", with {_ranges(alike)} within the spread" if alike else ""
    score = mean_std(spread(table[:, best].tolist()), 2)
    verdict = _verdict(clusters[best], alike)
    return f"On the {TITLES[view]}: best at M = {clusters[best]} ({score}){others}, which {verdict}."


def _verdict(best: int, alike: Sequence[int]) -> str:
    """Whether the best M is one of the paper's; one of those within the spread of the best leaves it open."""
    if best in _PAPERS:
        return "agrees with the paper"
    return "cannot be told from the paper's" if set(alike) & set(_PAPERS) else "does not agree with the paper"


def _ranges(values: Sequence[int]) -> str:
    """``3 to 5, 9``."""
    groups: list[list[int]] = []
    for value in values:
        if groups and value == groups[-1][-1] + 1:
            groups[-1].append(value)
        else:
            groups.append([value])
    return ", ".join(str(group[0]) if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups)
