"""What the figures of a comparison show equals what the run folders hold; captions say no more than the numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from made_folders import CLASSES, SCORES, a_curve, a_run, gathered, some_predictions
from made_results import many, result, results

from gated_domains.reports import Comparison
from gated_domains.reports.charts import Chart, Marks
from gated_domains.reports.charts.drawn import write_chart
from gated_domains.reports.charts.on_page import plotly_figure
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures import FIGURES, comparison_charts
from gated_domains.reports.figures.runs import evenly
from gated_domains.reports.summary import Numbers
from gated_domains.runs.collection import RunCollection, gather
from gated_domains.runs.result import RunResult

HOSTILE = "<script>alert(1)</script>$x$"
CELLS = [(method, name, scores) for method, found in SCORES.items() for name, scores in found.items()]


def numbers_of(found: RunCollection, **settings: Any) -> Numbers:
    return Comparison(found.results, **settings).numbers


def palette_of(numbers: Numbers) -> Palette:
    return Palette([(row.method, row.label) for row in numbers.rows], numbers.hold_outs)


def chart_of(name: str, found: RunCollection, **settings: Any) -> Chart | None:
    numbers = numbers_of(found, **settings)
    return FIGURES[name](numbers, found, palette_of(numbers))


def made(name: str, root: Path, runs: Sequence[RunResult] | None = None, **others: Any) -> Chart:
    chart = chart_of(name, gathered(root, runs, **others))
    assert chart is not None
    return chart


def marks_of(chart: Chart, place: int = 0, **wanted: Any) -> list[Marks]:
    return [
        marks
        for marks in chart.panels[place].marks
        if all(getattr(marks, name) == value for name, value in wanted.items())
    ]


def values(found: Sequence[Marks], along: str) -> list[float]:
    return [value for marks in found for value in getattr(marks, along)]


def draws(chart: Chart, folder: Path) -> None:
    """On the page and on paper."""
    figure = plotly_figure(chart)
    json.dumps(figure, allow_nan=False)
    go.Figure(data=figure["data"], layout=figure["layout"])
    write_chart(chart, folder, kinds=("svg",))


def test_all_figures_are_made_drawn_and_named_as_they_are_listed(tmp_path: Path) -> None:
    found = gathered(tmp_path / "runs")
    numbers = numbers_of(found)
    charts = comparison_charts(numbers, found, palette_of(numbers))
    assert list(charts) == list(FIGURES) == [chart.key for chart in charts.values()]
    for chart in charts.values():
        draws(chart, tmp_path)
        assert chart.runs > 0
        assert chart.caption.endswith(".")


@pytest.mark.parametrize(("method", "hold_out", "scores"), CELLS)
def test_every_seed_is_a_dot_and_their_mean_a_stroke(
    tmp_path: Path, method: str, hold_out: str, scores: list[float]
) -> None:
    chart = made("scores", tmp_path)
    place = chart.panels[0].y.categories.index(hold_out)
    mine = marks_of(chart, name=method.upper(), domain=hold_out)
    assert values([marks for marks in mine if marks.form == "dots"], "x") == pytest.approx([100 * s for s in scores])
    assert values([marks for marks in mine if marks.form == "strokes"], "x") == pytest.approx([50 * sum(scores)])
    assert all(round(y) == place for y in values(mine, "y"))


def test_the_caption_counts_the_domains_where_a_method_is_ahead(tmp_path: Path) -> None:
    chart = made("scores", tmp_path)
    assert "higher than that of ERM: GDU 2 of 3." in chart.caption
    assert chart.counted.endswith("12 runs.")


def test_of_many_hold_outs_those_that_methods_differ_most_in_are_shown(tmp_path: Path) -> None:
    runs = [
        result(method, f"fold {place}", 0, 0.5 + (place / 200 if method == "gdu" else 0.0))
        for method in ("erm", "gdu")
        for place in range(60)
    ]
    chart = made("scores", tmp_path, runs)
    assert chart.panels[0].y.categories == tuple(f"fold {place}" for place in range(20, 60))
    assert "Of 60 hold-outs, the 40 that methods differ most in are shown." in chart.caption


def test_differences_are_over_domains_with_the_interval_on_a_new_one(tmp_path: Path) -> None:
    scores = {
        "erm": {"a": [0.5, 0.6], "b": [0.4, 0.4], "c": [0.7, 0.72], "d": [0.3, 0.35]},
        "gdu": {"a": [0.55, 0.6], "b": [0.38, 0.41], "c": [0.71, 0.75], "d": [0.4, 0.35]},
    }
    chart = made("differences", tmp_path, results(scores))
    gaps = {name: 100 * np.subtract(scores["gdu"][name], scores["erm"][name]).mean() for name in scores["gdu"]}
    (overall,) = marks_of(chart, domain=None)
    means = np.array(list(gaps.values()))
    assert overall.x[0] == pytest.approx(means.mean())
    reach = 3.182446 * means.std(ddof=1) / math.sqrt(4)  # t at 97.5 % with 3 degrees of freedom
    assert (overall.low or ())[0] == pytest.approx(means.mean() - reach, rel=1e-5)
    assert (overall.high or ())[0] == pytest.approx(means.mean() + reach, rel=1e-5)
    for name, gap in gaps.items():
        assert values(marks_of(chart, domain=name), "x") == pytest.approx([gap])
    assert "The 95 % interval on a new domain includes zero for GDU." in chart.caption


def test_one_pair_has_a_difference_and_no_interval(tmp_path: Path) -> None:
    chart = made("differences", tmp_path / "runs", results({"erm": {"a": [0.5]}, "gdu": {"a": [0.75]}}))
    (overall,) = marks_of(chart, domain=None)
    assert overall.x == pytest.approx((25.0,))
    assert all(math.isnan(end[0]) for end in (overall.low, overall.high) if end)
    assert "interval" not in chart.caption
    draws(chart, tmp_path)


def test_without_a_baseline_there_is_no_difference(tmp_path: Path) -> None:
    assert chart_of("differences", gathered(tmp_path, results({"gdu": {"a": [0.5]}}))) is None


def test_worst_and_mean_are_those_of_each_seed(tmp_path: Path) -> None:
    chart = made("worst_mean", tmp_path)
    by_seed = 100 * np.array(list(SCORES["gdu"].values()))
    seeds, mean = marks_of(chart, name="GDU")
    assert seeds.x == pytest.approx(by_seed.mean(axis=0).tolist())
    assert seeds.y == pytest.approx(by_seed.min(axis=0).tolist())
    assert mean.y == pytest.approx([by_seed.min(axis=0).mean()])
    assert mean.size > seeds.size
    assert "GDU has the best mean, 75.3, and ERM the best worst domain, 65.0." in chart.caption


def test_one_held_out_domain_has_no_worst(tmp_path: Path) -> None:
    assert chart_of("worst_mean", gathered(tmp_path, results({"erm": {"a": [0.5, 0.6]}}))) is None


def test_of_an_error_the_worst_is_the_largest(tmp_path: Path) -> None:
    runs = results({"erm": {"a": [2.0], "b": [3.0]}}, metric="rmse", higher_is_better=False)
    chart = made("worst_mean", tmp_path, runs)
    assert values(marks_of(chart), "y") == [3.0]
    assert "Down and to the left is better" in chart.caption


def test_a_run_stands_where_it_scores_on_sources_and_held_out(tmp_path: Path) -> None:
    runs = [result("erm", "a", 0, 0.5, validation_overall=0.9), result("erm", "b", 0, 0.75, validation_overall=None)]
    chart = made("in_out", tmp_path, runs)
    (only,) = marks_of(chart)
    assert (only.x, only.y, only.domain) == (pytest.approx((90.0,)), pytest.approx((50.0,)), "a")
    assert chart.runs == 1
    assert "Lost on average: ERM 40.0 points." in chart.caption
    assert chart.panels[0].rules[0].along == "diagonal"


def test_very_many_cells_are_one_mark_a_method(tmp_path: Path) -> None:
    chart = made("in_out", tmp_path, many(2, 201, 1), curve=(), arrays={})
    assert [(marks.name, len(marks.x), marks.domain) for marks in marks_of(chart)] == [
        ("ERM", 201, None), ("METHOD1", 201, None),
    ]  # fmt: skip


def test_a_curve_is_the_mean_over_runs_in_a_band_of_one_deviation(tmp_path: Path) -> None:
    chart = made("curves", tmp_path)
    titles = [panel.title for panel in chart.panels]
    assert titles == ["validation accuracy in percent", "task loss", "penalty: reconstruction"]
    losses = np.array([[record["train"]["task"] for record in a_curve(run)] for run in results({"erm": SCORES["erm"]})])
    (line,) = marks_of(chart, 1, name="ERM")
    assert line.x == (1.0, 2.0, 3.0)
    assert line.y == pytest.approx(losses.mean(axis=0).tolist())
    assert line.high == pytest.approx((losses.mean(axis=0) + losses.std(axis=0, ddof=1)).tolist())
    (score,) = marks_of(chart, 0, name="GDU")
    assert score.y == pytest.approx((50.5, 60.5, 70.5))
    assert [marks.name for marks in marks_of(chart, 2)] == ["GDU"]


def test_curves_of_unequal_length_and_without_numbers_are_drawn(tmp_path: Path) -> None:
    runs = results({"erm": {"a": [0.5, 0.6]}})
    short, long = (a_curve(run, epochs) for run, epochs in zip(runs, (1, 3), strict=True))
    long[1]["train"]["task"] = math.nan
    for number, (run, curve) in enumerate(zip(runs, (short, long), strict=True)):
        a_run(tmp_path / "runs" / str(number), run, curve=curve)
    chart = chart_of("curves", gather([tmp_path / "runs"]))
    assert chart is not None
    (line,) = marks_of(chart, 1)
    assert line.x == (1.0, 3.0)
    assert line.y == pytest.approx(((1.5 + 1.6) / 2, 1.6 / 3))
    assert "stop early" in chart.caption
    draws(chart, tmp_path)


def test_of_many_runs_some_curves_are_read_and_it_says_so(tmp_path: Path) -> None:
    chart = made("curves", tmp_path, many(2, 40, 2), epochs=1, arrays={})
    assert chart.runs == 120
    assert "Drawn from 120 of 160 runs, evenly over methods and hold-outs." in chart.caption


def test_evenly_takes_both_ends_and_no_item_twice() -> None:
    assert evenly(range(10), 4) == [0, 3, 6, 9]
    assert evenly(range(3), 4) == [0, 1, 2]
    assert evenly(range(10), 1) == [0]


def test_reliability_is_that_of_the_held_out_rows(tmp_path: Path) -> None:
    chart = made("reliability", tmp_path)
    confidence, right = [], []
    for run in results({"gdu": SCORES["gdu"]}):
        arrays = some_predictions(run)
        for output, target, part in zip(arrays["output"], arrays["targets"], arrays["part"], strict=True):
            if part == 1:
                confidence.append(float(output.max()))
                right.append(bool(output.argmax() == target))
    points, error = [], 0.0
    for low in range(10):
        mine = [
            at for at, sure in enumerate(confidence) if low / 10 <= sure < (low + 1) / 10 or (low == 9 and sure == 1)
        ]
        if mine:
            sure, often = np.mean([confidence[at] for at in mine]), np.mean([right[at] for at in mine])
            points.append((100 * sure, 100 * often))
            error += len(mine) / len(right) * abs(sure - often)
    (drawn,) = marks_of(chart, name="GDU", form="dots")
    np.testing.assert_allclose(np.stack([drawn.x, drawn.y], axis=1), points, rtol=1e-5)
    assert f"GDU {100 * error:.1f}" in chart.caption
    assert f"expected calibration error {100 * error:.1f} points" in drawn.hover[0]


@pytest.mark.parametrize("name", ["reliability", "confusion"])
def test_what_needs_classes_is_left_out_where_there_are_none(tmp_path: Path, name: str) -> None:
    numbers = results({"erm": {"a": [2.0]}}, metric="rmse", higher_is_better=False)
    assert chart_of(name, gathered(tmp_path / "numbers", numbers, class_names=())) is None
    assert chart_of(name, gathered(tmp_path / "lost", arrays={})) is None
    odd = {"output": np.ones(4), "targets": np.ones(4), "part": np.ones(4, np.uint8)}
    assert chart_of(name, gathered(tmp_path / "odd", arrays=odd)) is None


def test_confusion_is_of_the_worst_domain_of_the_best_method_and_the_baseline(tmp_path: Path) -> None:
    chart = made("confusion", tmp_path)
    assert [panel.title for panel in chart.panels] == ["GDU", "ERM"]
    assert {panel.domain for panel in chart.panels} == {"street"}
    counts = np.zeros((3, 3))
    for run in results({"gdu": {"street": SCORES["gdu"]["street"]}}):
        arrays = some_predictions(run)
        for output, target, part in zip(arrays["output"], arrays["targets"], arrays["part"], strict=True):
            counts[target, output.argmax()] += part == 1
    heat = chart.panels[0].heat
    assert heat is not None
    assert heat.rows == heat.columns == CLASSES
    np.testing.assert_allclose(heat.values, 100 * counts / counts.sum(axis=1, keepdims=True))
    assert "street is what GDU, best on average, does worst at: 61.0." in chart.caption
    assert chart.runs == 4


def test_a_class_without_rows_is_empty_and_many_classes_are_cut(tmp_path: Path) -> None:
    classes, rows = 30, 90
    targets = np.arange(rows) % (classes - 1)
    said = np.where(targets < 25, (targets + 1) % classes, targets)  # 25 classes are always taken for the next
    arrays = {"output": np.eye(classes)[said], "targets": targets, "part": np.ones(rows, np.uint8)}
    runs = results({"erm": {"a": [0.5]}})
    names = [f"kind {number}" for number in range(classes)]
    chart = made("confusion", tmp_path / "many", runs, arrays=arrays, class_names=names)
    assert chart.panels[0].heat is not None
    assert set(chart.panels[0].heat.rows) < set(names[:25])
    assert "Of 30 classes, the 20 with the most errors are shown." in chart.caption
    few = {"output": np.eye(3)[[0, 1]], "targets": np.array([0, 1]), "part": np.ones(2, np.uint8)}
    chart = made("confusion", tmp_path / "few", runs, arrays=few)
    assert chart.panels[0].heat is not None
    assert np.isnan(chart.panels[0].heat.values[2]).all()
    draws(chart, tmp_path)


def test_cost_is_the_mean_time_and_the_most_memory(tmp_path: Path) -> None:
    runs = [
        result("erm", "a", seed, 0.5 + seed / 10, seconds=10.0 + seed, peak_memory=None if seed else 2**21)
        for seed in (0, 1)
    ] + [result("gdu", "a", seed, 0.7, seconds=21.0) for seed in (0, 1)]
    chart = made("cost", tmp_path, runs)
    (erm,) = marks_of(chart, 0, name="ERM")
    assert (erm.x, erm.y) == (pytest.approx((10.5,)), pytest.approx((55.0,)))
    assert (erm.high or ())[0] - erm.y[0] == pytest.approx(100 * np.std([0.5, 0.6], ddof=1))
    assert [(marks.name, marks.x) for marks in marks_of(chart, 1)] == [("ERM", (2.0,))]
    assert "GDU takes 2.0 times as long as ERM." in chart.caption


def test_memory_that_nobody_measured_has_no_panel(tmp_path: Path) -> None:
    assert len(made("cost", tmp_path).panels) == 1


def test_another_metric_finds_the_same_folders(tmp_path: Path) -> None:
    scored = {"by_domain": {"a": 0.25}, "overall": 0.25}
    run = result("erm", "a").to_json() | {"all_metrics": {part: {"f1": scored} for part in ("validation", "test")}}
    found = gathered(tmp_path, [RunResult.from_json(run)])
    for name in ("scores", "curves", "reliability", "confusion"):
        assert chart_of(name, found, metric="f1") is not None
    scores = chart_of("scores", found, metric="f1")
    assert scores is not None
    assert values(marks_of(scores), "x") == [25.0]


def test_hostile_names_reach_both_drawings_as_text(tmp_path: Path) -> None:
    runs = [result(method, HOSTILE, 0, 0.5, label=f"{method} {HOSTILE}") for method in ("erm", "gdu")]
    found = gathered(tmp_path / "runs", [*runs, result("erm", "plain", 0, 0.6)], class_names=(HOSTILE, "b", "c"))
    numbers = numbers_of(found)
    for chart in comparison_charts(numbers, found, palette_of(numbers)).values():
        draws(chart, tmp_path)
        assert "<script>" not in json.dumps([trace.get("hovertext") for trace in plotly_figure(chart)["data"]])
        assert "<script>" not in json.dumps(plotly_figure(chart)["layout"])


def test_runs_that_share_nothing_are_drawn_as_far_as_they_go(tmp_path: Path) -> None:
    found = gathered(tmp_path / "runs", [result("erm", "a"), result("gdu", "b")], curve=(), arrays={})
    numbers = numbers_of(found)
    charts = comparison_charts(numbers, found, palette_of(numbers))
    assert list(charts) == ["scores", "in_out"]
    for chart in charts.values():
        draws(chart, tmp_path)
