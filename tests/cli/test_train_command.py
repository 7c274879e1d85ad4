"""``gated-domains train``: one model, from data or from a recipe, and the options above both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gated_domains as gd
from gated_domains.data.errors import DataError
from gated_domains.experiments.progress import ProgressBar
from gated_domains.runs.folder import RunFolder, all_runs
from gated_domains.settings import to_yaml
from made_runs import CPU, Done, assert_refused, call, digest, table, without_times

READING = ("--target", "sick", "--domain", "site")
SHORT = ("--epochs", 1, "--device", "cpu", "--out", "runs")

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run


@pytest.fixture(autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("here")
    table(folder / "clinic.csv")
    monkeypatch.chdir(folder)
    return folder


def train(*options: object) -> Done:
    return call("train", "clinic.csv", *READING, *SHORT, *options)


def only_run() -> RunFolder:
    (run,) = all_runs("runs")
    return run


def written(**changes: Any) -> str:
    """The name of a recipe for ERM, one epoch."""
    fields: dict[str, Any] = {
        "data": {"what": "clinic.csv", "target": "sick", "domain": "site"},
        "hold_out": "north",
        "method": {"name": "erm"},
        "training": {"epochs": 1, "batch_size": 32},
    }
    Path("recipe.yaml").write_text(to_yaml({**fields, **changes}))
    return "recipe.yaml"


# -- from data ---------------------------------------------------------------------------------------------------------


def test_a_model_is_trained_from_data_and_the_result_is_printed_with_where_it_lies():
    done = train("--hold-out", "north", "--seed", 3)
    assert done.code == 0, done
    run = only_run()
    result, lines = run.result(), done.out.splitlines()
    assert lines[0] == "GDU on clinic.csv, north held out, seed 3"
    assert lines[1].split() == ["domain", "accuracy"]
    assert lines[2].split() == ["source,", "validation", "rows", "south", *shown(result.validation, "south")]
    assert lines[4].split() == ["held", "out", "north", *shown(result.test, "north")]
    assert lines[5].startswith("selected by mean source validation accuracy: epoch 1 of 1 (all epochs); ")
    assert lines[-2] == f"run: {run.path}"
    assert lines[-1] == f"next: gated-domains predict {run.path} NEW_DATA --out predictions.csv"


def test_a_column_that_looks_like_a_domain_is_named_where_no_domain_is():
    done = call("train", "clinic.csv", "--target", "sick", "--method", "erm", *SHORT)
    assert done.code == 0, done
    assert done.out.startswith("ERM on clinic.csv, trained on all rows, seed 0\n")
    assert "column 'site' looks like a domain (3 values)" in " ".join(done.out.split())
    assert_refused(call("compare", "clinic.csv", "--target", "sick"), "--domain COLUMN", "'site' may be one")


def test_rows_without_a_target_are_left_out_by_one_option():
    path = Path("clinic.csv")
    header, *rows = path.read_text().splitlines()
    place = header.split(",").index("sick")
    cells = [row.split(",") for row in rows]
    for row in cells[:3]:
        row[place] = ""
    path.write_text("\n".join([header, *map(",".join, cells)]) + "\n")
    assert_refused(train("--method", "erm"), "row 1, line 2 of the file", "such rows: 3", "--drop-missing-target")
    done = train("--method", "erm", "--drop-missing-target")
    assert done.code == 0, done
    assert f"3 of {len(cells):,} rows have no target ('sick') and are left out" in " ".join(done.out.split())
    evaluated = call("evaluate", only_run().path, "clinic.csv")
    assert evaluated.code == 0, evaluated
    predicted = call("predict", only_run().path, "clinic.csv", "--out", "said.csv")
    assert predicted.code == 0, predicted
    assert len(Path("said.csv").read_text().splitlines()) == 1 + len(cells)


def shown(scores: Mapping[str, float], name: str) -> list[str]:
    return [f"{100 * scores[name]:.1f}"]


def test_without_a_hold_out_all_domains_are_trained_on():
    done = train("--method", "erm")
    assert done.code == 0, done
    result = only_run().result()
    assert result.sources == ("north", "south", "west")
    assert (result.held_out, result.test) == ((), {})
    assert done.out.startswith("ERM on clinic.csv, trained on all domains, seed 0\n")
    assert "held out" not in done.out


def test_none_is_no_hold_out_and_the_same_run():
    assert train("--method", "erm").code == 0
    assert train("--method", "erm", "--hold-out", "none").code == 0
    only_run()


def test_a_domain_called_none_is_a_domain():
    names = np.array(["none", "some"])
    np.savez("vectors.npz", X=np.eye(40), y=np.arange(40) // 2 % 2, domain=names[np.arange(40) % 2])
    assert call("train", "vectors.npz", "--method", "erm", "--hold-out", "none", *SHORT).code == 0
    assert only_run().result().to_json()["held_out"] == ["none"]


def test_data_without_domains_are_trained_on():
    done = call("train", "clinic.csv", "--target", "sick", "--drop", "site", "--method", "erm", *SHORT)
    assert done.code == 0, done
    assert only_run().result().to_json()["sources"] == []


def test_two_domains_are_held_out_together():
    done = train("--method", "erm", "--hold-out", "north+west")
    assert done.code == 0, done
    assert set(only_run().result().to_json()["test"]["by_domain"]) == {"north", "west"}
    assert "north+west held out" in done.out


def test_a_second_time_it_is_found(monkeypatch):
    first = train("--method", "erm", "--hold-out", "north")

    def began(self: ProgressBar, recipe: Any, folder: RunFolder, *, epochs: int) -> None:
        raise AssertionError("it is trained, and should be there")

    monkeypatch.setattr(ProgressBar, "on_run_start", began)
    again = train("--method", "erm", "--hold-out", "north")
    assert (again.code, again.out, again.err) == (0, first.out, "")


def test_a_card_stands_for_data():
    Path("card.yaml").write_text("path: clinic.csv\ntarget: sick\ndomain: site\n")
    done = call("train", "card.yaml", "--method", "erm", "--hold-out", "west", *SHORT)
    assert done.code == 0, done
    assert only_run().result().to_json()["held_out"] == ["west"]


def test_what_a_method_needs_is_trained_first():
    done = train("--method", "linear", "--hold-out", "north")
    assert done.code == 0, done
    assert [line.split(",")[0] for line in done.err.splitlines() if line.startswith("[")] == [
        "[1/2] ERM",
        "[2/2] retrained linear head",
    ]
    assert "retrained linear head on clinic.csv" in done.out


# -- from a recipe -----------------------------------------------------------------------------------------------------


def test_a_recipe_is_trained_as_it_says():
    done = call("train", written(seed=4), "--device", "cpu", "--out", "runs")
    assert done.code == 0, done
    made = only_run().recipe()
    assert (made["seed"], made["hold_out"], made["training"]["batch_size"]) == (4, "north", 32)
    assert done.out.startswith("ERM on clinic.csv, north held out, seed 4\n")


def test_options_override_what_a_recipe_says():
    recipe = written(training={"epochs": 1, "batch_size": 32, "class_weights": True})
    done = call("train", recipe, *SHORT, "--seed", 5, "--hold-out", "west", "--epochs", 2, "--body", "identity",
                "--method", "erm-ensemble[heads=2]", "--patience", 0, "--no-class-weights")  # fmt: skip
    assert done.code == 0, done
    made, training = only_run().recipe(), only_run().recipe()["training"]
    assert (made["seed"], made["hold_out"], made["body"]) == (5, "west", "identity")
    assert (made["method"]["name"], made["method"]["heads"]) == ("erm-ensemble", 2)
    assert (training["epochs"], training["patience"], training["class_weights"]) == (2, None, False)
    assert training["batch_size"] == 32  # as the recipe has it


def test_a_recipe_of_a_comparison_makes_a_model_to_ship():
    done = call("train", written(), "--hold-out", "none", "--device", "cpu", "--out", "runs")
    assert done.code == 0, done
    assert only_run().result().to_json()["sources"] == ["north", "south", "west"]


def test_the_recipe_that_a_run_leaves_gives_the_same_run_elsewhere():
    assert train("--hold-out", "north", "--method", "gdu[num_bases=2]", "--rate", 0.01).code == 0
    run = only_run()
    done = call("train", run.path / "recipe.yaml", "--device", "cpu", "--out", "others")
    assert done.code == 0, done
    (other,) = all_runs("others")
    assert other.name == run.name
    assert digest(other.path / "model.safetensors") == digest(run.path / "model.safetensors")
    assert without_times(other) == without_times(run)


def test_a_recipe_says_itself_how_its_data_are_read():
    done = call("train", written(), "--target", "sick", *SHORT)
    assert_refused(done, "recipe.yaml says how its data are read; change it there")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training": {"epochs": "many"}}, ["training.epochs must be a whole number of at least 1, got 'many'"]),
        ({"training": {"epoch": 5}}, ["training.epoch is not known; did you mean 'epochs'?"]),
        ({"method": {"name": "erm", "activation": 5}}, ["activation must be one of 'none', 'tanh', got 5"]),
        ({"method": {"name": "emr"}}, ["there is no method 'emr'; did you mean 'erm'?"]),
        ({"body": "mpl"}, ["there is no body 'mpl'; did you mean 'mlp'?"]),
        ({"hold_out": "nort"}, ["no domain 'nort' to hold out; did you mean 'north'?"]),
        ({"hold_out": 5}, ["hold_out must be text or null, got 5"]),
        ({"data": {"what": "clinik.csv"}}, ["clinik.csv is neither a file or folder here"]),
        ({"data": "clinic.csv"}, ["data must be a group of settings"]),
        ({"method": None}, ["method must name one"]),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused_and_no_folder_is_made(changes, words):
    assert_refused(call("train", written(**changes), *SHORT), *words)
    assert not Path("runs").exists()


def test_a_recipe_that_is_no_yaml_is_refused_with_the_line():
    Path("recipe.yaml").write_text("data: {what: clinic.csv\nmethod: gdu\n")
    assert_refused(call("train", "recipe.yaml", *SHORT), "recipe.yaml, line ")


# -- in Python ---------------------------------------------------------------------------------------------------------


def test_in_python_it_is_the_same_run_and_prints_the_same(monkeypatch):
    done = train("--method", "erm", "--hold-out", "north", "--seed", 3)
    assert done.code == 0, done
    asked: dict[str, Any] = {"hold_out": "north", "seed": 3, "out": "runs", "progress": False}
    asked |= {"training": {"epochs": 1}, "hardware": CPU}
    for source in ("clinic.csv", Path("clinic.csv")):
        run = gd.train(source, target="sick", domain="site", method="erm", **asked)
        assert run.path == only_run().path
        assert str(run) == "\n".join(done.out.splitlines()[:-1])
    assert gd.train(Path(written(training={"epochs": 9})), **asked).recipe.hold_out == "north"
    with pytest.raises(DataError, match=r"recipe\.yaml says how its data are read"):
        gd.train(Path("recipe.yaml"), target="sick")


# -- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["compare", "train", "evaluate", "predict"])
def test_help_has_the_shared_options_under_their_headings(command):
    done = call(command, "--help")
    assert done.code == 0
    trains = command in ("compare", "train")
    assert "How to read the data" in done.out
    assert "--keep-together" in done.out
    assert ("How to train" in done.out) is trains
    assert ("--no-class-weights" in done.out) is trains
    assert ("On what" in done.out) is trains
    assert "gdu[num_bases=8" in done.out or not trains


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hold-out", "each"], ["--hold-out each is more than one training", "use `compare`"]),
        (["--hold-out", "folds:2"], ["--hold-out folds:2 is more than one training"]),
        (["--hold-out", "nort"], ["did you mean 'north'?"]),
        (["--method", "gdu,erm"], ["--method names one method, got 'gdu,erm'; `compare` takes several"]),
        (["--method", "gduu"], ["--method: there is no method 'gduu'; did you mean 'gdu'?"]),
        (["--body", "small"], ["'small' takes images"]),
        (["--rate", 0], ["rate must be a number above 0, got 0.0"]),
    ],
    ids=lambda part: " ".join(map(str, part)) if part[0].startswith("--") else "",
)
def test_what_makes_no_sense_is_refused(options, words):
    assert_refused(train(*options), *words)
    assert not Path("runs").exists()


def test_stopped_it_exits_with_130_and_goes_on_to_the_same_bits(monkeypatch):
    options = ("--method", "gdu[num_bases=2]", "--hold-out", "north", "--batch-size", 16, "--checkpoint-seconds", 0)

    def stop(self: ProgressBar, step: int, steps: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "on_step", stop)
        assert train(*options).code == 130
    assert not only_run().done
    assert len(only_run().checkpoints) == 1
    steps = []
    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "on_step", lambda self, step, steps_in_all: steps.append(step))
        assert train(*options).code == 0
    assert steps[0] == 4
    whole = call("train", "clinic.csv", *READING, *SHORT[:-1], "whole", *options)
    assert whole.code == 0, whole
    (other,) = all_runs("whole")
    assert digest(other.path / "model.safetensors") == digest(only_run().path / "model.safetensors")


# -- a recipe, with changes --------------------------------------------------------------------------------------------


def in_brackets(tmp_path) -> Path:
    table(tmp_path / "table.csv")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "data: {what: table.csv, target: sick, domain: site}\n"
        "hold_out: north\n"
        "method: {name: erm, ema: 0.9}\n"
        "training: {epochs: 1, batch_size: 32}\n"
    )
    return recipe


def test_an_option_overrides_what_the_recipes_method_says_and_the_run_says_so_of_itself(tmp_path):
    found = call("train", in_brackets(tmp_path), "--ema", 0.5, "--out", tmp_path / "runs", "--device", "cpu")
    (run,) = all_runs(tmp_path / "runs")
    assert "ERM + EMA 0.5 on" in found.out
    assert (run.result().to_json()["label"], run.recipe()["training"]["ema"]) == ("ERM + EMA 0.5", 0.5)
    again = call("train", run.path / "recipe.yaml", "--out", tmp_path / "runs", "--device", "cpu")
    assert again.code == 0
    assert [other.path for other in all_runs(tmp_path / "runs")] == [run.path]


def test_another_method_leaves_behind_what_the_recipes_own_changed_in_the_training(tmp_path):
    call("train", in_brackets(tmp_path), "--method", "gdu", "--out", tmp_path / "runs", "--device", "cpu")
    (run,) = all_runs(tmp_path / "runs")
    assert (run.result().to_json()["label"], run.recipe()["training"]["ema"]) == ("GDU", None)
