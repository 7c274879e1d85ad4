"""Runs on data that a publisher divided: trained, selected and scored as the publisher asks for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.data.named import DATASETS, Known
from gated_domains.evaluation.scores import official_scores
from gated_domains.experiments.grid import named_as_asked, plan_grid
from gated_domains.experiments.model import Model
from gated_domains.experiments.recipe_checks import resolve
from gated_domains.reports.page import write_page
from gated_domains.runs.collection import RunCollection
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import DataSettings, Recipe, RunConfig, TrainingSettings
from gated_domains.runs.result import read_results
from made_published import divided
from made_runs import NothingIsTrained, call, recipe, runner, vectors


def official(method: str = "erm", **others: Any) -> Recipe:
    return recipe(method, "official", **{"selection": "auto", **others})


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> RunFolder:
    return runner(divided(), tmp_path_factory.mktemp("made")).run(official("gdu"))


def of_part(run: RunFolder, part: int) -> dict[str, np.ndarray]:
    found = run.predictions()
    return {name: values[found["part"] == part] for name, values in found.items()}


# -- what is filled in -------------------------------------------------------------------------------------------------


def test_the_publisher_says_what_is_scored_and_what_selects():
    chosen = resolve(official(), divided(metric="f1"))
    assert (chosen.selection, chosen.metric) == ("official", "f1")
    elsewhere = resolve(recipe("erm", "a", selection="auto"), divided(metric="f1"))
    assert (elsewhere.selection, elsewhere.metric) == ("source_validation", "accuracy")
    own = resolve(official(selection="last", metric="ece"), divided())
    assert (own.selection, own.metric) == ("last", "ece")


# -- what a run comes to -----------------------------------------------------------------------------------------------


def test_the_score_that_counts_stands_as_that_of_one_domain(made):
    data, result = divided(), made.result().to_json()
    test = of_part(made, 1)
    expected = official_scores(data.published, test["output"], test["targets"], test["rows"])
    assert result["test"]["by_domain"] == {"test": pytest.approx(expected.by_domain["test"])}
    assert result["test"]["overall"] == pytest.approx(expected.overall)
    assert result["test"]["by_group"] == pytest.approx(dict(expected.by_group))
    assert result["test"]["by_domain"]["test"] == min(result["test"]["by_group"].values())
    assert set(result["test"]["by_group"]) == {"Asia", "Europe", "Africa"}


def test_the_parts_are_the_publishers(made):
    data = divided()
    names = ["val", "test", "id_val", "id_test"]
    for part, name in enumerate(names):
        assert of_part(made, part)["rows"].tolist() == data.published.rows(name).tolist()


def test_validation_and_the_parts_in_distribution_are_scored_alike(made):
    data, result = divided(), made.result().to_json()
    parts = {"validation": (0, result["validation"])} | {
        name: (place, result["also"][name]) for place, name in enumerate(("id_val", "id_test"), start=2)
    }
    for name, (place, stored) in parts.items():
        found = of_part(made, place)
        expected = official_scores(data.published, found["output"], found["targets"], found["rows"], name=name)
        assert stored["by_domain"] == pytest.approx(dict(expected.by_domain))
        assert stored["by_group"] == pytest.approx(dict(expected.by_group))
        assert stored["overall"] == pytest.approx(expected.overall)


def test_every_metric_of_every_part_is_there(made):
    found = made.result().to_json()["all_metrics"]
    assert list(found) == ["validation", "test", "id_val", "id_test"]
    for name, scores in found.items():
        assert set(scores) == {"accuracy", "f1", "average_precision", "auroc", "ece", "log_loss"}
        for metric, score in scores.items():
            assert set(score["by_domain"]) == {name}
            if metric != "accuracy":  # in which alone the worst group counts
                assert score["by_domain"][name] == score["overall"]


def test_a_result_says_how_it_came_to_be(made):
    result = made.result().to_json()
    assert result["hold_out"] == "official"
    assert result["held_out"] == ["test"]
    assert result["sources"] == ["a", "b", "c", "d"]
    assert result["statistic"] == "worst_group"
    assert result["protocol"] == (
        "the published division: test is never seen in training, nor in selection; scored by worst-group accuracy"
    )
    assert result["selection"] == "published out-of-distribution validation accuracy"
    assert not result["oracle"]


def test_the_epoch_is_chosen_by_what_counts_on_the_validation_part(tmp_path):
    run = runner(divided(), tmp_path).run(official(training={"epochs": 5, "rate": 0.01}))
    selected = [record["selection"] for record in run.metrics()]
    assert selected == [record["validation"]["by_domain"]["validation"] for record in run.metrics()]
    assert run.result().to_json()["best_epoch"] == int(np.argmax(selected))
    assert run.result().to_json()["validation"]["by_domain"]["validation"] == pytest.approx(max(selected))
    assert run.result().to_json()["selection_score"] == pytest.approx(max(selected))


def test_the_run_is_found_again_and_its_model_loads(made):
    again = runner(divided(), made.path.parent, callback=NothingIsTrained())
    assert again.run(official("gdu")).path == made.path
    assert again.run(official("gdu", selection="official", metric="accuracy")).path == made.path
    assert Model.load(made.path).trained_on["hold_out"] == "official"


def test_another_division_is_another_run(made):
    data = divided()
    moved = data.published.parts.copy()
    moved[[0, 1]] = moved[[1, 0]]
    other = runner(replace(data, published=replace(data.published, parts=moved)), made.path.parent)
    assert other.find(official("gdu")) is None


def test_the_oracle_may_look_at_the_test_rows_and_is_marked(tmp_path):
    run = runner(divided(), tmp_path).run(official(selection="oracle"))
    result = run.result().to_json()
    assert result["oracle"]
    assert "test is never seen in training, but it selects the model" in result["protocol"]
    assert {name for record in run.metrics() for name in record["validation"]["by_domain"]} == {"test"}


def test_in_another_metric_all_rows_count(tmp_path):
    result = runner(divided(), tmp_path).run(official(metric="f1")).result().to_json()
    assert result["statistic"] == "overall"
    assert result["test"]["by_domain"] == {"test": result["test"]["overall"]}
    assert result["protocol"].endswith("scored by macro F1")


def test_groups_of_ones_own_are_refused_where_the_publisher_has_some(tmp_path):
    with pytest.raises(DataError, match="scored by its own groups; leave score_by out"):
        runner(divided(), tmp_path).run(official(score_by=("class",)))


@pytest.mark.parametrize("method", ["linear", "ensemble"])
def test_methods_that_stand_on_others_go_by_the_division_too(tmp_path, method):
    settings = {"members": 2} if method == "ensemble" else {}
    run = runner(divided(), tmp_path).run(official(method, settings=settings, training={"epochs": 1}))
    assert run.result().to_json()["held_out"] == ["test"]
    assert set(run.result().to_json()["also"]) == {"id_val", "id_test"}


def test_a_part_too_small_for_any_group_is_left_unscored_and_one_that_selects_is_refused(tmp_path):
    data = divided(metric="auroc")
    targets = data.targets.copy()
    targets[data.published.rows("id_test")] = 1
    run = runner(replace(data, targets=targets), tmp_path).run(official(training={"epochs": 1}))
    assert set(run.result().to_json()["also"]) == {"id_val"}
    targets[data.published.rows("val")] = 1
    with pytest.raises(DataError, match="30 validation rows, or those of each group that counts, share one target"):
        runner(replace(data, targets=targets), tmp_path).planner.plan([official()])


@pytest.mark.parametrize(
    ("hold_out", "selection", "message"),
    [
        ("official", "out_of_domain", "the published division has its own validation rows"),
        ("official", "leave_one_source_out", "the published division has its own validation rows"),
        ("a", "official", "selection official goes by a published division; hold out 'official'"),
    ],
)
def test_selections_that_do_not_go_with_the_division_are_refused(tmp_path, hold_out, selection, message):
    with pytest.raises(DataError, match=message):
        runner(divided(), tmp_path).planner.plan([recipe("erm", hold_out, selection=selection)])


def test_data_without_a_division_have_no_official_run(tmp_path):
    with pytest.raises(DataError, match="has no published division"):
        runner(vectors(), tmp_path).run(official())


# -- several methods beside each other ---------------------------------------------------------------------------------

FRAME = RunConfig(data=DataSettings(what="made in a test"), body="mlp", training=TrainingSettings(epochs=1))


def test_a_plan_on_the_division_is_run_and_compared(tmp_path):
    maker = runner(divided(), tmp_path / "runs")
    grid = plan_grid(maker.planner, "gdu,erm", seeds=2, config=FRAME)
    assert [(one.hold_out, one.method.name, one.seed) for one in grid.recipes] == [
        ("official", method, seed) for seed in (0, 1) for method in ("gdu", "erm")
    ]
    runs = [maker.run(one) for one in grid.recipes]
    results = named_as_asked(read_results([run.path for run in runs]), grid.recipes, grid.splits)
    assert {result.hold_out for result in results} == {"official"}
    gathered = RunCollection((run.path, result) for run, result in zip(runs, results, strict=True))
    page = write_page(gathered, tmp_path / "report.html", kinds=())
    assert all(path.is_file() for path in page)
    assert not gathered.broken


def many() -> Any:
    """Six hundred domains of two rows and a few."""
    data = vectors(1500)
    domains = np.arange(1500) % 600
    return replace(data, domains=domains, domain_names=tuple(f"user {place}" for place in range(600)))


def test_a_fold_of_very_many_domains_is_one_run_with_one_score(tmp_path):
    maker = runner(many(), tmp_path / "runs")
    grid = plan_grid(maker.planner, "erm", hold_out="folds:2", seeds=1, config=FRAME)
    assert [one.hold_out for one in grid.recipes] == ["fold 1 of 2", "fold 2 of 2"]
    run = maker.run(grid.recipes[1])
    result = run.result().to_json()
    assert (result["hold_out"], result["held_out"], result["sources"]) == ("fold 2", ["fold 2"], [])
    assert result["test"]["by_domain"] == {"fold 2": result["test"]["overall"]}
    assert set(result["validation"]["by_domain"]) <= set(maker.dataset.domain_names)
    again = runner(many(), tmp_path / "runs", callback=NothingIsTrained())
    assert again.run(grid.recipes[1]).path == run.path  # by the name of the fold alone
    assert not set(run.predictions()["rows"]) - set(grid.splits[1].test) - set(grid.splits[1].validation)


@pytest.fixture
def known(monkeypatch) -> None:
    """Divided data by the name of ``toy``."""
    monkeypatch.setitem(DATASETS, "toy", Known("toy", lambda data_dir, seed, reading: divided(), True))


@pytest.mark.usefixtures("without_shape_checks", "known")
def test_the_command_line_compares_on_the_division_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(
        "compare", "toy", "--methods", "erm,gdu", "--seeds", 2, "--epochs", 1, "--device", "cpu", "--out", "runs",
        "--workers", 1, "--no-report",
    )  # fmt: skip
    assert done.code == 0, done
    results = [json.loads(path.read_text()) for path in Path("runs").glob("**/result.json")]
    assert len(results) == 4
    assert {result["hold_out"] for result in results} == {"official"}
    assert {result["statistic"] for result in results} == {"worst_group"}
