"""Runs and saved estimators on a new site: what is kept beside them, when it is made anew, estimated accuracy."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gated_domains.applying import shifting
from gated_domains.applying.inside import open_gated
from gated_domains.applying.shift_accuracy import CHOSEN_THERE, KEPT, foresight_of
from gated_domains.applying.shift_reference import SHIFT, reference_of
from gated_domains.applying.shifting import read_site, shift_of
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.estimators import GDUClassifier, GDURegressor, load_estimator
from gated_domains.experiments.model import Model, digest_of_weights
from gated_domains.reports.shift_words import sentences
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import DataSettings
from gated_domains.runs.site_shift import SiteShift
from made_runs import CPU, Watcher, recipe, runner, table

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run

READING = Reading(target="sick", domain="site")


def trained(folder: Path, method: str = "gdu", hold_out: str | None = None, **others: object) -> RunFolder:
    path = table(folder / "clinic.csv")
    settings = others.pop("settings", {"num_bases": 3})
    chosen = recipe(method, hold_out, settings=settings, data=DataSettings.of(path, READING), **others)
    return runner(load_data(path, READING), folder / "runs").run(chosen)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A gated run of three sources; nobody has asked it anything yet."""
    return trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def run(made: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of it, with its data, in a place of its own."""
    shutil.copytree(made.path.parent.parent, tmp_path / "trained")
    return RunFolder(tmp_path / "trained" / "runs" / made.name)


@pytest.fixture(scope="module")
def measured(made: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The same with runs beside it that leave each source out, and nothing kept of either."""
    folder = tmp_path_factory.mktemp("measured") / "trained"
    shutil.copytree(made.path.parent.parent, folder)
    run = RunFolder(folder / "runs" / made.name)
    foresight_of(open_gated(run.path), calibrate=True, hardware=CPU)
    (run.path / KEPT).unlink()
    return run


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return table(tmp_path / "new.csv", 40, target=False, domain=False, start=150)


def asked(run: RunFolder, new: Path, **others: object) -> SiteShift:
    model = open_gated(run.path)
    return shift_of(model, read_site(str(new), model.schema), hardware=CPU, **others)


# -- what is kept beside a run -----------------------------------------------------------------------------------------


def test_rows_of_training_are_kept_at_the_first_asking_and_need_no_data_afterwards(run, new):
    first = asked(run, new)
    kept = (run.path / SHIFT).read_bytes()
    (run.path.parent.parent / "clinic.csv").unlink()
    assert asked(run, new) == first
    assert (run.path / SHIFT).read_bytes() == kept
    assert {source.name for source in first.sources} == {"north", "south", "west"}
    assert first.compared == "validation rows of its sources"


def test_they_are_validation_rows_and_none_that_were_trained_on(run):
    model = open_gated(run.path)
    reference, validation = reference_of(model).reference, model.trained_on().validation
    assert len(reference) == len(validation)
    looked = model.look(validation)
    np.testing.assert_allclose(reference.view, looked.view.numpy(), atol=1e-6)
    np.testing.assert_array_equal(reference.domains, validation.domains)
    np.testing.assert_allclose(reference.residual, looked.predicted.residual, atol=1e-6)
    np.testing.assert_array_equal(reference.correct, looked.predicted.output.argmax(1) == validation.targets)
    assert not reference.trained_on


def test_other_weights_have_them_made_anew(run, new):
    before = asked(run, new)
    model = Model.load(run.path)
    model.method.units.bases.data += 0.1
    model.save(run.path)
    after = asked(run, new)
    assert after.distance != before.distance or after.novelty != before.novelty
    assert after == asked(run, new)


def test_a_damaged_file_is_refused_with_the_cure(run, new):
    asked(run, new)
    (run.path / SHIFT).write_bytes((run.path / SHIFT).read_bytes()[:200])
    with pytest.raises(DataError, match=r"shift\.npz.* delete it to have it made again"):
        asked(run, new)


def test_data_that_are_gone_or_moved_are_asked_for(run, new, tmp_path):
    moved = tmp_path / "moved.csv"
    shutil.move(run.path.parent.parent / "clinic.csv", moved)
    with pytest.raises(DataError, match=r"has kept no rows of training yet, .* \(--data names where they lie now\)"):
        asked(run, new)
    assert not (run.path / SHIFT).exists()
    assert asked(run, new, training=moved).rows == 40
    other = table(tmp_path / "other.csv", 90)
    (run.path / SHIFT).unlink()
    with pytest.raises(DataError, match="was trained on other rows than"):
        asked(run, new, training=other)


def test_a_folder_of_somebody_else_is_no_hindrance(run, new, monkeypatch):
    def denied(self, path, *, of):
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr("gated_domains.insight.shift.reference.Reference.write", denied)
    found = asked(run, new)
    assert any("not kept for the next time" in note for note in found.notes)


def test_a_model_selected_by_a_domain_that_it_was_not_trained_on_keeps_rows_of_training(tmp_path, new):
    run = trained(tmp_path, selection="out_of_domain", validation_domain="west")
    found = asked(run, new)
    assert found.compared == "rows it was trained on"
    assert {source.name for source in found.sources} == {"north", "south"}
    assert any("novelty is a little too low" in note for note in found.notes)


# -- rows that belong together -----------------------------------------------------------------------------------------


def patients(path: Path, rows: int, *, start: int = 0, known: bool = True) -> Path:
    """The table with five rows of every patient, nearly the same."""
    lines = table(path, rows, start=start).read_text().split()
    head, *body = lines
    made = [f"{line},p{place}" if known else line for place, line in enumerate(body) for _ in range(5)]
    path.write_text("\n".join([f"{head},patient" if known else head, *made]) + "\n")
    return path


def test_patients_stay_whole_beside_a_run_and_in_the_new_file(tmp_path):
    path, reading = (
        patients(tmp_path / "clinic.csv", 90),
        Reading(target="sick", domain="site", keep_together="patient"),
    )
    chosen = recipe("gdu", None, settings={"num_bases": 3}, data=DataSettings.of(path, reading))
    run = runner(load_data(path, reading), tmp_path / "runs").run(chosen)
    model = open_gated(run.path)
    reference = reference_of(model).reference
    assert len(np.unique(reference.groups)) == len(reference) / 5
    np.testing.assert_array_equal(reference_of(model).reference.groups, reference.groups)

    new = patients(tmp_path / "new.csv", 30, start=90)
    found = asked(run, new)
    assert found.kept_together
    assert "permutations of whole groups of rows" in " ".join(sentences(found))
    assert asked(run, new, rows=32).rows == 30
    assert asked(run, new, keep_together="patient") == found

    unknown = patients(tmp_path / "unknown.csv", 30, start=90, known=False)
    told = asked(run, unknown)
    assert told.kept_together, "rows of the sources still are"
    assert any("there is no column 'patient', whose groups training kept together" in note for note in told.notes)


def test_a_column_of_groups_may_be_named_for_the_new_file_alone(run, tmp_path):
    model = open_gated(run.path)
    new = patients(tmp_path / "new.csv", 20, start=150)
    data = read_site(str(new), model.schema, reading=Reading(keep_together="patient"))
    found, alone = shift_of(model, data, keep_together="patient"), shift_of(model, data)
    assert found.p_value > alone.p_value
    assert any("trained without --keep-together" in note for note in found.notes)
    with pytest.raises(DataError, match=r"there is no column 'person' \(--keep-together\)"):
        read_site(str(new), model.schema, reading=Reading(keep_together="person"))
    with pytest.raises(DataError, match="no metadata column 'person'"):
        shift_of(model, data, keep_together="person")


# -- new data ----------------------------------------------------------------------------------------------------------


def test_targets_are_used_where_they_can_be_read(run, new, tmp_path):
    model = open_gated(run.path)
    labelled = table(tmp_path / "labelled.csv", 40, start=150)
    data = read_site(str(labelled), model.schema)
    found = shift_of(model, data)
    assert found.true_accuracy == (model.look(data).predicted.output.argmax(1) == data.targets).mean()
    assert asked(run, new).true_accuracy is None
    assert any("rows of 3 domains (north, south, west) are taken for one site" in note for note in found.notes)
    assert any("trained on a domain of this name" in note for note in found.notes)


def test_targets_that_make_no_sense_are_a_note_and_named_ones_an_error(run, tmp_path):
    odd = table(tmp_path / "odd.csv", 40, start=150)
    odd.write_text(odd.read_text().replace(",yes\n", ",perhaps\n"))
    model = open_gated(run.path)
    data = read_site(str(odd), model.schema)
    assert data.targets is None
    assert any("the truth is not known" in note and "perhaps" in note for note in data.notes)
    with pytest.raises(DataError, match="perhaps"):
        read_site(str(odd), model.schema, reading=Reading(target="sick"))


def test_of_many_rows_some_are_looked_at_by_chance_and_that_is_said(run, new):
    found = asked(run, new, rows=25)
    assert (found.rows, found.all_rows) == (25, 40)
    assert "25 of 40 rows were looked at, drawn at random" in found.notes
    assert found == asked(run, new, rows=25)
    assert found != asked(run, new, rows=25, seed=1)


def test_other_columns_one_row_and_no_rows_are_refused(run, tmp_path):
    model = open_gated(run.path)
    other = tmp_path / "other.csv"
    other.write_text("age,weight\n1,2\n3,4\n")
    with pytest.raises(DataError, match="dose"):
        read_site(str(other), model.schema)
    alone = table(tmp_path / "alone.csv", 1, target=False)
    with pytest.raises(DataError, match=r"alone\.csv: a site is judged by its rows together"):
        shift_of(model, read_site(str(alone), model.schema))
    with pytest.raises(DataError, match="ask for at least 2"):
        shift_of(model, read_site(str(table(tmp_path / "new.csv", 9)), model.schema), rows=1)


def test_models_without_gates_and_graphs_are_refused(tmp_path):
    run = trained(tmp_path, "erm", settings={})
    with pytest.raises(DataError, match="has no gates to look at"):
        open_gated(run.path)
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(DataError, match="name the run's folder or the saved estimator"):
        open_gated(tmp_path / "model.onnx")


# -- the accuracy of runs ----------------------------------------------------------------------------------------------


def test_accuracy_is_not_foreseen_where_nobody_measured_it_and_the_command_is_given(run, new):
    found = asked(run, new)
    assert found.accuracy is None
    assert "add --calibrate, which trains it once without each of its 3 sources" in found.no_accuracy
    assert found.accuracy_of_sources is not None


def test_calibrating_trains_without_each_source_once_and_keeps_what_it_found(run, new):
    callback = Watcher()

    def make(runner, recipes):
        runner.callback = callback
        for one in recipes:
            runner.run(one)

    found = asked(run, new, calibrate=True, make=make)
    assert [one.hold_out for one in callback.began] == ["north", "south", "west"]
    assert [one.name for one in found.accuracy.left_out] == ["north", "south", "west"]
    kept = json.loads((run.path / KEPT).read_text())
    for name, place in kept["runs"].items():
        result = RunFolder(run.path.parent / place).result()
        true = next(one.true for one in found.accuracy.left_out if one.name == name)
        assert result.test[name] == pytest.approx(true)

    def never(runner, recipes):
        raise AssertionError("it was measured before")

    (run.path.parent.parent / "clinic.csv").unlink()
    assert asked(run, new, calibrate=True, make=never) == found
    (run.path / KEPT).unlink()
    assert asked(run, new).accuracy == found.accuracy, "the runs are there, and are found without the data"


def test_a_held_out_domain_stays_out_of_all_of_them(tmp_path, new):
    run = trained(tmp_path, hold_out="north")
    found = asked(run, new, calibrate=True)
    names = [one.name for one in found.accuracy.left_out]
    assert names == ["south", "west"]
    kept = json.loads((run.path / KEPT).read_text())
    held_out = [RunFolder(run.path.parent / place).result().to_json()["held_out"] for place in kept["runs"].values()]
    assert [sorted(one) for one in held_out] == [["north", "south"], ["north", "west"]]


def test_runs_of_leave_one_source_out_are_used_unasked_and_what_chose_their_epoch_is_said(tmp_path, new):
    run = trained(tmp_path, selection="leave_one_source_out")
    found = asked(run, new)
    assert [one.name for one in found.accuracy.left_out] == ["north", "south", "west"]
    assert CHOSEN_THERE in found.notes
    assert CHOSEN_THERE in asked(run, new).notes, "also where it was kept"


def test_runs_that_are_there_are_used_unasked_and_anew_for_other_weights(measured):
    first = foresight_of(open_gated(measured.path))
    kept = json.loads((measured.path / KEPT).read_text())
    assert first.calibration is not None
    (measured.path / KEPT).write_text(json.dumps({**kept, "of": "others"}))
    assert foresight_of(open_gated(measured.path)) == first
    assert json.loads((measured.path / KEPT).read_text()) == kept


@pytest.mark.parametrize("text", ["{", "[]", "{}", "3", '{"format": 9}', '{"format": 1, "of": OWN, "accuracy": {}}'])
def test_a_damaged_measurement_is_refused_with_the_cure(run, new, text):
    (run.path / KEPT).write_text(text.replace("OWN", json.dumps(digest_of_weights(run.path))))
    with pytest.raises(DataError, match=r"shift\.json.* delete it to have it made again"):
        asked(run, new)


def test_what_cannot_be_left_out_is_said(tmp_path, new):
    path = table(tmp_path / "clinic.csv", domain=False)
    reading = Reading(target="sick")
    chosen = recipe("gdu", None, settings={"num_bases": 3}, data=DataSettings.of(path, reading))
    run = runner(load_data(path, reading), tmp_path / "runs").run(chosen)
    found = asked(run, new)
    assert "its sources are not known" in found.no_accuracy
    assert found.usual is None
    with pytest.raises(DataError, match=r"its sources are not known, .* leave --calibrate out"):
        asked(run, new, calibrate=True)


def test_gates_by_batch_are_not_estimated(tmp_path, new):
    run = trained(tmp_path, settings={"num_bases": 3, "test_gates": "batch"})
    assert "its gates look at batches" in asked(run, new).no_accuracy


# -- estimators --------------------------------------------------------------------------------------------------------


def numbers(rows: int = 120, shift: float = 0.0, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    site = np.arange(rows) % 3
    sick = rng.integers(2, size=rows)
    return pd.DataFrame(
        {
            "age": rng.normal(size=rows) + 2 * site + sick + shift,
            "dose": rng.normal(size=rows) - site + shift,
            "site": np.array(["north", "south", "west"])[site],
            "sick": np.array(["no", "yes"])[sick],
        }
    )


@pytest.fixture(scope="module")
def fit() -> GDUClassifier:
    data = numbers()
    chosen = GDUClassifier(random_state=0, num_bases=3, tol=1e-2)
    return chosen.fit(data[["age", "dose"]], data["sick"], sample_domain=data["site"])


def saved(fit: GDUClassifier, tmp_path: Path) -> Path:
    fit.save(tmp_path / "model")
    return tmp_path / "model"


def written(data: pd.DataFrame, path: Path) -> Path:
    data.to_csv(path, index=False)
    return path


def of_estimator(folder: Path, new: Path, **others: object) -> SiteShift:
    model = open_gated(folder)
    reading = Reading(target="sick", domain="site")
    return shift_of(model, read_site(str(new), model.schema, reading=reading), reading=reading, **others)


def test_a_saved_estimator_is_held_against_the_rows_it_kept(fit, tmp_path):
    folder, new = saved(fit, tmp_path), written(numbers(60, shift=5.0, seed=1), tmp_path / "new.csv")
    found = of_estimator(folder, new)
    score = fit.shift_score(numbers(60, shift=5.0, seed=1)[["age", "dose"]])
    assert found.p_value == score.p_value == 0.001
    assert found.distance == pytest.approx(score.score, abs=1e-5)
    assert found.novelty.mean == pytest.approx(score.novelty, rel=1e-4)
    assert found.novelty.unlike == score.unlike
    assert found.compared == "rows it was trained on"
    assert {source.name for source in found.sources} == {"north", "south", "west"}
    assert found.true_accuracy is not None
    assert "calibrate_accuracy(X, y, sample_domain=...)" in found.no_accuracy


def test_an_estimator_is_calibrated_and_saved_as_it_was(fit, tmp_path):
    folder, new = saved(fit, tmp_path), written(numbers(60, seed=1), tmp_path / "new.csv")
    with pytest.raises(DataError, match="does not hold the rows it was fitted on"):
        of_estimator(folder, new, calibrate=True)
    training = written(numbers(), tmp_path / "training.csv")
    found = of_estimator(folder, new, calibrate=True, training=training)
    back = load_estimator(folder)
    assert back.get_params() == fit.get_params()
    data = numbers()
    expected = GDUClassifier(**fit.get_params()).fit(data[["age", "dose"]], data["sick"])
    expected.calibrate_accuracy(data[["age", "dose"]], data["sick"], sample_domain=data["site"])
    assert back.accuracy_.measured == expected.accuracy_.measured
    assert of_estimator(folder, new).accuracy == found.accuracy


def test_an_estimator_that_kept_no_rows_asks_for_the_file(tmp_path):
    data = numbers()
    chosen = GDUClassifier(random_state=0, num_bases=3, tol=1e-2, reference_rows=0)
    folder = saved(chosen.fit(data[["age", "dose"]], data["sick"], sample_domain=data["site"]), tmp_path)
    new = written(numbers(60, seed=1), tmp_path / "new.csv")
    with pytest.raises(DataError, match=r"holds no rows of training .*reference_rows=0; name the file"):
        of_estimator(folder, new)
    assert of_estimator(folder, new, training=written(data, tmp_path / "training.csv")).compared_rows == 120


def test_numbers_have_no_accuracy_to_foresee(tmp_path):
    data = numbers()
    fit = GDURegressor(random_state=0, num_bases=3, tol=1e-2).fit(data[["age"]], data["dose"])
    folder = saved(fit, tmp_path)
    new = written(numbers(60, seed=1)[["age"]], tmp_path / "new.csv")
    model = open_gated(folder)
    found = shift_of(model, read_site(str(new), model.schema))
    assert found.accuracy is None
    assert found.no_accuracy == ""
    with pytest.raises(DataError, match="predicts no classes"):
        foresight_of(model, calibrate=True)


def test_large_bodies_are_asked_about_fewer_rows(run, monkeypatch):
    model = open_gated(run.path)
    assert shifting._most(model) == shifting.ROWS
    monkeypatch.setattr(shifting, "has_large_body", lambda method: True)
    assert shifting._most(model) == shifting.ROWS_OF_LARGE
