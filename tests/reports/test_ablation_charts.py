"""The figures of the ablations: what is drawn is what was found, holes are holes, words follow the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.reports.ablations.bouldin import bouldin_chart
from gated_domains.reports.ablations.heat_maps import heat_chart, panel_words
from gated_domains.reports.ablations.kept_arrays import ClassPlane, DomainPlane
from gated_domains.reports.ablations.lines import bases_chart, size_chart
from gated_domains.reports.ablations.page import runs_csv, write_figure_of, write_page
from gated_domains.reports.ablations.planes import domains_chart, features_chart
from gated_domains.reports.ablations.setting import (
    GATES,
    MODES,
    STRONG_ORTH,
    Fineness,
    Found,
    Setting,
    heat_map,
    orthogonality_runs,
    over_bases,
    over_sizes,
)
from gated_domains.reports.ablations.training import srip_chart
from gated_domains.reports.ablations.words import difference
from gated_domains.reports.charts.chart import Chart

FINE = Fineness(
    bases={"FT": (2, 5, 10), "E2E": (2, 10)},
    sizes={"FT": (2, 10), "E2E": (2, 10)},
    weights={"FT": (0.0, 0.01, 0.1), "E2E": (0.0, 0.1)},
    clusters=(2, 3, 4),
)
WHERE: dict[str, Any] = {"target": "blended", "title": "Blended"}
JITTER = (-0.125, 0.0, 0.125)
Score = Callable[[Setting], float]


def found(cells: list[Setting], score: Score, *, without: tuple[Setting, ...] = (), jitter: Any = JITTER) -> Found:
    """Three seeds of each, but of those that failed; which seed is the best differs from cell to cell."""
    scores = {
        cell: {seed: score(cell) + by for seed, by in enumerate(_turned(jitter, cell))}
        for cell in cells
        if cell not in without
    }
    return Found(scores=scores, asked=dict.fromkeys(cells, len(jitter)), failed=dict.fromkeys(without, "it broke"))


def _turned(jitter: tuple[float, ...], cell: Setting) -> tuple[float, ...]:
    weights = (cell.lambda_ols, cell.lambda_l1, cell.lambda_orth)
    by = (cell.bases + cell.size + MODES.index(cell.mode) + sum(map(bool, weights))) % len(jitter)
    return (*jitter[by:], *jitter[:by])


def line_cells(make: Any, values: Any) -> list[Setting]:
    lines = [make(mode, values[mode], "blended") for mode in MODES]
    return [
        Setting(method="erm", hold_out="blended"),
        *(cell for each in lines for cells in each.values() for cell in cells),
    ]


def heat_cells(weight: str) -> list[Setting]:
    grids = [heat_map(weight, gate, mode, FINE.weights[mode], "blended") for mode in MODES for gate in GATES]
    return [cell for grid in grids for row in grid for cell in row]


# -- lines ---------------------------------------------------------------------------------------------------------


def test_lines_are_means_over_seeds_with_a_standard_deviation_around() -> None:
    cells = line_cells(over_bases, FINE.bases)
    chart = bases_chart(found(cells, lambda cell: 60.0 + cell.bases), FINE, **WHERE)
    tuned, whole = chart.panels
    assert [marks.name for marks in tuned.marks] == ["CS", "MMD", "projection"]
    assert [marks.name for marks in whole.marks] == ["CS", "MMD", "projection", "GDU as we recommend it"]
    assert tuned.marks[0].x == (2.0, 5.0, 10.0)
    assert tuned.marks[0].y == pytest.approx((62.0, 65.0, 70.0))
    assert tuned.marks[0].high == pytest.approx((62.125, 65.125, 70.125))
    assert whole.marks[-1].y == pytest.approx((62.0, 70.0))
    assert tuned.marks[1].colour == whole.marks[1].colour
    (rule,) = tuned.rules
    assert rule.at == pytest.approx(70.0)  # of ERM, which has the default M here
    assert chart.runs == 3 * len(cells)


def test_the_best_m_is_said_with_what_cannot_be_told_from_it() -> None:
    cells = line_cells(over_bases, FINE.bases)
    clear = bases_chart(found(cells, lambda cell: 60.0 + cell.bases), FINE, **WHERE).caption
    assert "is at 10 (70.0), above all others" in clear
    level = bases_chart(found(cells, lambda cell: 60.0), FINE, **WHERE).caption
    assert "which cannot be told from 5, 10" in level
    assert "standard deviation of 0.1 on average" in level


def test_one_run_has_no_band_and_no_verdict() -> None:
    cells = line_cells(over_sizes, FINE.sizes)
    chart = size_chart(found(cells, lambda cell: 60.0 - cell.size, jitter=(0.0,)), FINE, **WHERE)
    assert chart.panels[0].marks[0].low is None
    assert "how much is noise is not known" in chart.caption
    assert "N 2 less N 10: +8.0 points (1 seed, no interval), which is not significant" in chart.caption


@pytest.mark.parametrize(("slope", "verdict"), [(-1.0, "which agrees with it"), (1.0, "which disagrees with it")])
def test_that_smaller_n_is_better_is_checked(slope: float, verdict: str) -> None:
    cells = line_cells(over_sizes, FINE.sizes)
    assert verdict in size_chart(found(cells, lambda cell: 60.0 + slope * cell.size), FINE, **WHERE).caption


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_equal_gaps_have_no_interval_and_no_sign(seeds: int) -> None:
    said, sign = difference(dict.fromkeys(range(seeds), 62.0), dict.fromkeys(range(seeds), 60.0))
    assert sign == 0
    assert said.startswith("+2.0 points")
    assert "no interval" in said


def test_fine_tuned_heads_are_set_against_networks_with_the_same_gate_and_m_alone() -> None:
    cells = line_cells(over_bases, FINE.bases)  # M 5 in FT alone
    lost = tuple(cell for cell in cells if (cell.mode, cell.gate) == ("FT", "projection"))

    def score(cell: Setting) -> float:
        other = 30.0 * (cell.bases == 5) - 20.0 * (cell.gate == "projection")  # what one mode alone has
        return 60.0 + other + cell.bases + (cell.mode == "E2E")

    caption = bases_chart(found(cells, score, without=lost), FINE, **WHERE).caption
    assert "FT above E2E: over 4 cells (gate, M) of both -1.0 points" in caption
    assert "3 seeds), which disagrees with it" in caption


def test_a_seed_that_one_mode_lacks_is_left_out_of_its_cell_and_of_no_other() -> None:
    cells = line_cells(over_bases, FINE.bases)
    there = found(cells, lambda cell: 60.0 + 10 * (cell.mode == "FT") + cell.bases)
    lacking = next(cell for cell in cells if (cell.mode, cell.gate, cell.bases) == ("FT", "mmd", 10))
    scores = {**there.scores, lacking: {0: there.scores[lacking][0]}}
    caption = bases_chart(Found(scores=scores, asked=there.asked), FINE, **WHERE).caption
    assert "over 6 cells (gate, M) of both +10.0 points" in caption
    assert "3 seeds), which agrees with it" in caption


def test_a_failed_cell_is_left_out_of_its_line_and_noted() -> None:
    cells = line_cells(over_bases, FINE.bases)
    lost = next(cell for cell in cells if (cell.gate, cell.bases) == ("mmd", 5))
    chart = bases_chart(found(cells, lambda _: 60.0, without=(lost,)), FINE, **WHERE)
    assert chart.panels[0].marks[1].x == (2.0, 10.0)
    assert "3 runs missing: it broke." in chart.caption


def test_without_any_run_there_is_a_chart_that_says_so() -> None:
    nothing = Found(scores={}, asked={})
    charts = [bases_chart(nothing, FINE, **WHERE), heat_chart("lambda_l1", nothing, FINE, **WHERE)]
    for chart in charts:
        assert "there is no run yet" in chart.caption.lower()
        assert chart.runs == 0
    assert not srip_chart(nothing, **WHERE).panels[0].marks


# -- heat-maps -----------------------------------------------------------------------------------------------------


def test_heat_maps_hold_the_mean_of_every_cell_by_row_and_column() -> None:
    def score(cell: Setting) -> float:
        return 50.0 + 100 * (cell.lambda_ols or 0) + 10 * (cell.lambda_orth or 0) + len(cell.gate)

    chart = heat_chart("lambda_orth", found(heat_cells("lambda_orth"), score), FINE, **WHERE)
    assert [panel.title for panel in chart.panels] == [
        "FT CS (not in the paper)", "FT MMD (not in the paper)", "FT projection",
        "E2E CS (not in the paper)", "E2E MMD (not in the paper)", "E2E projection",
    ]  # fmt: skip
    heat = chart.panels[0].heat
    assert heat is not None
    assert (heat.rows, heat.columns) == (("0", "0.01", "0.1"), ("0", "0.01", "0.1"))
    assert heat.values[2] == pytest.approx((66.0, 66.1, 67.0))
    assert [row[0] for row in heat.values] == pytest.approx([56.0, 57.0, 66.0])
    assert all(panel.heat is not None and panel.heat.low == pytest.approx(53.0) for panel in chart.panels)


def test_a_diverged_run_is_a_hole_and_a_note() -> None:
    cells = heat_cells("lambda_l1")
    lost = cells[1]
    chart = heat_chart("lambda_l1", found(cells, lambda _: 60.0, without=(lost,)), FINE, **WHERE)
    heat = chart.panels[0].heat
    assert heat is not None
    assert math.isnan(heat.values[0][1])
    assert sum(math.isnan(value) for row in heat.values for value in row) == 1
    assert "3 runs missing: it broke." in chart.caption


def _on(cell: Setting) -> float:
    return 60.0 + 2.0 * sum(bool(value) for value in (cell.lambda_ols, cell.lambda_l1))


@pytest.mark.parametrize(
    ("score", "verdict"),
    [
        (_on, "ours agree in 4, disagree in 0, and in 0 the difference"),
        (lambda cell: 120.0 - _on(cell), "ours agree in 0, disagree in 4, and in 0 the difference"),
        (lambda _: 60.0, "ours agree in 0, disagree in 0, and in 4 the difference"),
    ],
)
def test_whether_penalties_bring_anything_is_counted_over_the_papers_heat_maps(score: Score, verdict: str) -> None:
    assert verdict in heat_chart("lambda_l1", found(heat_cells("lambda_l1"), score), FINE, **WHERE).caption


def test_each_heat_map_has_a_line_of_words() -> None:
    lines = panel_words("lambda_l1", found(heat_cells("lambda_l1"), _on), FINE, target="blended")
    assert len(lines) == 6
    assert lines[0].startswith(
        "FT CS: accuracy spans 60.0 to 64.0, with both penalties off 60.0; both on less both off"
    )


def test_the_constant_penalty_of_softmax_gates_is_named() -> None:
    there = found(heat_cells("lambda_l1"), _on)
    assert "is a constant" in heat_chart("lambda_l1", there, FINE, **WHERE).caption
    assert "is a constant" not in heat_chart("lambda_orth", there, FINE, **WHERE).caption


# -- by epoch ------------------------------------------------------------------------------------------------------


def _curve(srip: list[float], task: float = 1.0) -> list[dict[str, Any]]:
    return [
        {"epoch": n, "train": {"task": task / (n + 1)}, "measures": {"srip": value}} for n, value in enumerate(srip)
    ]


def test_srip_and_loss_are_means_by_epoch_as_far_as_all_runs_go() -> None:
    cells = [cell for mode in MODES for cell in orthogonality_runs(mode, "blended").values()]
    curves = {cell: {0: _curve([1.0, 2.0, 9.0]), 1: _curve([3.0, 4.0])} for cell in cells}
    there = Found(scores={cell: {0: 1.0, 1: 1.0} for cell in cells}, asked=dict.fromkeys(cells, 2), curves=curves)
    chart = srip_chart(there, **WHERE)
    assert [panel.title.partition(":")[0] for panel in chart.panels] == ["FT", "FT", "E2E", "E2E"]
    without, paper, strong = chart.panels[0].marks
    assert without.x == (1.0, 2.0)
    assert without.y == pytest.approx((2.0, 3.0))
    assert without.high == pytest.approx((2.0 + math.sqrt(2), 3.0 + math.sqrt(2)))
    assert (paper.form, strong.form) == ("dots", "line")
    assert chart.panels[1].marks[0].y == pytest.approx((1.0, 0.5))
    assert "SRIP goes from 2.00 after the first epoch to 3.00" in chart.caption
    assert chart.runs == 12


def test_cross_entropy_is_paired_by_seed() -> None:
    tasks = {0: 10.0, 1: 20.0, 2: 40.0}
    curves = {}
    for mode in MODES:
        for cell in orthogonality_runs(mode, "blended").values():
            strong = cell.lambda_orth == STRONG_ORTH
            seeds = (2, 1) if strong else (0, 1, 2)  # one is not there, and they are found in another order
            more = {1: 0.5, 2: 1.5} if strong else {}
            curves[cell] = {seed: _curve([1.0], tasks[seed] + more.get(seed, 0.0)) for seed in seeds}
    scores = {cell: dict.fromkeys(by_seed, 1.0) for cell, by_seed in curves.items()}
    caption = srip_chart(Found(scores=scores, asked={}, curves=curves), **WHERE).caption
    assert caption.count("with 0.1 less without: +1.000 (95 % interval -5.353 to +7.353, 2 seeds)") == 2


# -- clusters and planes ---------------------------------------------------------------------------------------------


def test_the_curve_of_clusters_marks_the_best_and_says_what_lies_within_the_spread() -> None:
    scores = {"features": [[3.0, 1.0, 2.0], [3.2, 1.2, 2.2]], "tsne": [[1.0, 1.1, 3.0], [1.2, 0.9, 3.0]]}
    chart = bouldin_chart(scores, (2, 3, 4), networks=2, title="Blended")
    line, best = chart.panels[0].marks
    assert line.y == pytest.approx((3.1, 1.1, 2.1))
    assert best.x == (3.0,)
    assert best.y == pytest.approx((1.1,))
    assert "On the features: best at M = 3 (1.10 ± 0.14), which does not agree with the paper" in chart.caption
    assert "with 2 within the spread" in chart.caption


def test_a_best_m_of_ten_to_twelve_agrees_with_the_paper() -> None:
    scores = {"features": [[3.0, 1.0, 2.0]]}
    assert "which agrees with the paper" in bouldin_chart(scores, (9, 11, 13), networks=1, title="").caption


@pytest.mark.parametrize(
    ("clusters", "verdict"),
    [
        ((11, 3, 4), "with 11 within the spread, which cannot be told from the paper's."),
        ((5, 3, 11), "with 5 within the spread, which does not agree with the paper."),
        ((5, 11, 4), "with 5 within the spread, which agrees with the paper."),
    ],
)
def test_one_of_the_papers_within_the_spread_of_another_best_leaves_it_open(
    clusters: tuple[int, ...], verdict: str
) -> None:
    scores = {"features": [[1.2, 1.0, 3.0], [1.0, 1.1, 3.1]]}
    assert verdict in bouldin_chart(scores, clusters, networks=2, title="").caption


def _classes(level: float) -> ClassPlane:
    return ClassPlane(
        rows=np.array([[0, 1], [2, 3], [4, 5]], np.float32),
        labels=np.array([0, 1, 0]),
        classes=np.array(["zero", "one"]),
        in_features=np.array([level, level + 0.2]),
        in_plane=np.array([level, level]),
    )


def test_rows_are_drawn_by_true_label_and_concentration_is_compared_over_seeds() -> None:
    planes = {
        "ERM": {seed: _classes(0.1 + by) for seed, by in enumerate((0.0, 0.01, 0.02))},
        "GDU": {seed: _classes(0.5 + by) for seed, by in enumerate((0.01, 0.01, 0.01))},
    }
    chart = features_chart(planes, title="Numbers")
    zero, one = chart.panels[1].marks
    assert (zero.x, zero.y, one.x) == ((0.0, 4.0), (1.0, 5.0), (2.0,))
    assert zero.name == "zero"
    assert "ERM 0.21 ± 0.01, GDU 0.61 ± 0.00; the second less the first +0.40" in chart.caption
    assert "which agrees with it" in chart.caption
    assert chart.runs == 6
    swapped = features_chart({"ERM": planes["GDU"], "GDU": planes["ERM"]}, title="Numbers")
    assert "which disagrees with it" in swapped.caption


def _domains() -> DomainPlane:
    return DomainPlane(
        rows=np.arange(8, dtype=np.float32).reshape(4, 2),
        domains=np.array([0, 1, 0, 2]),
        names=np.array(["a", "b", "c"]),
        unseen=np.array([False, False, True]),
        bases=np.array([[9, 9], [8, 8]], np.float32),
        basis_of=np.array([0, 1]),
        width=np.array([0.1, 0.9]),
        away=np.array([0.2, 0.1]),
    )


def test_sources_stand_on_the_left_and_the_unseen_domain_with_the_bases_on_the_right() -> None:
    chart = domains_chart([_domains()], title="c")
    left, right = chart.panels
    assert [(marks.name, len(marks.x)) for marks in left.marks] == [("a", 2), ("b", 1)]
    assert [(marks.name, len(marks.x)) for marks in right.marks] == [("sources", 3), ("c (unseen)", 1), ("bases", 2)]
    assert right.marks[-1].x == (9.0, 8.0)
    assert right.marks[-1].hover == ("basis 1", "basis 2")
    assert "of 2 bases 1.0 are dense" in chart.caption
    assert "2.0 lie among the sources" in chart.caption
    assert "here 1.0 are both" in chart.caption


def test_planes_are_kept_and_read_again(tmp_path: Path) -> None:
    assert DomainPlane.read(tmp_path) is None
    _domains().write(tmp_path)
    again = DomainPlane.read(tmp_path)
    assert again is not None
    for name, value in vars(_domains()).items():
        np.testing.assert_array_equal(getattr(again, name), value)
    np.savez(tmp_path / ClassPlane.FILE, rows=np.zeros(2))
    with pytest.raises(DataError, match="delete it to have it made again"):
        ClassPlane.read(tmp_path)


# -- on disk -------------------------------------------------------------------------------------------------------


def _chart(key: str, title: str) -> Chart:
    return replace(domains_chart([_domains()], title=title), key=key)


def test_the_page_has_the_words_of_every_figure_that_was_drawn_in_the_order_asked_for(tmp_path: Path) -> None:
    cell = Setting(method="paper", hold_out="c", gate="mmd", lambda_ols=0.1)
    there = Found(scores={cell: {1: 51.5, 0: 50.25}}, asked={cell: 2})
    for key in ("second", "first"):
        written = write_figure_of(_chart(key, "<script>"), there, tmp_path, words=["a line"], notes=["a note"])
        assert {path.name for path in written} >= {f"{key}.svg", f"{key}.png", f"{key}.pdf", f"{key}.csv", f"{key}.md"}
    page, *_ = write_page(tmp_path, about="QUICK: so.", order=["first", "second", "third"])
    text = page.read_text("utf-8")
    assert text.index("first.png") < text.index("second.png")
    assert "third" not in text
    assert "- a line" in text
    assert "- a note" in text
    assert "<script>" not in text.replace("\\<script>", "")
    assert "1 run." in text
    lines = (tmp_path / "first-runs.csv").read_text().splitlines()
    assert lines == runs_csv(there).splitlines()
    assert lines[1:] == ["paper,c,mmd,E2E,10,10,0.1,,,0,50.25", "paper,c,mmd,E2E,10,10,0.1,,,1,51.5"]
