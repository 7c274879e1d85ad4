"""An exported ONNX file says what the trained model says, for every method, gate and kind of data."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import made_exports
import made_runs
from gated_domains.applying.of_onnx import OnnxPredictor
from gated_domains.applying.of_run import predict_new
from gated_domains.data.errors import DataError
from gated_domains.experiments.model import Model
from gated_domains.export.exporting import export_model
from gated_domains.export.onnx_file import OnnxFile
from gated_domains.export.parity import TOLERANCE, differences
from gated_domains.export.sealing import ABOUT, sealed, unsealed

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("without_shape_checks")]
onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return made_exports.trained(made_exports.images(), tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def exported(images, tmp_path_factory):
    return export_model(images.path, tmp_path_factory.mktemp("file") / "model.onnx")


def assert_same_predictions(model: Model, path, data) -> None:
    expected, found = predict_new(model, data), OnnxPredictor(path, gates=None).predict(data)
    assert expected.arrays().keys() == found.arrays().keys()
    scale = model.spec.scale
    for name, values in expected.arrays().items():
        np.testing.assert_allclose(
            found.arrays()[name] / scale, values / scale, rtol=0, atol=TOLERANCE, err_msg=f"{name}"
        )


@pytest.mark.parametrize("method", made_exports.METHODS)
def test_every_method_is_exported(method, tmp_path):
    data = made_runs.vectors()
    model = made_exports.model(data, tmp_path / "runs", method)
    export_model(model, tmp_path / "model.onnx")
    assert_same_predictions(model, tmp_path / "model.onnx", made_exports.new_data(data))


@pytest.mark.parametrize("method", ["linear", "ensemble"])
def test_what_is_made_of_several_trainings_is_exported(method, tmp_path):
    data = made_runs.vectors()
    model = made_exports.model(data, tmp_path / "runs", method)
    export_model(model, tmp_path / "model.onnx")
    assert_same_predictions(model, tmp_path / "model.onnx", made_exports.new_data(data))


@pytest.mark.parametrize(
    ("gate", "gates"),
    [
        ("cosine", "sample"),
        ("cosine", "batch"),
        ("mmd", "batch"),
        ("projection", "sample"),
        pytest.param("mmd", "sample", marks=pytest.mark.slow),
        pytest.param("projection", "batch", marks=pytest.mark.slow),
    ],
)
def test_every_gate_is_exported_by_sample_and_by_batch(gate, gates, tmp_path):
    data = made_exports.images()
    settings = {"gate": gate, "test_gates": gates}
    model = made_exports.model(data, tmp_path / "runs", settings=settings)
    export_model(model, tmp_path / "model.onnx")
    assert_same_predictions(model, tmp_path / "model.onnx", made_exports.new_data(data))


@pytest.mark.parametrize("statistics", ["basis", "batch"])
def test_norm_statistics_are_exported(statistics, tmp_path):
    data = made_exports.images()
    model = made_exports.model(data, tmp_path / "runs", settings={"norm_statistics": statistics})
    by_basis = [norm for norm in model.method.modules() if getattr(norm, "statistics", None) == "basis"]
    assert bool(by_basis) == (statistics == "basis")
    assert all(norm.normalise.running_mean.std(0).max() > 0 for norm in by_basis)
    export_model(model, tmp_path / "model.onnx")
    assert_same_predictions(model, tmp_path / "model.onnx", made_exports.new_data(data))


@pytest.mark.parametrize("method", ["gdu", "erm"])
def test_a_number_is_exported(method, tmp_path):
    data = made_runs.numbers()
    model = made_exports.model(data, tmp_path / "runs", method)
    export_model(model, tmp_path / "model.onnx")
    assert_same_predictions(model, tmp_path / "model.onnx", made_exports.new_data(data))


def test_a_table_is_exported_with_its_preprocessing(tmp_path):
    data = made_exports.a_table(tmp_path)
    model = made_exports.model(data, tmp_path / "runs")
    export_model(model, tmp_path / "model.onnx")
    assert_same_predictions(model, tmp_path / "model.onnx", made_exports.new_data(data))
    session = OnnxFile.read(tmp_path / "model.onnx").session()
    missing = session({"numbers": np.full((2, 2), np.nan), "names": np.array([[-1], [-2]])})
    assert np.isfinite(missing["prediction"]).all()


def test_a_temperature_is_in_the_graph(tmp_path):
    data = made_runs.vectors()
    found = made_exports.model(data, tmp_path / "runs")
    model = Model(method=found.method, spec=found.spec, schema=found.schema, temperature=0.07)
    export_model(model, tmp_path / "model.onnx")
    assert_same_predictions(model, tmp_path / "model.onnx", made_exports.new_data(data))


def test_many_rows_are_predicted_in_batches(tmp_path):
    data = made_runs.vectors(2_500)
    model = made_exports.model(data, tmp_path / "runs", settings={"test_gates": "batch"})
    export_model(model, tmp_path / "model.onnx")
    assert_same_predictions(model, tmp_path / "model.onnx", made_exports.new_data(data))


@pytest.mark.parametrize("size", [1, 7, 512])
def test_any_batch_gives_the_same_to_five_digits(images, exported, size):
    from gated_domains.export.examples import drawn
    from gated_domains.export.exporting import subject_of

    subject = subject_of(images.path, gates=None)
    run = OnnxFile.read(exported.path).session()
    assert max(differences(subject, run, drawn(subject, size, seed=99)).values()) <= TOLERANCE


def test_inputs_and_outputs_have_names_and_a_batch_of_any_size(exported):
    model = onnx.load(exported.path)
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {
        "images": ["batch", 20, 20, 3],
        "prediction": ["batch", 2],
        "beta": ["batch", 5],
        "novelty": ["batch"],
        "coverage": ["batch"],
    }


def test_nothing_of_this_machine_is_in_the_file(exported):
    content = exported.path.read_bytes()
    assert b".py" not in content
    assert b"site-packages" not in content


def test_a_projection_is_a_product_and_nothing_is_solved(tmp_path):
    model = made_exports.model(made_runs.vectors(), tmp_path / "runs", settings={"gate": "projection"})
    export_model(model, tmp_path / "model.onnx")
    loaded = onnx.load(tmp_path / "model.onnx")
    assert {node.domain for node in loaded.graph.node} == {""}


def test_the_snippet_of_the_card_works_as_it_stands(exported):
    code = re.search(r"```python\n(.*?)```", exported.card.read_text(), re.DOTALL)
    assert code is not None
    shown = code[1] + "\nprint(prediction.shape, beta.shape, novelty.shape, coverage.shape)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, cwd=exported.path.parent)
    assert done.stdout.strip() == "(1, 2) (1, 5) (1,) (1,)", done.stderr


def test_other_gates_than_the_exported_are_refused(exported):
    with pytest.raises(DataError, match="--gates batch"):
        OnnxPredictor(exported.path, gates="batch")
    with pytest.raises(DataError, match="a stream has a memory"):
        OnnxPredictor(exported.path, gates="stream")
    assert OnnxPredictor(exported.path, gates="sample").gates == "sample"


# -- what is refused ---------------------------------------------------------------------------------------------------


def written(path, content: bytes):
    path.write_bytes(content)
    return path


def changed(exported, change) -> bytes:
    """The content with something else in the model, sealed anew, as one who means harm would."""
    model = onnx.load_model_from_string(unsealed(exported.path.read_bytes(), exported.path))
    change(model)
    return sealed(model.SerializeToString())


@pytest.mark.parametrize("cut", [1, 60, 2_000])
def test_a_file_cut_short_is_refused(exported, tmp_path, cut):
    path = written(tmp_path / "model.onnx", exported.path.read_bytes()[:-cut])
    with pytest.raises(DataError, match="cut short"):
        OnnxFile.read(path)


def test_a_file_with_one_byte_changed_is_refused(exported, tmp_path):
    content = bytearray(exported.path.read_bytes())
    content[len(content) // 2] ^= 1
    with pytest.raises(DataError, match="was changed after it was exported"):
        OnnxFile.read(written(tmp_path / "model.onnx", bytes(content)))


def test_an_onnx_file_of_someone_else_is_refused(tmp_path):
    graph = onnx.helper.make_graph([], "theirs", [], [])
    content = onnx.helper.make_model(graph).SerializeToString()
    with pytest.raises(DataError, match="not exported by gated-domains"):
        OnnxFile.read(written(tmp_path / "model.onnx", content))
    with pytest.raises(DataError, match="not exported by gated-domains"):
        OnnxFile.read(written(tmp_path / "model.onnx", sealed(content)))


def test_a_newer_format_is_refused_by_name(exported, tmp_path):
    def newer(model) -> None:
        (entry,) = (entry for entry in model.metadata_props if entry.key == ABOUT)
        entry.value = json.dumps({**json.loads(entry.value), "format": 7, "gated_domains": "9.1"})

    with pytest.raises(DataError, match=r"gated-domains 9\.1 in format 7.*reads format 1; update"):
        OnnxFile.read(written(tmp_path / "model.onnx", changed(exported, newer)))


def test_foreign_operators_are_refused(exported, tmp_path):
    def foreign(model) -> None:
        model.graph.node[0].domain = "com.evil"

    with pytest.raises(DataError, match=r"com\.evil"):
        OnnxFile.read(written(tmp_path / "model.onnx", changed(exported, foreign)))


def test_foreign_operators_inside_a_branch_are_refused(exported, tmp_path):
    def foreign(model) -> None:
        inner = onnx.helper.make_node("Run", [], ["out"], domain="com.evil")
        branch = onnx.helper.make_graph([inner], "branch", [], [])
        model.graph.node.append(onnx.helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch))

    with pytest.raises(DataError, match=r"com\.evil"):
        OnnxFile.read(written(tmp_path / "model.onnx", changed(exported, foreign)))


def test_weights_in_other_files_are_refused(exported, tmp_path):
    def outside(model) -> None:
        tensor = model.graph.initializer[0]
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../../secret")

    with pytest.raises(DataError, match="keeps weights in other files"):
        OnnxFile.read(written(tmp_path / "model.onnx", changed(exported, outside)))


def test_weights_of_a_sparse_attribute_in_other_files_are_refused(exported, tmp_path):
    def outside(model) -> None:
        attribute = onnx.AttributeProto(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR)
        attribute.sparse_tensor.values.name = "hidden"
        attribute.sparse_tensor.values.data_location = onnx.TensorProto.EXTERNAL
        attribute.sparse_tensor.values.external_data.add(key="location", value="../../secret")
        node = onnx.helper.make_node("Constant", [], ["y"])
        node.attribute.append(attribute)
        model.graph.node.append(node)

    with pytest.raises(DataError, match=r"keeps weights in other files \(hidden\)"):
        OnnxFile.read(written(tmp_path / "model.onnx", changed(exported, outside)))


CONTRADICTIONS = {
    "numbers": (lambda about: about.update(numbers="x"), "numbers are 'x'"),
    "one class name": (lambda about: about["schema"].update(class_names=["one"]), "prediction"),
    "class names a number": (lambda about: about["schema"].update(class_names=3), "damaged"),
    "an output renamed": (lambda about: about.update(outputs=["a", "b", "c", "d"]), "outputs"),
    "another kind": (lambda about: about["schema"].update(encoding={"kind": "features", "width": 3}), "inputs"),
    "another size": (lambda about: about["schema"]["encoding"].update(height=21), "inputs"),
    "graphs": (lambda about: about["schema"].update(encoding={"kind": "graphs"}), "contradicts itself"),
    "gates": (lambda about: about.update(gates="moon"), "gates is 'moon', neither sample nor batch"),
    "gates a list": (lambda about: about.update(gates=["sample"]), "gates is"),
    "no gates": (lambda about: about.pop("gates"), "does not say its gates"),
    "no inputs": (lambda about: about.update(inputs=[{}]), "does not say its name"),
    "format": (lambda about: about.update(format=True), "in format True"),
}


@pytest.mark.parametrize(("change", "words"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_file_that_contradicts_itself_is_refused(exported, tmp_path, change, words):
    def told(model) -> None:
        (entry,) = (entry for entry in model.metadata_props if entry.key == ABOUT)
        about = json.loads(entry.value)
        change(about)
        entry.value = json.dumps(about)

    with pytest.raises(DataError, match=words):
        OnnxPredictor(written(tmp_path / "model.onnx", changed(exported, told)))


def test_an_output_of_another_name_in_the_graph_is_refused(exported, tmp_path):
    def renamed(model) -> None:
        model.graph.output[1].name = "weights"

    with pytest.raises(DataError, match="its outputs are"):
        OnnxFile.read(written(tmp_path / "model.onnx", changed(exported, renamed)))


def test_inputs_that_the_graph_cannot_take_are_refused_in_words(exported):
    with pytest.raises(DataError, match="onnxruntime could not run this model"):
        OnnxFile.read(exported.path).session()({"images": np.zeros((2, 3, 3, 3), np.uint8)})


def test_an_export_that_differs_is_refused_and_leaves_no_file(images, tmp_path, monkeypatch):
    from gated_domains.export import exporting

    class Off(exporting.Session):
        def __call__(self, inputs):
            return {name: value + 2e-5 for name, value in super().__call__(inputs).items()}

    monkeypatch.setattr(exporting, "Session", Off)
    with pytest.raises(DataError, match=r"differs by 2\.\de-05 at batch \d+.*nothing was written"):
        export_model(images.path, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_its_steps(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = made_runs.call("export", images.path)
    assert done.code == 0, done
    assert "traced: images -> prediction, beta, novelty, coverage" in done.out
    assert re.search(r"checked: largest difference \de-0\d at batch 1, 7, 64", done.out)
    assert "wrote model.onnx" in done.out
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.onnx.md"}
    assert done.err == ""
