"""With ``calibrate`` a run ends at a temperature: in its predictions, in its result, and in its model on new data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gated_domains.applying.of_run import predict_new
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features
from gated_domains.data.new_data import NewData
from gated_domains.evaluation import tempered
from gated_domains.experiments.model import Model
from gated_domains.experiments.run_scores import TEST, VALIDATION
from made_runs import changed, digest, numbers, recipe, runner, vectors

HARD = {"training": {"epochs": 4, "rate": 0.03}, "metric": "log_loss"}


def noisy():
    """Classes that are drawn anew for every fourth row: nobody is always right about them."""
    data = vectors()
    targets = data.targets.copy()
    targets[::4] = np.random.default_rng(5).integers(2, size=len(targets[::4]))
    return replace(data, targets=targets)


def test_predictions_are_those_of_the_same_training_at_the_temperature(tmp_path: Path) -> None:
    maker = runner(noisy(), tmp_path)
    plain, calibrated = (maker.run(recipe(**HARD, calibrate=switch)) for switch in (False, True))
    before, after = plain.predictions(), calibrated.predictions()
    temperature = calibrated.result().to_json()["temperature"]
    assert temperature != 1.0 == plain.result().to_json()["temperature"]
    np.testing.assert_allclose(after["output"], tempered(before["output"], temperature), rtol=1e-5)
    np.testing.assert_array_equal(after["output"].argmax(axis=1), before["output"].argmax(axis=1))
    assert digest(plain.path / "model.safetensors") == digest(calibrated.path / "model.safetensors")


def test_scores_are_of_calibrated_probabilities_and_validation_has_no_larger_loss(tmp_path: Path) -> None:
    maker = runner(noisy(), tmp_path)
    plain, calibrated = (maker.run(recipe(**HARD, calibrate=switch)).result().to_json() for switch in (False, True))
    assert calibrated["validation"]["overall"] < plain["validation"]["overall"]
    assert calibrated["all_metrics"]["test"]["log_loss"]["overall"] == calibrated["test"]["overall"]
    assert calibrated["test"]["overall"] != plain["test"]["overall"]
    same = [found["all_metrics"]["test"]["accuracy"] for found in (plain, calibrated)]
    assert same[0] == same[1]


def test_the_held_out_rows_have_no_say_in_the_temperature(tmp_path: Path) -> None:
    data = noisy()
    targets = data.targets.copy()
    north = data.rows_of("north")
    targets[north] = 1 - targets[north]
    one, other = (
        runner(found, tmp_path).run(recipe(**HARD, calibrate=True)) for found in (data, replace(data, targets=targets))
    )
    assert one.name != other.name
    assert one.result().to_json()["temperature"] == other.result().to_json()["temperature"] != 1.0
    for part in (VALIDATION, TEST):
        outputs = [run.predictions()["output"][run.predictions()["part"] == part] for run in (one, other)]
        np.testing.assert_array_equal(*outputs)


def test_the_model_says_the_same_of_new_rows(tmp_path: Path) -> None:
    data = noisy()
    run = runner(data, tmp_path).run(recipe(**HARD, calibrate=True))
    before = run.predictions()
    model = Model.load(run.path)
    assert model.temperature == run.result().to_json()["temperature"]
    inputs = Features(np.asarray(data.inputs.read(before["rows"])))
    found = predict_new(model, NewData(name="new", inputs=inputs, class_names=("no", "yes")))
    np.testing.assert_allclose(found.output, before["output"], rtol=1e-4, atol=1e-6)


def test_a_model_without_its_temperature_is_damaged(tmp_path: Path) -> None:
    run = runner(vectors(), tmp_path).run(recipe())
    card = run.path / "model.json"
    changed(card, temperature=None)
    with pytest.raises(DataError, match="damaged"):
        Model.load(run.path)
    text = card.read_text().replace('"temperature": null', '"once": null')
    card.write_text(text)
    with pytest.raises(DataError, match=r"damaged \('temperature'\)"):
        Model.load(run.path)


def test_an_ensemble_has_a_temperature_of_its_own(tmp_path: Path) -> None:
    chosen = recipe("ensemble", settings={"members": 2}, **HARD, calibrate=True)
    maker = runner(noisy(), tmp_path)
    together = maker.run(chosen).result().to_json()["temperature"]
    plan = maker.planner.plan([chosen])
    parts = [plan.runs[name] for name in plan.runs[plan.asked[0]].parts]
    members = [part.folder(tmp_path).result().to_json()["temperature"] for part in parts]
    assert len(members) == 2
    assert len({together, *members, 1.0}) == 4


def test_numbers_have_nothing_to_calibrate_and_nothing_is_trained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to calibrate where a number is predicted"):
        runner(numbers(), tmp_path / "runs").run(recipe(calibrate=True))
    assert not (tmp_path / "runs").exists()
