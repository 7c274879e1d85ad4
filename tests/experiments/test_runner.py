"""From a recipe to a run folder: done once, cut anywhere, and blind to what is held out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from gated_domains.common.validation import GateHealth
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Images
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.experiments.recipe_checks import read_recipe, resolve
from gated_domains.experiments.runner import Runner
from gated_domains.methods import ERM
from gated_domains.methods.gdu import GDU
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from made_runs import (
    DOMAINS,
    Interrupt,
    NothingIsTrained,
    Watcher,
    digest,
    images,
    numbers,
    recipe,
    runner,
    table,
    vectors,
    without_times,
)

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def gated(root: Path) -> RunFolder:
    return runner(vectors(), root).run(recipe("gdu"))


@pytest.fixture(scope="module")
def plain(root: Path) -> RunFolder:
    return runner(vectors(), root).run(recipe("erm"))


def files(run: RunFolder) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in run.path.iterdir() if not path.name.startswith(".")}


def lasting(result: dict[str, Any]) -> dict[str, Any]:
    """What a result says, but for which run and what it cost."""
    return {name: value for name, value in result.items() if name not in ("run", "seconds", "peak_memory")}


def assert_same_run(one: RunFolder, other: RunFolder) -> None:
    assert digest(one.path / "model.safetensors") == digest(other.path / "model.safetensors")
    assert without_times(one) == without_times(other)
    assert lasting(one.result().to_json()) == lasting(other.result().to_json())
    assert one.predictions().keys() == other.predictions().keys()
    for name, values in one.predictions().items():
        np.testing.assert_array_equal(values, other.predictions()[name])


# -- what a run leaves -------------------------------------------------------------------------------------------------


def test_a_run_leaves_what_is_needed_to_use_it_and_to_make_it_again(gated):
    assert set(files(gated)) == {
        *("run.json", "recipe.yaml", "environment.json", "metrics.jsonl"),
        *("model.safetensors", "model.json", "predictions.npz", "result.json", "seen.npz"),
    }
    about = json.loads((gated.path / "environment.json").read_text())
    assert (about["device"], about["python"]) == ("cpu", sys.version.split()[0])


def test_its_recipe_is_the_run_again(gated, root):
    written = read_recipe(gated.path / "recipe.yaml")
    assert written == resolve(recipe("gdu", body="mlp"), vectors())
    again = runner(vectors(), root, callback=NothingIsTrained()).run(written)
    assert again.path == gated.path


def test_the_metrics_have_every_epoch_with_the_loss_the_penalties_and_the_gates(gated):
    records = gated.metrics()
    assert [record["epoch"] for record in records] == [0, 1]
    for record in records:
        assert set(record["train"]) == {"task", "reconstruction", "deviations"}
        assert {"gate_entropy", "srip", "coverage"} <= set(record["measures"])
        assert set(record["validation"]["by_domain"]) == {"south", "west"}
        assert 0 < record["measures"]["gate_entropy"] <= np.log(5) + 1e-6
    assert records[0]["step"] * 2 == records[1]["step"]
    assert records[1]["rate"] < records[0]["rate"]


def test_the_predictions_are_those_of_the_validation_and_the_held_out_rows(gated):
    data, found = vectors(), gated.predictions()
    split = runner(data, gated.path.parent).planner.split(recipe("gdu"))
    np.testing.assert_array_equal(found["rows"], np.concatenate([split.validation, split.test]))
    np.testing.assert_array_equal(found["part"], [0] * len(split.validation) + [1] * len(split.test))
    np.testing.assert_array_equal(found["targets"], data.targets[found["rows"]])
    np.testing.assert_array_equal(found["domains"], data.domains[found["rows"]])
    assert found["output"].shape == (len(found["rows"]), 2)
    np.testing.assert_allclose(found["output"].sum(1), 1, atol=1e-5)
    assert found["beta"].shape == (len(found["rows"]), 5)
    np.testing.assert_allclose(found["beta"].sum(1), 1, atol=1e-5)
    assert found["residual"].shape == found["coverage"].shape == found["rows"].shape
    assert ((found["coverage"] >= 0) & (found["coverage"] <= 1)).all()


def test_a_method_without_gates_says_nothing_of_them(plain):
    assert set(plain.predictions()) == {"rows", "part", "targets", "domains", "output"}
    assert set(plain.metrics()[0]["train"]) == {"task"}


def test_the_result_says_what_was_done_and_what_came_of_it(gated):
    result, found = gated.result().to_json(), gated.predictions()
    right = found["output"].argmax(1) == found["targets"]
    test, south = found["part"] == 1, (found["part"] == 0) & (found["domains"] == 1)
    assert result["test"]["by_domain"] == {"north": right[test].mean()}
    assert set(result["validation"]["by_domain"]) == {"south", "west"}
    assert result["validation"]["by_domain"]["south"] == right[south].mean()
    assert result["validation"]["overall"] == right[~test].mean()
    expected = {
        "format": 1,
        "run": gated.name,
        "data": "vectors",
        "method": "gdu",
        "label": "GDU",
        "mode": "end_to_end",
        "body": "mlp",
        "seed": 0,
        "hold_out": "north",
        "held_out": ["north"],
        "sources": ["south", "west"],
        "metric": "accuracy",
        "higher_is_better": True,
        "selection": "mean source validation accuracy",
        "epochs": 2,
        "stopped": "all epochs",
        "uses_domains": False,
        "notes": ["the epoch is selected by 20 validation rows alone"],
    }
    assert {name: result[name] for name in expected} == expected
    assert "never seen in training or selection; validated on 20% of the source rows" in result["protocol"]
    assert result["best_epoch"] in (0, 1)
    assert result["seconds"] > 0
    assert 0 < result["parameters"]["trained"] <= result["parameters"]["all"]


def test_the_best_epoch_is_the_one_that_validates_best(tmp_path):
    run = runner(vectors(), tmp_path).run(
        recipe("erm", training={"epochs": 6, "rate": 0.03, "patience": 2, "schedule": "constant"})
    )
    scores = [record["validation"]["overall"] for record in run.metrics()]
    result = run.result().to_json()
    assert result["best_epoch"] == np.argmax(scores)
    assert result["validation"]["by_domain"] == run.metrics()[result["best_epoch"]]["validation"]["by_domain"]
    assert result["epochs"] == len(scores)
    assert (result["stopped"] == "early") == (len(scores) < 6)


# -- done once ---------------------------------------------------------------------------------------------------------


def test_what_is_done_is_found_and_not_touched(gated, root):
    before = files(gated)
    again = runner(vectors(), root, callback=NothingIsTrained()).run(recipe("gdu"))
    assert again.path == gated.path
    assert files(gated) == before


def test_another_seed_is_another_run(gated, root):
    callback = Watcher()
    other = runner(vectors(), root, callback=callback).run(recipe("gdu", seed=1))
    assert other.path != gated.path
    assert [begun.seed for begun in callback.began] == [1]
    assert digest(other.path / "model.safetensors") != digest(gated.path / "model.safetensors")


def test_the_same_recipe_on_other_data_is_another_run(plain, root):
    data = vectors()
    changed = replace(data, targets=np.roll(data.targets, 1))
    assert runner(changed, root).find(recipe("erm")) is None


def test_a_fresh_start_elsewhere_comes_to_the_same_bits(gated, tmp_path):
    assert_same_run(gated, runner(vectors(), tmp_path).run(recipe("gdu")))


def test_what_cannot_be_held_out_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match="no domain 'nort' to hold out; did you mean 'north'"):
        runner(vectors(), tmp_path / "runs").run(recipe("erm", hold_out="nort"))
    with pytest.raises(DataError, match="'small' takes images"):
        runner(vectors(), tmp_path / "runs").run(recipe("erm", body="small"))
    assert list(tmp_path.iterdir()) == []


# -- cut and gone on ---------------------------------------------------------------------------------------------------

# 80 rows train, so 3 steps (2 where the last, smaller batch is dropped) are an epoch.
CUTS = {"first step": 1, "in the first epoch": 2, "in the second epoch": 4, "in the third epoch": 5}


LONGER = {"epochs": 3, "ema": 0.9}


@pytest.fixture(scope="module", params=["gdu", "linear"])
def whole(request: pytest.FixtureRequest, root: Path) -> RunFolder:
    """A run that was never cut."""
    return runner(vectors(), root).run(recipe(request.param, training=LONGER))


@pytest.mark.parametrize("after", CUTS.values(), ids=CUTS)
def test_what_was_cut_goes_on_to_the_same_bits(tmp_path, whole, after):
    method = whole.result().to_json()["method"]
    chosen = recipe(method, training=LONGER)
    steps = after if method == "gdu" else after + whole.metrics()[-1]["step"]  # after those of ERM, which comes first
    interrupt = Interrupt(steps)
    cut = runner(vectors(), tmp_path / "cut", callback=interrupt, checkpoint_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        cut.run(chosen)
    assert not cut.folder(chosen).done
    callback = Watcher()
    gone_on = runner(vectors(), tmp_path / "cut", callback=callback).run(chosen)
    assert len(callback.began) == 1
    assert 0 < callback.steps < whole.metrics()[-1]["step"] or after == 1
    assert_same_run(whole, gone_on)
    assert gone_on.checkpoints == []


def test_what_was_cut_before_its_first_checkpoint_begins_anew(tmp_path):
    chosen = recipe("gdu")
    with pytest.raises(KeyboardInterrupt):
        runner(vectors(), tmp_path, callback=Interrupt(4), checkpoint_seconds=1e9).run(chosen)
    found = runner(vectors(), tmp_path).find(chosen)
    assert found is not None
    assert [record["epoch"] for record in found.metrics()] == [0]
    run = runner(vectors(), tmp_path).run(chosen)
    assert [record["epoch"] for record in run.metrics()] == [0, 1]


def test_a_checkpoint_cut_in_half_is_refused_with_the_cure_until_it_is_gone(tmp_path):
    chosen = recipe("erm")
    cut = runner(vectors(), tmp_path, callback=Interrupt(3), checkpoint_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        cut.run(chosen)
    (checkpoint,) = cut.folder(chosen).checkpoints
    tensors = checkpoint / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[: tensors.stat().st_size // 2])
    with pytest.raises(DataError, match=r"checkpoint-0.*bytes of.*delete"):
        runner(vectors(), tmp_path).run(chosen)
    for part in checkpoint.iterdir():
        part.unlink()
    checkpoint.rmdir()
    assert runner(vectors(), tmp_path).run(chosen).done


# -- one worker --------------------------------------------------------------------------------------------------------

# What a worker does, in a process that need not load torch.
HOLD = """
import fcntl, os, sys, time
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(handle, fcntl.LOCK_EX)
os.write(handle, f"{os.getpid()}\\n".encode())
print("held", flush=True)
time.sleep(60)
"""


@posix_only
def test_a_folder_at_work_is_refused_and_a_killed_worker_is_no_obstacle(tmp_path):
    chosen = recipe("erm")
    folder = runner(vectors(), tmp_path).folder(chosen)
    folder.path.mkdir()
    worker = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path / ".lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        with pytest.raises(DataError, match=rf"another process \(pid {worker.pid}\) is at work in"):
            runner(vectors(), tmp_path, callback=NothingIsTrained()).run(chosen)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert (folder.path / ".lock").exists()
    assert runner(vectors(), tmp_path).run(chosen).done


# -- runs that need others ---------------------------------------------------------------------------------------------


def test_a_retrained_head_stands_on_the_body_of_the_erm_run_and_reuses_it(plain, root):
    callback = Watcher()
    linear = runner(vectors(), root, callback=callback).run(recipe("linear"))
    assert [begun.method.name for begun in callback.began] == ["linear"]
    below, here = load_file(plain.path / "model.safetensors"), load_file(linear.path / "model.safetensors")
    body = {name: value for name, value in below.items() if name.startswith("backbone.body.")}
    assert body
    for name, value in body.items():
        np.testing.assert_array_equal(here[name.replace(".body.", ".body.frozen.module.")], value)
    assert not np.array_equal(here["head.weight"], below["head.weight"])
    result = linear.result().to_json()
    assert result["parameters"]["trained"] == 64 * 2 + 2 < result["parameters"]["all"]
    assert result["seconds"] >= plain.result().to_json()["seconds"]


@pytest.mark.parametrize(
    ("method", "settings", "under"),
    [
        ("gdu-paper", {"mode": "fine_tune"}, "tanh"),
        ("gdu-paper", {"mode": "fine_tune", "setting": "wilds"}, "none"),
        ("linear", {"activation": "tanh"}, "tanh"),
        ("linear", {}, "none"),
        ("gdu", {"mode": "fine_tune"}, "none"),
    ],
)
def test_a_frozen_body_is_that_of_an_erm_with_the_same_activation(method, settings, under, tmp_path):
    plan = runner(vectors(), tmp_path).planner.plan([recipe(method, settings=settings)])
    (needed,) = (plan.runs[name] for name in plan.runs[plan.asked[0]].needs)
    assert (needed.recipe.method.name, needed.recipe.method.settings.activation) == ("erm", under)


def test_without_an_erm_run_one_is_made_first(tmp_path):
    callback = Watcher()
    both = runner(vectors(), tmp_path, callback=callback)
    both.run(recipe("gdu", settings={"mode": "fine_tune"}))
    assert [begun.method.label for begun in callback.began] == ["ERM", "GDU [fine-tuned]"]
    runner(vectors(), tmp_path, callback=NothingIsTrained()).run(recipe("erm"))


def members_of(maker: Runner, ensemble: Recipe) -> list[Recipe]:
    plan = maker.planner.plan([ensemble])
    return [plan.runs[name].recipe for name in plan.runs[plan.asked[0]].parts]


def test_an_ensemble_is_the_mean_of_erm_runs_with_seeds_apart(plain, root):
    callback = Watcher()
    maker = runner(vectors(), root, callback=callback)
    chosen = recipe("ensemble", settings={"members": 3})
    members = members_of(maker, chosen)
    assert [member.seed for member in members] == [0, 1000, 2000]
    assert {member.method.name for member in members} == {"erm"}
    run = maker.run(chosen)
    assert [begun.seed for begun in callback.began] == [1000, 2000]  # the first is there, and joining is no training
    each = [maker.run(member) for member in members]
    assert each[0].path == plain.path
    mean = np.mean([member.predictions()["output"] for member in each], axis=0)
    np.testing.assert_allclose(run.predictions()["output"], mean, atol=1e-6)
    result = run.result().to_json()
    assert result["seconds"] == pytest.approx(sum(member.result().to_json()["seconds"] for member in each), abs=1e-2)
    assert result["parameters"]["all"] == 3 * plain.result().to_json()["parameters"]["all"]
    members = json.loads((run.path / "members.json").read_text())
    assert members == {"members": [member.name for member in each]}


def test_members_of_two_ensembles_never_meet(root):
    maker = runner(vectors(), root)
    first, second = (members_of(maker, recipe("ensemble", seed=seed)) for seed in (0, 1))
    assert not {member.seed for member in first} & {member.seed for member in second}


def test_trainings_are_counted_each_once_with_those_that_are_needed(plain, root):
    maker = runner(vectors(), root)
    wanted = [recipe("erm"), recipe("linear", seed=9), recipe("ensemble", seed=9, settings={"members": 2})]
    todo, there = maker.planner.plan(wanted).missing(root)
    assert [(need.recipe.method.name, need.recipe.seed) for need in todo] == [("erm", 9), ("linear", 9), ("erm", 1009)]
    assert there == 1


# -- other data --------------------------------------------------------------------------------------------------------


def test_numbers_are_predicted_in_their_own_unit(tmp_path):
    run = runner(numbers(), tmp_path).run(recipe("gdu", training={"epochs": 8, "rate": 0.01}))
    result, found = run.result().to_json(), run.predictions()
    assert (result["metric"], result["higher_is_better"]) == ("rmse", False)
    test = found["part"] == 1
    error = np.sqrt(np.mean((found["output"][test, 0].astype(float) - found["targets"][test]) ** 2))
    assert result["test"]["by_domain"]["north"] == pytest.approx(error)
    assert error < 300  # what the mean would do
    assert abs(found["output"].mean() - 5_000) < 200


@pytest.mark.parametrize("method", ["gdu", "linear"])
def test_data_without_domains_are_trained_on_whole(tmp_path, method):
    run = runner(vectors(domains=False), tmp_path).run(recipe(method, hold_out=None))
    result = run.result().to_json()
    assert (result["hold_out"], result["held_out"], result["sources"]) == ("none", [], [])
    assert result["test"] is None
    assert set(result["validation"]["by_domain"]) == {"all"}
    assert (run.predictions()["part"] == 0).all()
    assert "domains" not in run.predictions()
    assert "trained on all rows" in result["protocol"]


def test_with_nothing_held_out_all_domains_are_sources(tmp_path):
    result = runner(vectors(), tmp_path).run(recipe("erm", hold_out=None)).result().to_json()
    assert result["sources"] == list(DOMAINS)
    assert set(result["validation"]["by_domain"]) == set(DOMAINS)


def test_equal_shares_need_domains(tmp_path):
    with pytest.raises(DataError, match="domain"):
        runner(vectors(domains=False), tmp_path).run(
            recipe("erm", hold_out=None, training={"sampling": "balanced"})
        )  # fmt: skip


def test_images_are_trained_on(tmp_path):
    run = runner(images(), tmp_path).run(recipe("gdu", training={"batch_size": 8}))
    assert run.result().to_json()["body"] == "small"
    assert run.predictions()["beta"].shape[1] == 5


def rare() -> DomainDataset:
    """One of ten rows is of class yes, and nothing tells which."""
    rng = np.random.default_rng(0)
    labels = (np.arange(300) % 10 == 0).astype(int)
    return DomainDataset.from_arrays(
        rng.normal(size=(300, 3)).astype(np.float32), labels, np.arange(300) // 10 % 3,
        name="rare", class_names=("no", "yes"), domain_names=DOMAINS,
    )  # fmt: skip


def test_class_weights_give_a_rare_class_the_same_say(tmp_path):
    chosen = {"epochs": 8, "rate": 0.01}
    plainly = runner(rare(), tmp_path).run(recipe("erm", training=chosen))
    weighted = runner(rare(), tmp_path).run(recipe("erm", training={**chosen, "class_weights": True}))
    assert plainly.path != weighted.path
    assert plainly.predictions()["output"][:, 1].mean() < 0.3
    assert weighted.predictions()["output"][:, 1].mean() > 0.35


def test_class_weights_need_classes(tmp_path):
    with pytest.raises(DataError, match="class weights need classes"):
        runner(numbers(), tmp_path).run(recipe("erm", training={"class_weights": True}))


def test_a_split_that_has_a_name_keeps_it(tmp_path):
    from gated_domains.data.splits import hold_outs

    maker = runner(vectors(), tmp_path)
    split = hold_outs(maker.dataset, "folds:2")[0]
    chosen = recipe("erm", hold_out="+".join(split.held_out))
    maker.planner.use_split(split, chosen)
    result = maker.run(chosen).result().to_json()
    assert (result["hold_out"], result["held_out"]) == ("fold 1", list(split.held_out))
    runner(vectors(), tmp_path, callback=NothingIsTrained()).run(chosen)  # by its domains it is the same run


def test_what_gates_complain_of_is_noted_once_and_other_warnings_are_passed_on(tmp_path, monkeypatch):
    measures = GDU.measures

    def complaining(self: GDU, inputs: Any) -> dict[str, float]:
        GateHealth(beta_std=0.0, kernel_low=0.1, kernel_high=0.9, dead=(), doubled=()).warn()
        warnings.warn("something else", UserWarning, stacklevel=2)
        return measures(self, inputs)

    monkeypatch.setattr(GDU, "measures", complaining)
    with pytest.warns(UserWarning, match="something else"):
        run = runner(vectors(), tmp_path).run(recipe("gdu"))
    (note,) = [note for note in run.result().to_json()["notes"] if "validation rows" not in note]
    assert note.startswith("gates do not depend on the input")


# -- what is held out is never looked at -------------------------------------------------------------------------------

CAREFUL = {"epochs": 3, "patience": 2, "schedule": "constant", "rate": 0.01, "class_weights": True}


def assert_blind(one: RunFolder, other: RunFolder, *, targets_only: bool) -> None:
    """Two runs on data that differ in held-out rows alone: all of training and selection is the same to the bit."""
    assert one.name != other.name  # the fingerprint tells the data apart, so both were trained
    assert digest(one.path / "model.safetensors") == digest(other.path / "model.safetensors")
    cards = [json.loads((run.path / "model.json").read_text()) for run in (one, other)]
    assert all(card.pop("trained_on")["fingerprint"] for card in cards)  # this alone tells the data apart
    assert cards[0] == cards[1]
    assert without_times(one) == without_times(other)
    ours, theirs = lasting(one.result().to_json()), lasting(other.result().to_json())
    test, other_test = ours.pop("test"), theirs.pop("test")
    for found in (ours, theirs):
        del found["all_metrics"]["test"]
    assert not targets_only or test != other_test
    assert ours == theirs
    mine, others = one.predictions(), other.predictions()
    assert mine.keys() == others.keys()
    same = np.ones(len(mine["part"]), bool) if targets_only else mine["part"] == 0
    assert targets_only or not np.array_equal(mine["output"][~same], others["output"][~same])
    for name in mine.keys() - {"targets"}:
        np.testing.assert_array_equal(mine[name][same], others[name][same])


METHODS = ["gdu", "gdu-paper", "erm", "linear", "erm-ensemble", "ensemble"]


def poisoned_targets(data: DomainDataset) -> DomainDataset:
    targets = data.targets.copy()
    rows = data.rows_of("north")
    targets[rows] = targets[rows] * 100 if data.class_names is None else 1 - targets[rows]
    return replace(data, targets=targets)


@pytest.mark.parametrize("method", METHODS)
def test_the_targets_of_held_out_rows_change_nothing_but_the_test_score(tmp_path, method):
    chosen = recipe(method, training=CAREFUL, settings={"members": 2} if method == "ensemble" else {})
    data = vectors()
    one, other = (runner(each, tmp_path).run(chosen) for each in (data, poisoned_targets(data)))
    assert_blind(one, other, targets_only=True)
    (score,), (flipped,) = (run.result().to_json()["test"]["by_domain"].values() for run in (one, other))
    assert score + flipped == pytest.approx(1)


def test_numbers_to_predict_in_held_out_rows_change_nothing_but_the_test_score(tmp_path):
    chosen = recipe("gdu", training={**CAREFUL, "class_weights": False})
    one, other = (runner(each, tmp_path).run(chosen) for each in (numbers(), poisoned_targets(numbers())))
    assert_blind(one, other, targets_only=True)


@pytest.mark.parametrize("method", METHODS)
def test_the_inputs_of_held_out_rows_change_nothing_but_their_predictions(tmp_path, method):
    chosen = recipe(method, training=CAREFUL, settings={"members": 2} if method == "ensemble" else {})
    data = vectors()
    values = np.array(data.inputs.read(np.arange(len(data))))
    values[data.rows_of("north")] = np.random.default_rng(9).normal(size=(50, 4)) * 1e3
    one, other = (runner(each, tmp_path).run(chosen) for each in (data, data.with_inputs(Features(values))))
    assert_blind(one, other, targets_only=False)


def test_the_pixels_of_held_out_images_change_nothing_but_their_predictions(tmp_path):
    chosen = recipe("gdu", training={**CAREFUL, "batch_size": 8})
    data = images()
    pixels = np.array(data.inputs.read(np.arange(len(data))))
    rows = data.rows_of("north")
    pixels[rows] = 255 - pixels[rows]
    one, other = (runner(each, tmp_path).run(chosen) for each in (data, data.with_inputs(Images(pixels))))
    assert_blind(one, other, targets_only=False)


def test_the_cells_of_held_out_rows_of_a_table_change_nothing_but_their_predictions(tmp_path):
    """Here the encoding (means, scales, empty cells) could see too much."""
    path = table(tmp_path / "table.csv")
    lines = path.read_text().splitlines()
    # Other ages, but none that is empty: whether a column has empty cells is a matter of the whole table.
    poisoned = [f"{1000 + 7 * place}{line[line.index(','):]}" if ",north," in line else line
                for place, line in enumerate(lines)]  # fmt: skip
    (tmp_path / "poisoned").mkdir()
    (tmp_path / "poisoned" / "table.csv").write_text("\n".join(poisoned) + "\n")
    reading = Reading(target="sick", domain="site")
    both = (load_data(where, reading) for where in (path, tmp_path / "poisoned" / "table.csv"))
    one, other = (runner(each, tmp_path / "runs").run(recipe("gdu", training=CAREFUL)) for each in both)
    assert_blind(one, other, targets_only=False)


def test_a_training_that_looked_would_be_found_out(tmp_path, monkeypatch):
    """The test above can fail: a method that peeks at the targets of all rows is caught by it."""
    data, chosen = vectors(), recipe("erm", training=CAREFUL)
    peeked: list[float] = []
    prepare = ERM.prepare

    def peeking(self: ERM, looks: Any) -> None:
        prepare(self, looks)
        self.head.bias.data += peeked[-1]

    monkeypatch.setattr(ERM, "prepare", peeking)
    runs = []
    for each in (data, poisoned_targets(data)):
        peeked.append(float(each.targets.mean()))
        runs.append(runner(each, tmp_path).run(chosen))
    with pytest.raises(AssertionError):
        assert_blind(*runs, targets_only=True)
