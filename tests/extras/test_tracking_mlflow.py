"""MLflow itself reads back what was written: parameters, curves, final scores, tags and files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gated_domains.data.errors import DataError
from gated_domains.experiments.tracking import Tracking
from gated_domains.experiments.tracking.about_run import curve_of, finals_of, settings_of, title_of
from gated_domains.experiments.tracking.names import legal
from gated_domains.experiments.tracking.to_mlflow import import_mlflow
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.result import read_results
from made_runs import assert_refused, call, changed, recipe, runner, table, vectors
from made_tracking import cut_off, follow, tracked_comparison

pytestmark = pytest.mark.extras

try:
    mlflow = import_mlflow()
except ImportError:
    pytest.skip("there is no MLflow", allow_module_level=True)
ODD = ("a/b", "<script>alert(1)</script>", "100 %")


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


def client(root: Path) -> Any:
    return mlflow.MlflowClient(tracking_uri=f"sqlite:///{root.resolve() / 'mlflow.db'}")


def all_runs(root: Path) -> list[Any]:
    found = client(root)
    experiments = [one.experiment_id for one in found.search_experiments()]
    return list(found.search_runs(experiments))


def assert_is_the_run(root: Path, shown: Any, run: RunFolder) -> None:
    """Every point of its curves is there once, and no other."""
    expected: dict[str, list[tuple[int, float]]] = {}
    for epoch, scalars in curve_of(run):
        for name, value in scalars.items():
            expected.setdefault(name, []).append((epoch, value))
    for name, value in finals_of(run).items():
        expected[name] = [(len(run.metrics()) - 1, value)]
    found = client(root)
    history = {name: found.get_metric_history(shown.info.run_id, name) for name in shown.data.metrics}
    assert {
        name: [(point.step, point.value) for point in sorted(points, key=lambda point: point.step)]
        for name, points in history.items()
    } == expected


def test_a_run_is_read_back_as_it_is_in_its_folder(tmp_path: Path):
    made, asked = runner(vectors(), tmp_path), [recipe("gdu", seed=3, training={"epochs": 3})]
    with Tracking(["mlflow"], tmp_path) as tracking, follow(tracking, made, asked) as made.callback:
        run = made.run(asked[0])
    (shown,) = all_runs(tmp_path)
    assert_is_the_run(tmp_path, shown, run)
    assert shown.data.params == {
        name: "none" if value is None else str(value) for name, value in settings_of(run).items()
    }
    tags = {"data": "vectors", "method": "gdu", "hold_out": "north", "seed": "3", "run": run.name}
    assert tags.items() <= shown.data.tags.items()
    assert (shown.info.run_name, shown.info.status) == (title_of(run), "FINISHED")
    assert client(tmp_path).get_experiment(shown.info.experiment_id).name == "vectors"


def test_recipe_and_result_are_kept_below_out_and_are_not_taken_for_another_run(tmp_path: Path):
    run = runner(vectors(), tmp_path).run(recipe())
    with Tracking(["mlflow"], tmp_path) as tracking:
        tracking.finish(run)
    (shown,) = all_runs(tmp_path)
    kept = {one.path for one in client(tmp_path).list_artifacts(shown.info.run_id)}
    assert kept == {"recipe.yaml", "run_result.json"}
    (stored,) = (tmp_path / "mlflow-artifacts").rglob("run_result.json")
    assert json.loads(stored.read_text()) == run.result().to_json()
    assert [result.run for result in read_results(tmp_path)] == [run.name]


def test_odd_names_of_domains_stay_apart(tmp_path: Path):
    run = runner(replace(vectors(), name="odd %", domain_names=ODD), tmp_path / "a %b").run(recipe(hold_out="a/b"))
    with Tracking(["mlflow"], tmp_path / "a %b") as tracking:
        tracking.finish(run)
    (shown,) = all_runs(tmp_path / "a %b")
    assert_is_the_run(tmp_path / "a %b", shown, run)
    assert shown.data.tags["hold_out"] == "a/b"
    for name in ODD[1:]:
        assert f"validation/domain/{legal(name)}" in shown.data.metrics


def test_more_numbers_than_are_taken_at_a_time_are_all_there(tmp_path: Path):
    run = runner(vectors(), tmp_path).run(recipe())
    records = run.metrics()
    many = {f"hospital {number}": number / 3000 for number in range(2500)}
    for record in records:
        record["validation"]["by_domain"] = many
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with Tracking(["mlflow"], tmp_path) as tracking:
        tracking.finish(run)
    (shown,) = all_runs(tmp_path)
    assert {name: shown.data.metrics[f"validation/domain/{name}"] for name in many} == many


def test_the_same_command_again_adds_nothing(tmp_path: Path):
    data, out = table(tmp_path / "t.csv"), tmp_path / "out"
    asked = tracked_comparison(data, out, "mlflow")
    for _ in range(2):
        assert call(*asked).code == 0
        assert len(all_runs(out)) == 2  # the head, and the body that it stands on


def test_a_training_that_was_cut_off_goes_on_in_the_same_run(tmp_path: Path):
    asked = [recipe(training={"epochs": 4})]
    cut_off(asked[0], tmp_path, "mlflow")
    (half,) = all_runs(tmp_path)
    assert half.info.status == "RUNNING"
    again = runner(vectors(), tmp_path)
    with Tracking(["mlflow"], tmp_path) as tracking, follow(tracking, again, asked) as again.callback:
        run = again.run(asked[0])
    (whole,) = all_runs(tmp_path)
    assert whole.info.run_id == half.info.run_id
    assert_is_the_run(tmp_path, whole, run)


def test_another_training_of_the_same_recipe_is_another_run(tmp_path: Path):
    run = runner(vectors(), tmp_path).run(recipe())
    for seconds in (1.0, 2.0, 2.0):
        changed(run.path / "result.json", seconds=seconds)
        with Tracking(["mlflow"], tmp_path) as tracking:
            tracking.finish(run)
    assert sorted(one.data.metrics["cost/seconds"] for one in all_runs(tmp_path)) == [1.0, 2.0]


def test_a_store_and_an_experiment_may_be_named(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mine' / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "wards")
    monkeypatch.chdir(tmp_path)  # what is kept beside a store goes where whoever keeps it says
    (tmp_path / "mine").mkdir()
    run = runner(vectors(), tmp_path / "out").run(recipe())
    with Tracking(["mlflow"], tmp_path / "out") as tracking:
        tracking.finish(run)
    assert not (tmp_path / "out" / "mlflow.db").exists()
    (shown,) = all_runs(tmp_path / "mine")
    assert client(tmp_path / "mine").get_experiment(shown.info.experiment_id).name == "wards"


def test_a_store_that_cannot_be_reached_is_refused_before_anything_is_trained(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"http://127.0.0.1:9 .*MLFLOW_TRACKING_URI"):
        Tracking(["mlflow"], tmp_path)
    data, out = table(tmp_path / "t.csv"), tmp_path / "out"
    asked = ["compare", data, "--no-report", "--target", "sick", "--domain", "site", "--epochs", 1, "--out", out]
    assert_refused(call(*asked, "--track", "mlflow"), "http://127.0.0.1:9")
    assert not list(out.glob("*/run.json"))


def test_a_store_that_is_gone_in_between_stops_no_training(tmp_path: Path):
    made, asked = runner(vectors(), tmp_path), [recipe(seed=0), recipe(seed=1)]
    with Tracking(["mlflow"], tmp_path) as tracking, follow(tracking, made, asked) as made.callback:
        made.run(asked[0])
        (tmp_path / "mlflow.db").write_bytes(b"this is no store any more" * 1000)
        with pytest.warns(UserWarning, match="mlflow failed on the run"):
            assert made.run(asked[1]).done


def test_nobody_is_called():
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    from mlflow.telemetry.utils import is_telemetry_disabled

    assert is_telemetry_disabled()
