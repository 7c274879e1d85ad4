"""Curves of many data sets: a panel a view, a line a data set, and what they would choose."""

from __future__ import annotations

import csv
import io

import numpy as np

from gated_domains.choose.many_curves import curves_csv, plot_many, verdict
from gated_domains.choose.num_bases import NumBasesCurve


def curve(best: int, *, runs: int = 3, on: str = "features", level: float = 1.0) -> NumBasesCurve:
    """A curve with its lowest point at ``best``."""
    candidates = np.arange(2, 11)
    scores = level * (1 + 0.1 * np.abs(candidates - best)) + 0.01 * np.arange(runs)[:, None]
    return NumBasesCurve(candidates=candidates, scores=scores, score="davies_bouldin", on=on)


def made() -> dict[str, dict[str, NumBasesCurve]]:
    return {
        "features": {"FMoW": curve(5), "Amazon": curve(3, level=2.0)},
        "tsne": {"FMoW": curve(5, on="tsne"), "Amazon": curve(5, on="tsne")},
    }


def test_two_panels_with_a_line_for_each_data_set() -> None:
    figure = plot_many(made(), title="curves")
    left, right = figure.axes
    for axes in (left, right):
        assert [line.get_label() for line in axes.lines] == ["FMoW", "Amazon"]
        assert len(axes.collections) == 4  # a band and a mark at the best each
    assert right.get_legend() is not None
    assert left.get_legend() is None


def test_csv_has_a_line_a_point_and_marks_the_best() -> None:
    lines = list(csv.DictReader(io.StringIO(curves_csv(made()))))
    assert len(lines) == 2 * 2 * 9
    best = [line["num_bases"] for line in lines if line["best"] == "True" and line["view"] == "features"]
    assert best == ["5", "3"]
    assert lines[0]["runs"] == "3"


def test_the_verdict_counts_data_sets_and_says_where_five_stands() -> None:
    features, tsne = verdict(made())
    assert "best at M = 3 (1), 5 (1) (so many data sets)" in features
    assert "best at M = 5 (2) (so many data sets); over all of them at M = 5." in tsne
    assert tsne.endswith("The paper's M = 5 lies 0% above the best.")


def test_nothing_is_said_of_nothing() -> None:
    assert verdict({"features": {}, "tsne": {}}) == []
