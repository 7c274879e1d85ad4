"""The picture of many methods: a line each, a panel a hold-out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_results import many
from matplotlib.figure import Figure

from gated_domains.reports import Comparison
from gated_domains.reports.many_methods import many_methods


def dots(figure: Figure, place: int) -> np.ndarray:
    return np.concatenate([drawn.get_offsets() for drawn in figure.axes[place].collections])


def test_many_methods_have_a_line_each_and_a_panel_a_hold_out() -> None:
    comparison = Comparison(many(9, 3, 2, name="h{}"))
    figure = many_methods(comparison.numbers)
    assert [axis.get_title("left") for axis in figure.axes] == ["mean", "h0", "h1", "h2"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][:2] == ["ERM", "METHOD1"]
    for panel, hold_out in enumerate(["h0", "h1", "h2"], start=1):
        drawn = dots(figure, panel)
        for place, row in enumerate(comparison.numbers.rows):
            expected = [100 * run.test[hold_out] for run in row.runs if run.hold_out == hold_out]
            np.testing.assert_allclose(sorted(drawn[drawn[:, 1] == place, 0]), sorted(expected))
    means = [100 * value for row in comparison.numbers.rows for value in row.mean_by_seed.values()]
    np.testing.assert_allclose(sorted(dots(figure, 0)[:, 0]), sorted(means))


def test_many_methods_are_held_against_the_baseline_and_coloured_by_what_they_were_told() -> None:
    runs = [replace(run, uses_domains=run.method == "method3") for run in many(9, 2, 2, name="h{}")]
    comparison = Comparison(runs)
    panel = many_methods(comparison.numbers).axes[1]
    dashed = [line for line in panel.lines if line.get_linestyle() == "--"]
    erm = comparison.numbers.rows[0].cells["h0"].mean
    assert [line.get_xdata()[0] for line in dashed] == [pytest.approx(100 * erm)]
    colours = [tuple(drawn.get_facecolor()[0][:3]) for drawn in panel.collections]
    assert len(set(colours)) == 3
    assert colours.count(colours[3]) == colours.count(colours[0]) == 1


def test_of_many_methods_missing_runs_leave_gaps() -> None:
    runs = [run for run in many(9, 2, 1, name="h{}") if (run.method, run.hold_out) != ("method4", "h1")]
    figure = many_methods(Comparison(runs).numbers)
    assert [len(dots(figure, place)) for place in range(3)] == [8, 9, 8]
