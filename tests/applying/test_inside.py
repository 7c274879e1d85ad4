"""A trained model with gates opens to what its gates and experts see, and to the rows it was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from gated_domains.applying.inside import GatedEstimator, GatedRun, open_gated
from gated_domains.data.batches import place
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.sampling import InOrder
from gated_domains.estimators import ERMClassifier, GDUClassifier
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import DataSettings
from made_estimators import fitted, made_table
from made_runs import images, recipe, runner, table

NAMES = ("age", "dose", "weight", "pulse")
READING = Reading(target="sick", domain="site")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


@pytest.fixture(scope="module")
def clinic(folder: Path) -> Path:
    return table(folder / "clinic.csv")


def trained(path: Path, method: str, folder: Path, reading: Reading = READING, **others) -> RunFolder:
    chosen = recipe(method, others.pop("hold_out", "north"), data=DataSettings.of(path, reading), **others)
    return runner(load_data(path, reading), folder / "runs").run(chosen)


@pytest.fixture(scope="module")
def run(clinic: Path, folder: Path) -> RunFolder:
    return trained(clinic, "gdu", folder, settings={"num_bases": 3})


@pytest.fixture(scope="module")
def drawn(folder: Path) -> Path:
    """Images in a file of their own."""
    made = images(each=12)
    np.savez(
        folder / "images.npz", images=made.inputs.read(np.arange(len(made))), labels=made.targets, domains=made.domains
    )
    return folder / "images.npz"


# -- a run -------------------------------------------------------------------------------------------------------------


def test_a_run_knows_its_units_its_sources_and_what_it_is(run):
    model = open_gated(run.path)
    assert isinstance(model, GatedRun)
    assert (model.label, model.sources, model.units.num_bases) == ("GDU", ("south", "west"), 3)
    assert open_gated(str(run.path)[:-2]).name == str(run.path)


def test_the_rows_of_a_run_are_those_of_its_split(run, clinic):
    known = open_gated(run.path).trained_on()
    assert known.held_out.domain_names[known.held_out.domains[0]] == "north"
    assert len(known.held_out) == 50
    assert len(known.train) + len(known.validation) == 100
    assert known.familiar is known.validation
    for part in (known.train, known.validation):
        assert set(np.array(part.domain_names)[part.domains]) == {"south", "west"}
    data = load_data(clinic, READING)
    rows = np.flatnonzero(data.domains == data.domain_names.index("north"))
    assert known.held_out.targets.tolist() == data.targets[rows].tolist()


def test_rows_of_a_domain_that_only_selected_are_not_familiar(clinic, folder):
    others = {"selection": "out_of_domain", "validation_domain": "south"}
    found = GatedRun(trained(clinic, "gdu", folder, settings={"num_bases": 3}, **others)).trained_on()
    assert found.unseen is None
    assert found.familiar is found.train
    assert found.validation is not None


def test_what_a_model_says_of_held_out_rows_is_what_its_result_says(run):
    model = open_gated(run.path)
    part = model.trained_on().held_out
    right = (model.look(part).predicted.output.argmax(1) == part.targets).mean()
    assert right == pytest.approx(run.result().to_json()["test"]["overall"])


@pytest.mark.parametrize("norms", [True, False], ids=["gated norms", "plain norms"])
def test_views_and_features_are_what_the_method_itself_sees(drawn, folder, norms):
    one = trained(drawn, "gdu", folder, Reading(), hold_out="2", settings={"num_bases": 2, "gated_norm": norms})
    model = open_gated(one.path)
    assert model.method.norms is norms
    part = model.trained_on().train
    looked = model.look(part)
    samples = place(part, model.schema.encoding)
    inputs = torch.cat(list(samples.input_batches(InOrder(np.arange(len(part)), 7))))
    model.method.eval()
    with torch.no_grad():
        torch.testing.assert_close(looked.view, model.method.backbone.look(inputs), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(looked.features, model.method.features(inputs), rtol=1e-4, atol=1e-4)
        out = model.units.evaluate(looked.features, looked.view)
        said = model.method.task.read(out).numpy()
    np.testing.assert_allclose(looked.predicted.output, said, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(looked.predicted.beta, out.beta.numpy(), rtol=1e-4, atol=1e-5)


def test_gates_are_of_each_sample_whatever_they_are_of_in_service(clinic, folder):
    one = trained(clinic, "gdu", folder, settings={"num_bases": 3, "test_gates": "batch"})
    model = open_gated(one.path)
    looked = model.look(model.trained_on().train)
    assert len(np.unique(looked.predicted.beta.round(5), axis=0)) > 10


def test_data_that_moved_are_named_and_changed_ones_refused(run, clinic, tmp_path):
    moved = tmp_path / "elsewhere.csv"
    moved.write_text(clinic.read_text())
    assert len(open_gated(run.path).trained_on(moved).held_out) == 50
    lines = clinic.read_text().splitlines()
    moved.write_text("\n".join(lines[:-10]) + "\n")
    with pytest.raises(DataError, match=r"trained on other rows than elsewhere\.csv has now.*--data"):
        open_gated(run.path).trained_on(moved)
    with pytest.raises(DataError, match="no_such"):
        open_gated(run.path).trained_on(tmp_path / "no_such.csv")


def test_without_domains_nothing_is_held_out(clinic, folder):
    one = trained(clinic, "gdu", folder, Reading(target="sick", drop=("site",)), hold_out=None)
    known = open_gated(one.path).trained_on()
    assert known.held_out is None
    assert known.validation is not None


# -- an estimator ------------------------------------------------------------------------------------------------------


@pytest.fixture
def rows() -> pd.DataFrame:
    made = made_table()
    return pd.DataFrame(made.x, columns=NAMES).assign(site=made.sites, kind=[f"kind {c}" for c in made.classes])


@pytest.fixture
def saved(rows, tmp_path) -> Path:
    GDUClassifier(num_bases=3, random_state=0, max_iter=50, tol=1e-2).fit(
        rows[list(NAMES)], rows["kind"], sample_domain=rows["site"]
    ).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def file(rows, tmp_path) -> Path:
    """With a site that the estimator has not seen, and columns in another order."""
    other = rows.assign(site=np.where(np.arange(len(rows)) < 60, rows["site"], "zug"))
    other[["site", "pulse", "kind", "weight", "dose", "age"]].to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "new.csv"


def test_an_estimator_sees_standardised_rows_in_gates_and_experts_alike(saved, file, rows):
    model = open_gated(saved)
    assert isinstance(model, GatedEstimator)
    assert (model.label, model.sources) == ("GDUClassifier", ("basel", "bern", "chur"))
    known = model.trained_on(file, reading=Reading(target="kind", domain="site"))
    looked = model.look(known.train)
    assert looked.view is looked.features
    expected = model.estimator.standard(rows[list(NAMES)].iloc[:60])
    torch.testing.assert_close(looked.view, expected, rtol=1e-4, atol=1e-4)
    said = model.estimator.predict_proba(rows[list(NAMES)].iloc[:60])
    np.testing.assert_allclose(looked.predicted.output, said, rtol=1e-3, atol=1e-4)
    assert list(model.table(known.train).columns) == list(NAMES)


def test_domains_that_an_estimator_was_not_fitted_on_are_held_out(saved, file):
    known = open_gated(saved).trained_on(file, reading=Reading(target="kind", domain="site"))
    assert (len(known.train), len(known.held_out), known.validation) == (60, 30, None)
    assert known.familiar is known.train
    alone = open_gated(saved).trained_on(file, reading=Reading(target="kind"))
    assert (len(alone.train), alone.held_out) == (90, None)


def test_a_file_of_none_of_its_domains_is_refused(saved, rows, tmp_path):
    rows.assign(site="zug").to_csv(tmp_path / "zug.csv", index=False)
    with pytest.raises(DataError, match=r"none of the domains that .* basel, bern, chur"):
        open_gated(saved).trained_on(tmp_path / "zug.csv", reading=Reading(target="kind", domain="site"))


def test_an_estimator_asks_for_its_file(saved):
    with pytest.raises(DataError, match="--data FILE --target COLUMN"):
        open_gated(saved).trained_on()


# -- what is no gated model --------------------------------------------------------------------------------------------


def test_models_without_gates_are_refused(clinic, folder, tmp_path):
    plain = trained(clinic, "erm", folder)
    with pytest.raises(DataError, match="has no gates to look at: ERM"):
        open_gated(plain.path)
    fitted(ERMClassifier).save(tmp_path / "model")
    with pytest.raises(DataError, match="has no gates to look at: ERMClassifier"):
        open_gated(tmp_path / "model")


def test_a_graph_is_refused_and_the_way_back_named(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"graph")
    with pytest.raises(DataError, match="name the run's folder or the saved estimator"):
        open_gated(tmp_path / "model.onnx")
