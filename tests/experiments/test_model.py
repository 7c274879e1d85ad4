"""A trained method on disk: the same predictions after loading, and nothing read that is not what was written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gated_domains.data.batches import place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.experiments.model import Model, class_weights, task_for
from gated_domains.methods import Classes, Numbers
from gated_domains.runs.folder import RunFolder
from gated_domains.training.prediction import predict_rows
from made_runs import changed, images, numbers, recipe, runner, vectors

EVERY = {
    "gdu": ("gdu", {}),
    "gdu fine-tuned": ("gdu", {"mode": "fine_tune"}),
    "gdu fewer parts": ("gdu", {"shared": False, "coverage": False, "gated_norm": False, "gating": "features"}),
    "paper": ("gdu-paper", {"num_bases": 3}),
    "paper fine-tuned": ("gdu-paper", {"mode": "fine_tune", "gate": "projection"}),
    "erm": ("erm", {"activation": "tanh"}),
    "linear": ("linear", {}),
    "heads": ("erm-ensemble", {"heads": 2}),
    "heads fine-tuned": ("erm-ensemble", {"mode": "fine_tune"}),
    "ensemble": ("ensemble", {"members": 2}),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(root: Path) -> RunFolder:
    return runner(vectors(), root).run(recipe("gdu"))


@pytest.fixture
def run(trained: RunFolder, tmp_path: Path) -> Path:
    """A run to be spoilt."""
    return Path(shutil.copytree(trained.path, tmp_path / trained.name))


def assert_says_the_same(run: RunFolder, dataset: DomainDataset) -> None:
    """A loaded model says of the test rows what the trained one said."""
    model, before = Model.load(run.path), run.predictions()
    assert not model.method.training
    found = predict_rows(model.method, place(dataset, model.schema.encoding, device="cpu"), before["rows"])
    for name, values in found.arrays().items():
        np.testing.assert_allclose(values, before[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert set(found.arrays()) == set(before) - {"rows", "part", "targets", "domains"}


@pytest.mark.parametrize("name", EVERY)
def test_a_loaded_model_says_what_the_trained_one_said(root, name):
    method, settings = EVERY[name]
    assert_says_the_same(runner(vectors(), root).run(recipe(method, settings=settings)), vectors())


@pytest.mark.parametrize("dataset", [numbers(), images()], ids=["numbers", "images"])
def test_so_it_does_for_other_data(root, dataset):
    run = runner(dataset, root).run(recipe("gdu", training={"batch_size": 8, "epochs": 1}))
    assert_says_the_same(run, dataset)


def test_saved_again_it_is_the_same_file(trained, tmp_path):
    Model.load(trained.path).save(tmp_path)
    for file in ("model.safetensors", "model.json"):
        assert (tmp_path / file).read_bytes() == (trained.path / file).read_bytes()


# -- what is refused ---------------------------------------------------------------------------------------------------


def refused(run: Path, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        Model.load(run)
    for word in (*words, "delete the run's folder and train it again"):
        assert word in str(caught.value)


def test_weights_cut_anywhere_are_refused(run):
    path = run / "model.safetensors"
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(run, str(path), "it is cut short, damaged")


def test_one_bit_of_a_weight_is_missed(run):
    path = run / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    refused(run, str(path), "its SHA-256 is not the one in model.json")


def test_weights_of_another_model_are_refused(run):
    path = run / "model.safetensors"
    tensors = load_file(path)
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, path)
    refused(run, str(path), "of another model")


def test_weights_that_do_not_fit_what_the_card_says_are_refused(run):
    card = json.loads((run / "model.json").read_text())
    changed(run / "model.json", shape={**card["shape"], "settings": {**card["shape"]["settings"], "num_bases": 7}})
    refused(run, "model.safetensors", "of another model")


def test_weights_that_are_not_there_are_missed(run):
    (run / "model.safetensors").unlink()
    refused(run, "model.safetensors is not there")


@pytest.mark.parametrize(("part", "name", "known"), [("method", "gduu", "'gdu'"), ("body", "mlpp", "'mlp'")])
def test_an_unknown_method_or_body_is_called_unknown(run, part, name, known):
    card = json.loads((run / "model.json").read_text())
    changed(run / "model.json", shape={**card["shape"], part: name})
    with pytest.raises(DataError, match=f"trained with the {part} '{name}', which is not known here; import") as caught:
        Model.load(run)
    assert str(caught.value).endswith(f"did you mean {known}?")


def test_a_run_without_a_model_is_refused(run):
    (run / "model.json").unlink()
    with pytest.raises(DataError, match=r"holds no trained model \(model.json is not there\); train it to its end"):
        Model.load(run)


def test_a_card_cut_anywhere_or_of_something_else_is_refused(run):
    path = run / "model.json"
    whole = path.read_bytes()
    for content in (b"", whole[:40], whole[:-3], b"[]", b"5", b"null", b"\xff\xfe", b"[" * 100_000):
        path.write_bytes(content)
        refused(run, str(path), "damaged")


@pytest.mark.parametrize("theirs", [0, 2, "1", None])
def test_a_model_of_another_format_is_refused(run, theirs):
    changed(run / "model.json", format=theirs)
    refused(run, f"is of format {theirs!r}, this version reads 1")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("method", ["gdu"]),
        ("settings", {"num_base": 5}),
        ("settings", 5),
        ("inputs", 4),
        ("inputs", ["four"]),
        ("inputs", [5]),
        ("outputs", 3),
        ("outputs", "two"),
        ("mean", "none"),
        ("colour", "red"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_a_card_that_was_meddled_with_is_refused(run, field, value):
    card = json.loads((run / "model.json").read_text())
    changed(run / "model.json", shape={**card["shape"], field: value})
    refused(run, "model.json is damaged")


@pytest.mark.parametrize("part", ["shape", "schema"])
@pytest.mark.parametrize("value", [None, 5, {}, []], ids=repr)
@pytest.mark.usefixtures("without_shape_checks")
def test_a_card_that_lacks_a_part_is_refused(run, part, value):
    changed(run / "model.json", **{part: value})
    refused(run, "model.json is damaged")


def test_a_schema_of_other_classes_is_refused(run):
    card = json.loads((run / "model.json").read_text())
    changed(run / "model.json", schema={**card["schema"], "class_names": ["no", "yes", "perhaps"]})
    refused(run, "its shape and its schema do not go together")


# -- what is minimised -------------------------------------------------------------------------------------------------


def test_class_weights_average_one_over_the_training_rows_and_give_every_class_the_same_say():
    data, rows = vectors(), np.arange(0, 90)
    weights = class_weights(data, rows).numpy()
    of_rows = weights[data.targets[rows]]
    assert of_rows.mean() == pytest.approx(1)
    say = [of_rows[data.targets[rows] == label].sum() for label in (0, 1)]
    assert say[0] == pytest.approx(say[1])


def test_a_class_that_training_rows_lack_weighs_nothing():
    data = vectors()
    rows = np.flatnonzero(data.targets == 1)
    np.testing.assert_array_equal(class_weights(data, rows), [0, 1])


def test_the_task_follows_from_the_targets_of_the_training_rows():
    data, rows = numbers(), np.arange(60)
    task: Any = task_for(data, rows, weighted=False)
    assert isinstance(task, Numbers)
    assert task.mean == pytest.approx(data.targets[:60].mean())
    assert task.scale == pytest.approx(data.targets[:60].std())
    plain: Any = task_for(vectors(), rows, weighted=False)
    assert isinstance(plain, Classes)
    assert plain.class_weight is None
    weighted: Any = task_for(vectors(), rows, weighted=True)
    np.testing.assert_array_equal(weighted.class_weight, class_weights(vectors(), rows))


def test_targets_that_are_all_the_same_number_are_not_divided_by_nothing():
    data = numbers()
    same: Any = DomainDataset.from_arrays(
        np.zeros((6, 2), np.float32), np.full(6, 3.0), name="same", task="regression"
    )  # fmt: skip
    assert task_for(same, np.arange(6), weighted=False).scale == 1.0  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="class weights need classes"):
        task_for(data, np.arange(6), weighted=True)
