"""A trained model as a program of torch.export: what it says, what is written, and what is refused."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
import torch

import made_exports
import made_runs
from gated_domains.data.errors import DataError
from gated_domains.experiments.model import Model
from gated_domains.export import exporting, parity
from gated_domains.export.examples import drawn
from gated_domains.export.exporting import export_model, subject_of
from gated_domains.export.graph import tensors
from gated_domains.export.parity import TOLERANCE, as_trained, check_parity, differences
from gated_domains.export.torch_file import ABOUT_FILE

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made_exports.trained(made_runs.vectors(), tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    return made_exports.trained(made_exports.a_table(folder), folder / "runs", settings={"gate": "projection"})


@pytest.mark.parametrize("gates", ["sample", "batch"])
def test_a_saved_program_says_what_the_model_says(table_run, tmp_path, gates):
    steps = []
    found = export_model(table_run.path, tmp_path / "model.pt2", to="torch", gates=gates, say=steps.append)
    assert found.difference <= TOLERANCE
    assert [step.split()[0] for step in steps] == ["traced:", "checked:", "wrote"]
    said = {ABOUT_FILE: ""}
    program = torch.export.load(found.path, extra_files=said).module()
    subject = subject_of(table_run.path, gates=gates)
    inputs = drawn(subject, 11, seed=3)
    for name, value in zip(("prediction", "beta", "novelty", "coverage"), program(*tensors(inputs)), strict=True):
        np.testing.assert_allclose(value.numpy(), as_trained(subject, inputs)[name], rtol=0, atol=TOLERANCE)
    about = json.loads(said[ABOUT_FILE])
    assert (about["format"], about["gates"], about["kind"]) == (1, gates, "run")
    assert [entry["name"] for entry in about["inputs"]] == ["numbers", "names"]


def test_a_model_with_batch_gates_keeps_them(run):
    model = Model.load(run.path)
    model.method.test_gates = "batch"
    assert subject_of(model, gates=None).gates == "batch"
    assert subject_of(model, gates="sample").network.test_gates == "sample"
    assert model.method.test_gates == "batch"


def test_real_rows_are_compared_too(run):
    subject = subject_of(run.path, gates=None)
    asked = []

    def spy(inputs):
        asked.append(len(inputs["features"]))
        return as_trained(subject, inputs)

    assert check_parity(subject, spy, rows={"features": np.zeros((100, 4), np.float32)}).difference == 0
    assert asked == [1, 7, 64, 1, 7, 64, 28]


def test_an_estimator_is_exported_with_what_it_was_fitted_on(tmp_path):
    from gated_domains.estimators.gated import GDUClassifier

    rng = np.random.default_rng(0)
    label, site = np.arange(60) % 2, np.arange(60) % 3
    x = rng.normal(size=(60, 3)) + label[:, None] + np.array([1e9, 0.0, 0.0])  # far more than float32 holds
    estimator = GDUClassifier(max_iter=5, random_state=0).fit(x, label, sample_domain=site)
    found = export_model(estimator, tmp_path / "model.pt2", to="torch")
    assert found.difference <= TOLERANCE
    assert "domains: 0 (20 rows), 1 (20 rows), 2 (20 rows)" in found.card.read_text()
    program = torch.export.load(found.path).module()
    said = program(torch.from_numpy(x))
    np.testing.assert_allclose(said[0].numpy(), estimator.predict_proba(x), rtol=0, atol=TOLERANCE)


def test_a_steep_fit_in_float64_is_exported(tmp_path):
    from gated_domains.estimators.plain import ERMClassifier

    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    x[:, 0] += np.where(x[:, 0] > 0, 0.05, -0.05)
    estimator = ERMClassifier(alpha=1e-9).fit(x, x[:, 0] > 0)
    assert estimator.network_.linear.weight.abs().max() > 50
    program = torch.export.load(export_model(estimator, tmp_path / "model.pt2", to="torch").path).module()
    between = rng.normal(size=(200, 2)) * [0.05, 1]
    said = program(torch.from_numpy(between))[0].numpy()
    np.testing.assert_allclose(said, estimator.predict_proba(between), rtol=0, atol=1e-7)


def test_an_estimator_that_was_not_fitted_is_refused(tmp_path):
    from gated_domains.estimators.gated import GDUClassifier

    with pytest.raises(DataError, match="GDUClassifier is no trained model; fit it first"):
        export_model(GDUClassifier(), tmp_path / "model.pt2", to="torch")


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [2e-5, math.nan, math.inf])
@pytest.mark.parametrize("output", ["prediction", "beta", "novelty", "coverage"])
def test_another_number_in_any_output_is_refused(run, output, broken):
    subject = subject_of(run.path, gates=None)

    def off(inputs):
        said = as_trained(subject, inputs)
        said[output] = said[output].copy()
        said[output].flat[-1] += broken
        return said

    with pytest.raises(DataError, match=rf"{output} differs by .* at batch .*at most 1e-05 is allowed"):
        check_parity(subject, off, sizes=(7,))


def test_nan_on_both_sides_is_no_agreement(run, monkeypatch):
    subject = subject_of(run.path, gates=None)
    nothing = {"prediction": np.full((7, 2), np.nan, np.float32)}
    monkeypatch.setattr(parity, "as_trained", lambda subject, inputs: nothing)
    with pytest.raises(DataError, match="differs by inf"):
        check_parity(subject, lambda inputs: nothing, sizes=(7,))


def test_other_outputs_are_refused(run):
    subject = subject_of(run.path, gates=None)
    with pytest.raises(DataError, match="gives"):
        differences(subject, lambda inputs: {"prediction": np.zeros((5, 2))}, drawn(subject, 5))


def test_a_number_is_compared_in_the_scale_of_its_targets(tmp_path):
    subject = subject_of(made_exports.trained(made_runs.numbers(), tmp_path).path, gates=None)
    assert 100 < subject.scale < 1_000

    def off_by(share):
        def run(inputs):
            said = as_trained(subject, inputs)
            return {**said, "prediction": (said["prediction"].astype(np.float64) + share * subject.scale)}

        return run

    assert check_parity(subject, off_by(0.9e-5), sizes=(7,)).difference <= TOLERANCE
    with pytest.raises(DataError, match="prediction differs"):
        check_parity(subject, off_by(2e-5), sizes=(7,))


def test_each_of_several_numbers_is_compared_in_a_scale_of_its_own():
    from gated_domains.estimators.plain import ERMRegressor

    x = np.random.default_rng(0).normal(size=(60, 2))
    subject = subject_of(ERMRegressor().fit(x, x * [1.0, 1_000.0]), gates=None)

    def off(inputs):
        said = as_trained(subject, inputs)
        return {**said, "prediction": said["prediction"] + np.array([1e-3, 0.0])}

    assert subject.scale is not None
    np.testing.assert_allclose(subject.scale, x.std(0) * [1.0, 1_000.0])
    with pytest.raises(DataError, match=r"prediction differs by 1\..e-03 .*ship the folder of estimator\.save"):
        check_parity(subject, off, sizes=(7,))


def test_coverage_may_be_as_far_away_as_its_own_rounding_and_that_is_said(run, monkeypatch):
    subject = subject_of(run.path, gates=None)

    def off(inputs):
        said = as_trained(subject, inputs)
        return {**said, "coverage": said["coverage"] + np.float32(2e-5)}

    assert parity.own_rounding(subject, drawn(subject, 7)) < TOLERANCE
    with pytest.raises(DataError, match="coverage differs"):
        check_parity(subject, off, sizes=(7,))
    monkeypatch.setattr(parity, "own_rounding", lambda subject, inputs: 1e-4)
    found = check_parity(subject, off, sizes=(7,))
    assert found.coverage == pytest.approx(2e-5, rel=0.05)
    assert "coverage by 2e-05: it is steep here" in str(found)


def test_rounding_of_a_steep_coverage_is_measured(run):
    subject = subject_of(run.path, gates=None)
    inputs = drawn(subject, 64)
    middle = float(as_trained(subject, inputs)["novelty"][0])
    subject.units.coverage.q50.fill_(middle - 1e-5)
    subject.units.coverage.q97.fill_(middle + 1e-5)
    assert parity.own_rounding(subject, inputs) > 1e-4


def test_a_program_that_differs_leaves_no_file(run, tmp_path, monkeypatch):
    def off(program, outputs):
        right = exporting_run(program, outputs)
        return lambda inputs: {name: value + 1 for name, value in right(inputs).items()}

    exporting_run = exporting.run_program
    monkeypatch.setattr(exporting, "run_program", off)
    with pytest.raises(DataError, match="nothing was written"):
        export_model(run.path, tmp_path / "model.pt2", to="torch")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_traced_is_refused_with_the_reason(run, tmp_path):
    model = Model.load(run.path)
    usual = model.method.predict
    model.method.predict = lambda inputs: usual(inputs if float(inputs.sum()) > 0 else -inputs)
    with pytest.raises(DataError, match=r"torch\.export cannot trace this model \(.+\); ship the run's folder"):
        export_model(model, tmp_path / "model.pt2", to="torch")
    assert list(tmp_path.iterdir()) == []


def test_a_method_that_hangs_on_its_batch_is_refused(tmp_path):
    run = made_exports.trained(made_runs.images(), tmp_path / "runs", "arm-bn")
    with pytest.raises(DataError, match="ARM-BN cannot be exported: what it says of a sample hangs on"):
        export_model(run.path, tmp_path / "model.pt2", to="torch")


def test_gates_that_are_not_there_cannot_be_chosen(tmp_path):
    run = made_exports.trained(made_runs.vectors(), tmp_path / "runs", "erm")
    with pytest.raises(DataError, match="ERM has no gates that could be by batch"):
        export_model(run.path, tmp_path / "model.pt2", to="torch", gates="batch")
    with pytest.raises(DataError, match="a stream has a memory"):
        subject_of(run.path, gates="stream")


@pytest.mark.parametrize(
    ("name", "to", "words"),
    [
        ("model.onnx", "torch", r"exported to torch is a file \.pt2, not '\.onnx'"),
        ("model", "torch", "without suffix"),
        ("model.json", "torch", r"not '\.json'"),
        ("mine.pt2", "torch", r"mine\.pt2\.md is there and is no model card"),
        ("folder.pt2", "torch", "is a folder"),
        ("model.tflite", "tflite", "onnx or torch, got 'tflite'"),
    ],
)
def test_a_place_that_would_lose_something_is_refused(run, tmp_path, name, to, words):
    (tmp_path / "mine.pt2.md").write_text("# Mine\n")
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(DataError, match=words):
        export_model(run.path, tmp_path / name, to=to)
    assert (tmp_path / "mine.pt2.md").read_text() == "# Mine\n"


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="int is no trained model"):
        export_model(7, tmp_path / "model.pt2", to="torch")
    (tmp_path / "m.pkl").touch()
    with pytest.raises(DataError, match=r"is a file; give the folder of a run, or that of estimator\.save"):
        export_model(tmp_path / "m.pkl", tmp_path / "model.pt2", to="torch")
    with pytest.raises(DataError, match="there is no such run"):
        export_model(tmp_path / "run", tmp_path / "model.pt2", to="torch")


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_package_that_is_not_there_is_named(run, tmp_path, monkeypatch, package):
    for name in ("onnx", "onnxscript", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None if name == package else type(sys)(name))
    with pytest.raises(DataError, match=rf"needs the package {package}, .*pip install 'gated-domains\[onnx\]'"):
        export_model(run.path, tmp_path / "model.onnx")


def test_the_command_refuses_what_it_does_not_know(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_runs.assert_refused(made_runs.call("export", run.path, "--to", "onxx"), "--to cannot be 'onxx'", "onnx")
    made_runs.assert_refused(made_runs.call("export", run.path, "--gates", "stream"), "--gates cannot be 'stream'")
    done = made_runs.call("export", run.path, "--to", "torch")
    assert done.code == 0, done
    assert "wrote model.pt2" in done.out
    assert (tmp_path / "model.pt2.md").is_file()


def test_molecules_as_graphs_are_refused_with_the_reason():
    from gated_domains.data.other_encodings import GraphEncoding
    from gated_domains.export.feeds import feeds_of

    with pytest.raises(DataError, match="a model for graphs cannot be exported: its samples differ in size"):
        feeds_of(GraphEncoding())
