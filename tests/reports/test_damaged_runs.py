"""Runs that are damaged, or very many: what is wrong is listed and passed over, what is too much is cut and said."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_folders import a_curve, a_run, some_predictions
from made_insights import an_insight
from made_results import result
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.reports import Comparison
from gated_domains.reports.charts import Chart
from gated_domains.reports.charts.palette import DOMAIN_COLOURS, UNKNOWN, Palette
from gated_domains.reports.figures import FIGURES, gdu_gates, gdu_map, gdu_measures
from gated_domains.reports.figures.runs import MOST_METHODS, as_gathered, some_runs
from gated_domains.reports.summary import Numbers
from gated_domains.runs.collection import RunCollection, gather
from gated_domains.runs.insight import Insight
from gated_domains.runs.result import RunResult

NAMES = ("near", "far", "new")


def measures_of(root: Path, curves: Iterable[list[dict[str, Any]]]) -> Chart | None:
    for seed, curve in enumerate(curves):
        a_run(root / str(seed), result("gdu", "a", seed), curve=curve, arrays={})
    found = gather([root])
    return gdu_measures.chart(found.results, found, palette=Palette())


def entropies(*values: Any) -> list[dict[str, Any]]:
    """Records of epochs in which the gates had these entropies."""
    records = a_curve(result("gdu"), len(values))
    return [record | {"measures": {"gate_entropy": value}} for record, value in zip(records, values, strict=True)]


@pytest.mark.parametrize("damage", [{"gate_entropy": None}, None, {"gate_entropy": "high"}, [], {"gate_entropy": [1]}])
def test_an_epoch_whose_measure_is_no_number_is_passed_over(tmp_path: Path, damage: Any) -> None:
    curve = entropies(0.5, 0.6, 0.7)
    curve[1]["measures"] = damage
    chart = measures_of(tmp_path, [curve])
    assert chart is not None
    (line,) = chart.panels[0].marks
    assert (line.x, line.y) == ((1.0, 3.0), (0.5, 0.7))


def test_a_measure_that_was_never_a_number_has_no_panel(tmp_path: Path) -> None:
    assert measures_of(tmp_path, [entropies(None, None)]) is None


def test_a_measure_is_a_mean_in_a_band_and_ends_with_the_first_that_stops(tmp_path: Path) -> None:
    chart = measures_of(tmp_path, [entropies(0.5, 0.6, 0.7), entropies(0.7, 0.9)])
    assert chart is not None
    (line,) = chart.panels[0].marks
    assert (line.x, line.y) == ((1.0, 2.0), pytest.approx((0.6, 0.75)))
    assert (line.high or ())[0] - line.y[0] == pytest.approx(np.std([0.5, 0.7], ddof=1))
    assert "bands one standard deviation" in chart.caption
    assert "ends with the first that stops" in chart.caption


def test_one_seed_has_neither_band_nor_cut_in_its_caption(tmp_path: Path) -> None:
    chart = measures_of(tmp_path, [entropies(0.5, 0.6)])
    assert chart is not None
    assert "band" not in chart.caption
    assert "stop" not in chart.caption


@pytest.mark.parametrize("value", [None, "much", 10**400, [1], True])
def test_a_curve_passes_over_what_is_no_number(tmp_path: Path, value: Any) -> None:
    curve = a_curve(result())
    curve[1]["train"]["task"] = value
    curve[1]["validation"]["overall"] = value
    chart = figure("curves", comparison_of(gather([a_run(tmp_path / "one", result(), curve=curve)])))
    assert [marks.x for panel in chart.panels for marks in panel.marks] == [(1.0, 3.0)] * 2


@pytest.mark.parametrize("epoch", [-1, 10**400, None])
def test_an_epoch_that_cannot_be_is_noted(tmp_path: Path, epoch: Any) -> None:
    curve = a_curve(result())
    curve[1]["epoch"] = epoch
    found = gather([a_run(tmp_path / "one", result(), curve=curve)])
    assert len(found.curve(found.results[0])) == 1
    assert "line 2" in found.broken[0].why


def test_quantities_past_the_last_panel_are_counted(tmp_path: Path) -> None:
    curve = [record | {"train": {f"loss {place}": 1.0 for place in range(12)}} for record in a_curve(result())]
    chart = figure("curves", comparison_of(gather([a_run(tmp_path / "one", result(), curve=curve)])))
    assert len(chart.panels) == 9
    assert "Of 13 quantities, the first 9 are drawn." in chart.caption


def gated_run(**others: Any) -> RunResult:
    return result("gdu", "new", domain_names=NAMES, **others)


def gates_of(folder: Path, run: RunResult, **arrays: NDArray[Any]) -> tuple[Chart | None, RunCollection]:
    """The gates of a run, six rows of three domains unless told otherwise."""
    whole = {
        "beta": np.tile(np.eye(3), (2, 1)),
        "domains": np.tile(np.arange(3), 2),
        "coverage": np.linspace(0, 1, 6),
    }
    found = gather([a_run(folder, run, arrays={**whole, **arrays})])
    read = found.predictions(found.results[0], "beta", "domains", "coverage")
    return None if read is None else gdu_gates.chart(found.results[0], read, palette=Palette()), found


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("beta", np.ones(6)),
        ("beta", np.full((6, 2), "much")),
        ("beta", np.array(1.0)),
        ("beta", np.ones((5, 2))),
        ("coverage", np.full(6, "all")),
        ("coverage", np.ones((6, 2))),
        ("coverage", np.array(1.0)),
        ("domains", np.array(["near"] * 6)),
        ("domains", np.zeros((6, 1), int)),
        ("domains", np.full(6, 0.5)),
        ("domains", np.full(6, 3)),
        ("domains", np.zeros(5, int)),
    ],
)
def test_gates_that_make_no_sense_are_noted_and_not_drawn(tmp_path: Path, name: str, damage: NDArray[Any]) -> None:
    chart, found = gates_of(tmp_path / "one", gated_run(), **{name: damage})
    assert chart is None
    (noted,) = found.broken
    assert noted.path.name == "predictions.npz"


@pytest.mark.parametrize("name", ["output", "targets", "part"])
@pytest.mark.parametrize("damage", [np.array(1.0), np.full((40, 3), "text"), np.zeros((40, 3, 2))])
def test_predictions_of_a_wrong_kind_or_shape_are_noted(tmp_path: Path, name: str, damage: NDArray[Any]) -> None:
    found = gather([a_run(tmp_path / "one", result(), arrays=some_predictions(result()) | {name: damage})])
    assert found.predictions(found.results[0]) is None
    assert name in found.broken[0].why


def test_a_row_without_a_domain_belongs_to_none(tmp_path: Path) -> None:
    chart, found = gates_of(tmp_path / "one", gated_run(), domains=np.array([0, 1, 2, -1, -1, -1]))
    assert chart is not None
    assert chart.panels[0].heat is not None
    assert chart.panels[0].heat.rows == NAMES
    np.testing.assert_allclose(chart.panels[0].heat.values, np.eye(3))
    assert not found.broken


@pytest.mark.parametrize("domains", [np.full(6, -1), np.full(6, 7)])
def test_without_a_known_domain_no_gates_are_drawn(domains: NDArray[Any]) -> None:
    assert gdu_gates.chart(gated_run(), {"beta": np.ones((6, 2)), "domains": domains}, palette=Palette()) is None


def test_no_rows_and_no_bases_are_not_drawn() -> None:
    for shape in ((0, 2), (6, 0)):
        arrays = {"beta": np.ones(shape), "domains": np.zeros(shape[0], int)}
        assert gdu_gates.chart(gated_run(), arrays, palette=Palette()) is None


def test_the_caption_of_gates_says_what_differs_and_who_is_new(tmp_path: Path) -> None:
    chart, _ = gates_of(tmp_path / "one", gated_run())
    assert chart is not None
    assert f"has a standard deviation of {np.std([1, 0, 0], ddof=1):.3f} over them" in chart.caption
    assert "new (bold) was never seen" in chart.caption
    chart, _ = gates_of(tmp_path / "two", gated_run(test={"far": 0.5, "new": 0.6}))
    assert chart is not None
    assert "far, new (bold) were never seen" in chart.caption


def test_a_map_claims_no_more_than_it_shows() -> None:
    chart = gdu_map.chart(result("gdu", "far"), an_insight(), palette=Palette(), most_bytes=10**6)
    assert "where a cloud has none, no vector shown lies in it." in chart.caption


@pytest.mark.parametrize("kind", ["images", "texts", "table"])
def test_a_whole_insight_is_read_again(tmp_path: Path, kind: str) -> None:
    made = an_insight(kind=kind)
    made.write(tmp_path)
    found = Insight.read(tmp_path)
    assert found is not None
    np.testing.assert_array_equal(found.beta, made.beta)


def test_an_insight_of_several_labels_or_a_number_is_whole(tmp_path: Path) -> None:
    none = {"class_names": np.array([], str), "class_share": np.zeros((4, 0), np.float32)}
    labels = {"targets": np.ones((90, 2)), "predicted": np.zeros(0), "nearest_targets": np.ones((4, 6, 2))}
    number = {"targets": np.ones(90), "predicted": np.ones(90), "nearest_targets": np.ones((4, 6))}
    for others in (labels, number):
        replace(an_insight(), coverage=np.zeros(0, np.float32), **none, **others).write(tmp_path)
        assert Insight.read(tmp_path) is not None


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("beta", np.ones(90)),
        ("beta", np.ones((90, 0))),
        ("beta", np.full((90, 4), "much")),
        ("rows", np.arange(80)),
        ("domains", np.full(90, 3)),
        ("domains", np.full(90, -2)),
        ("domains", np.full(90, 0.5)),
        ("targets", np.full(90, 3)),
        ("predicted", np.zeros(89, int)),
        ("unseen", np.zeros(2, bool)),
        ("unseen", np.zeros(3)),
        ("mmd", np.ones((3, 3))),
        ("domain_share", np.ones((4, 2))),
        ("class_share", np.ones((4, 2))),
        ("mass", np.array(1.0)),
        ("dropping", np.ones((4, 3))),
        ("map_rows", np.ones((90, 3))),
        ("map_bases", np.ones((11, 2))),
        ("map_kind", np.array(["a", "b"])),
        ("nearest_domains", np.zeros((4, 5), int)),
        ("nearest_targets", np.full((4, 6), 9)),
        ("nearest_pictures", np.zeros((4, 6, 5, 5, 2), np.uint8)),
        ("pictures", np.zeros((90, 5, 5, 3), np.uint16)),
        ("texts", np.array(["a"])),
        ("nearest_values", np.full((4, 6, 1), "a")),
        ("coverage", np.ones(3)),
    ],
)
def test_an_insight_that_does_not_go_together_names_the_array(tmp_path: Path, name: str, damage: NDArray[Any]) -> None:
    path = an_insight().write(tmp_path)
    with np.load(path) as whole:
        arrays = dict(whole)
    np.savez(path, **{**arrays, name: damage})
    with pytest.raises(DataError, match="delete it to have it made again") as refused:
        Insight.read(tmp_path)
    # Of rows and bases alone the others say how many there are.
    assert name in ("beta", "rows") or repr(name) in str(refused.value)


def test_a_format_that_is_no_number_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "insight.npz", format=np.array(["one", "two"]))
    with pytest.raises(DataError, match="format"):
        Insight.read(tmp_path)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ({"metric": "acuracy"}, "no metric 'acuracy'"),
        ({"validation": {"by_domain": {"usps": 0.9}, "overall": math.nan}}, "validation accuracy is nan"),
        ({"validation": {"by_domain": {"usps": 0.9}, "overall": math.inf}}, "validation accuracy is inf"),
        ({"all_metrics": {"test": {"f1": {"by_domain": {}, "overall": math.nan}}}}, "test f1 is nan"),
        ({"seconds": math.inf}, "seconds is inf"),
        ({"seed": math.inf}, "infinity"),
        ({"hold_out": "9" * 5000}, "digits"),
        ({"label": "\ud800"}, "surrogate"),
    ],
)
def test_a_result_that_no_table_can_hold_is_listed_and_the_others_are_read(
    tmp_path: Path, damage: dict[str, Any], why: str
) -> None:
    a_run(tmp_path / "whole", result("erm"))
    folder = a_run(tmp_path / "odd", result("gdu"))
    stored = json.loads((folder / "result.json").read_text(encoding="utf-8")) | damage
    (folder / "result.json").write_text(json.dumps(stored), encoding="utf-8")
    found = gather([tmp_path])
    assert [run.method for run in found.results] == ["erm"]
    assert [item.path.name for item in found.broken] == ["odd"]
    assert why in found.broken[0].why


class Watched(RunCollection):
    """Counts what is read."""

    read = 0

    def curve(self, result: RunResult) -> list[dict[str, Any]]:
        self.read += 1
        return a_curve(result, 2)

    def predictions(self, result: RunResult, *wanted: str) -> dict[str, NDArray[Any]]:
        self.read += 1
        return some_predictions(result)


def settings_of(count: int, **others: Any) -> Watched:
    """A run of each of so many settings of a method, the later the better but for the first, the baseline."""
    runs = [result("erm", "a", 0, 0.1, **others)]
    runs += [result("gdu", "a", 0, 0.2 + place / (2 * count), label=f"set {place}", **others) for place in range(count)]
    runs += [result(run.method, "b", 0, run.test["a"], label=run.label, **others) for run in runs]
    return Watched((Path(f"run {number}"), run) for number, run in enumerate(runs))


def comparison_of(found: RunCollection) -> tuple[Numbers, RunCollection]:
    return Comparison(found.results).numbers, found


def figure(name: str, compared: tuple[Numbers, RunCollection]) -> Chart:
    numbers, found = compared
    palette = Palette([(row.method, row.label) for row in numbers.rows], numbers.hold_outs)
    chart = FIGURES[name](numbers, found, palette)
    assert chart is not None
    return chart


@pytest.mark.parametrize("name", ["scores", "differences", "worst_mean", "in_out", "curves", "reliability", "cost"])
def test_of_very_many_methods_the_baseline_and_the_best_are_drawn(name: str) -> None:
    chart = figure(name, comparison_of(settings_of(100, peak_memory=2**20)))
    drawn = list(dict.fromkeys(marks.name for panel in chart.panels for marks in panel.marks))
    if name == "differences":
        assert drawn == [f"set {place}" for place in range(60, 100)]
        assert "Of 100 methods, 40 are drawn: the best by their mean." in chart.caption
    else:
        assert drawn == ["ERM", *(f"set {place}" for place in range(61, 100))]
        assert "Of 101 methods, 40 are drawn: the baseline and the best by their mean." in chart.caption


@pytest.mark.parametrize("name", ["scores", "differences", "worst_mean", "in_out", "curves", "reliability", "cost"])
def test_of_a_few_methods_all_are_drawn_and_nothing_is_said(name: str) -> None:
    chart = figure(name, comparison_of(settings_of(3)))
    assert "methods," not in chart.caption
    assert {"set 0", "set 2"} <= {marks.name for panel in chart.panels for marks in panel.marks}


def test_a_file_is_read_for_the_methods_drawn_alone() -> None:
    numbers, found = comparison_of(settings_of(200))
    assert len(some_runs(numbers, found, 120)) == MOST_METHODS
    assert len(some_runs(numbers, found, 7)) == 7
    for name, most in (("curves", 120), ("reliability", 60)):
        found.read = 0
        figure(name, (numbers, found))
        assert 0 < found.read <= most


def test_runs_that_are_known_are_not_looked_up_among_all() -> None:
    found = settings_of(3)
    runs = found.results
    del found.results  # whoever looks through all of them fails
    assert as_gathered(found, runs) == list(runs)


def test_the_caption_says_what_memory_is_and_of_how_many_runs() -> None:
    runs = [result("erm", "a", seed, 0.5, peak_memory=None if seed else 2**21) for seed in (0, 1)]
    chart = figure("cost", comparison_of(Watched((Path(str(run.seed)), run) for run in runs)))
    assert "the largest peak of any run of a method, on a CPU of all that its process held" in chart.caption
    assert "on a GPU of what torch took there; known for 1 of 2 runs." in chart.caption
    assert "emory" not in figure("cost", comparison_of(settings_of(2))).caption


def test_outputs_that_are_no_probabilities_have_no_reliability(tmp_path: Path) -> None:
    run = result()
    arrays = some_predictions(run)
    found = gather([a_run(tmp_path / "one", run, arrays=arrays | {"output": -10 * arrays["output"] - 1})])
    numbers = Comparison(found.results).numbers
    assert FIGURES["reliability"](numbers, found, Palette()) is None


def test_a_domain_that_nobody_named_is_grey() -> None:
    palette = Palette(domains=["a"])
    assert palette.domain("a") == DOMAIN_COLOURS[0]
    assert palette.domain("b") == UNKNOWN
    assert UNKNOWN not in DOMAIN_COLOURS
