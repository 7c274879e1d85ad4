"""What is drawn equals the numbers, nothing overlaps, and files are written whole."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from made_results import many, result, results
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gated_domains.data import files
from gated_domains.data.errors import DataError
from gated_domains.reports import Comparison, draw_comparison, draw_gates
from gated_domains.reports.pictures import comparison_figure, gates_figure

RNG = np.random.default_rng(0)
NAMES = ("north", "south", "east")


def gates(rows: int = 60, bases: int = 4) -> dict[str, object]:
    return {
        "beta": RNG.dirichlet(np.ones(bases), rows),
        "domains": np.arange(rows) % 3,
        "domain_names": NAMES,
        "unseen": ("south",),
        "coverage": RNG.uniform(size=rows),
    }


def dots(figure: Figure, place: int) -> np.ndarray:
    return np.concatenate([drawn.get_offsets() for drawn in figure.axes[place].collections])


def test_every_seed_is_a_dot_and_the_mean_a_stroke() -> None:
    scores = {"erm": {"a": [0.5, 0.6], "b": [0.7, 0.9]}, "gdu": {"a": [0.4, 0.8], "b": [0.6, 0.65]}}
    figure = comparison_figure(Comparison(results(scores)))
    expected = [score for found in scores.values() for pair in found.values() for score in pair]
    np.testing.assert_allclose(sorted(dots(figure, 0)[:, 0]), np.sort(expected) * 100)
    strokes = [float(line.get_xdata()[0]) for line in figure.axes[0].lines]
    assert sorted(strokes) == pytest.approx([55, 60, 62.5, 80])
    np.testing.assert_allclose(sorted(dots(figure, 1)[:, 0]), [50, 60, 72.5, 75])


def test_missing_runs_leave_a_gap_and_no_error() -> None:
    comparison = Comparison([result("erm", "a"), result("erm", "b"), result("gdu", "a")])
    assert len(dots(comparison_figure(comparison), 0)) == 3


def test_nothing_complete_is_drawn_all_the_same() -> None:
    figure = comparison_figure(Comparison([result("erm", "a"), result("gdu", "b")]))
    assert not figure.axes[-1].collections


def boxes(figure: Figure, which: str) -> list:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return [
        [label.get_window_extent(canvas.get_renderer()) for label in getattr(axis, which)() if label.get_text()]
        for axis in figure.axes
    ]


@pytest.mark.parametrize(
    ("methods", "hold_outs", "seeds"),
    [(1, 1, 1), (2, 2, 1), (12, 2, 2), (3, 5, 2), (17, 5, 5), (9, 7, 1), (3, 32, 1)],
)
def test_labels_do_not_overlap(methods: int, hold_outs: int, seeds: int) -> None:
    figure = comparison_figure(Comparison(many(methods, hold_outs, seeds)))
    for labels in boxes(figure, "get_yticklabels"):
        heights = sorted((box.y0, box.y1) for box in labels)
        assert all(below[1] <= above[0] + 1 for below, above in pairwise(heights))
    renderer = FigureCanvasAgg(figure).get_renderer()
    titles = [axis._left_title.get_window_extent(renderer) for axis in figure.axes if axis.get_title("left")]
    in_order = sorted(titles, key=lambda box: (round(box.y0), box.x0))
    beside = [(left, right) for left, right in pairwise(in_order) if round(left.y0) == round(right.y0)]
    assert all(left.x1 <= right.x0 for left, right in beside)
    assert max(box.x1 for box in titles) <= figure.bbox.x1


def test_methods_past_the_last_colour_change_their_marker() -> None:
    figure = comparison_figure(Comparison(many(12, 13, 1)))
    looks = {
        (tuple(drawn.get_facecolor()[0]), drawn.get_paths()[0].vertices.shape) for drawn in figure.axes[0].collections
    }
    assert len(looks) == 12


def test_many_methods_have_a_line_each_and_a_panel_a_hold_out() -> None:
    comparison = Comparison(many(9, 3, 2, name="h{}"))
    figure = comparison_figure(comparison)
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
    panel = comparison_figure(comparison).axes[1]
    dashed = [line for line in panel.lines if line.get_linestyle() == "--"]
    erm = comparison.numbers.rows[0].cells["h0"].mean
    assert [line.get_xdata()[0] for line in dashed] == [pytest.approx(100 * erm)]
    colours = [tuple(drawn.get_facecolor()[0][:3]) for drawn in panel.collections]
    assert len(set(colours)) == 3
    assert colours.count(colours[3]) == colours.count(colours[0]) == 1


def test_of_many_methods_missing_runs_leave_gaps() -> None:
    runs = [run for run in many(9, 2, 1, name="h{}") if (run.method, run.hold_out) != ("method4", "h1")]
    figure = comparison_figure(Comparison(runs))
    assert [len(dots(figure, place)) for place in range(3)] == [8, 9, 8]


def test_the_oracle_is_marked_in_the_picture() -> None:
    figure = comparison_figure(Comparison([result(oracle=True)]))
    assert figure._suptitle is not None
    assert "ORACLE" in figure._suptitle.get_text()


def test_the_map_is_the_mean_by_domain_with_the_unseen_last() -> None:
    given = gates()
    figure = gates_figure(**given)
    (image,) = figure.axes[0].images
    for place, index in enumerate([0, 2, 1]):
        mine = [given["beta"][row] for row in range(60) if row % 3 == index]
        np.testing.assert_allclose(image.get_array()[place], sum(mine) / len(mine))
        covered = [given["coverage"][row] for row in range(60) if row % 3 == index]
        assert figure.axes[1].patches[place].get_width() == pytest.approx(sum(covered) / len(covered))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["north", "east", "south  (unseen)"]


def test_gates_without_coverage_have_one_panel() -> None:
    assert len(gates_figure(**{**gates(), "coverage": None}).axes) == 1


def test_negative_weights_have_a_colour_of_their_own() -> None:
    given = gates()
    figure = gates_figure(**{**given, "beta": given["beta"] - 0.5})
    (image,) = figure.axes[0].images
    assert image.get_clim()[0] == -image.get_clim()[1]
    assert gates_figure(**given).axes[0].images[0].get_clim()[0] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": np.ones(60)}, r"\(60,\)"),
        ({"beta": np.full((60, 2), np.nan)}, "gates hold NaN"),
        ({"coverage": np.full(60, np.inf)}, "coverage hold NaN or infinity"),
        ({"coverage": np.ones(3)}, r"got \(3,\) for 60 rows"),
        ({"domains": np.zeros(3, int)}, "a domain for every row"),
    ],
)
def test_gates_that_cannot_be_drawn_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        gates_figure(**{**gates(), **change})


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_the_suffix_chooses_the_kind(tmp_path: Path, suffix: str) -> None:
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    given = gates()
    written = [
        draw_comparison(Comparison(many(2, 2, 2)), tmp_path / f"c{suffix}"),
        draw_gates(given.pop("beta"), tmp_path / f"g{suffix}", **given),
    ]
    assert all(path.read_bytes().startswith(starts[suffix.lower()]) for path in written)
    assert sorted(tmp_path.iterdir()) == sorted(written)


def test_another_kind_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"c\.gif: a picture is written as"):
        draw_comparison(Comparison([result()]), tmp_path / "c.gif")


def test_odd_names_are_drawn_letter_by_letter(tmp_path: Path) -> None:
    scores = {"erm": {"cost $a$ and $b": [0.5], "_hidden": [0.6], "病院": [0.7], "x" * 200: [0.4], "<&>": [0.3]}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_comparison(Comparison(results(scores, data="a $ data set " * 20)), tmp_path / "c.svg")


def test_a_dollar_in_a_name_opens_no_formula() -> None:
    figure = comparison_figure(Comparison(results({"erm": {"$a$": [0.5]}}, label="$m$")))
    labels = [label.get_text() for axis in figure.axes for label in axis.get_yticklabels()]
    assert labels == [r"\$a\$", r"\$m\$"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        draw_comparison(Comparison([result()]), tmp_path / "c.png")
    assert list(tmp_path.iterdir()) == []


def test_no_global_state_of_pyplot_is_touched(tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    draw_comparison(Comparison([result()]), tmp_path / "c.png")
    assert ("matplotlib.pyplot" in sys.modules) == before
