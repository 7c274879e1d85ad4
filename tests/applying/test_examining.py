"""The doctor's visit: what is looked at of a run, of an estimator, and of one whose data are not at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gated_domains.applying.examining import examine_model
from gated_domains.applying.inside import open_gated
from gated_domains.applying.refitting import _left_out
from gated_domains.data.errors import DataError
from gated_domains.data.loading import load_data
from gated_domains.data.new_data import NewData
from gated_domains.data.readers.reading import Reading
from gated_domains.estimators import ERMClassifier, GDUClassifier, GDURegressor
from gated_domains.experiments.recipe import DataSettings
from gated_domains.insight.doctor import examine
from made_estimators import Table, fitted, made_table
from made_runs import recipe, runner, table

READING = Reading(target="sick", domain="site")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


@pytest.fixture(scope="module")
def run(folder: Path):
    clinic = table(folder / "clinic.csv", 300)
    chosen = recipe("gdu", "north", settings={"num_bases": 3}, data=DataSettings.of(clinic, READING))
    return runner(load_data(clinic, READING), folder / "runs").run(chosen)


@pytest.fixture(scope="module")
def rows() -> Table:
    return made_table(120, classes=2)


@pytest.fixture(scope="module")
def written(rows: Table, folder: Path) -> Path:
    lines = ["a,b,c,d,site,kind,size"]
    for x, site, kind, size in zip(rows.x, rows.sites, rows.classes, rows.numbers, strict=True):
        lines.append(",".join([*(f"{value:.6f}" for value in x), site, str(kind), f"{size:.6f}"]))
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    return folder / "rows.csv"


def of_vectors(rows: Table, folder: Path, name: str) -> Path:
    """The same rows without names, as a saved estimator that was fitted on arrays reads them."""
    np.savez(folder / name, X=rows.x, y=rows.classes, domains=rows.sites)
    return folder / name


# -- a run -------------------------------------------------------------------------------------------------------------


def test_a_run_is_looked_at_on_its_validation_rows_and_beside_a_linear_head(run):
    model = open_gated(run.path)
    found = examine_model(model)
    known = model.trained_on()
    looked = model.look(known.validation)
    same = examine(model.units, looked.view, features=looked.features)
    assert [f for f in found.findings if f.name not in ("cost", "linear head")] == [
        f for f in same.findings if f.name != "cost"
    ]
    beside = found["linear head"].value
    assert beside["held out"]["gated"] == pytest.approx(run.result()["test"]["overall"])
    assert beside["validation"]["rows"] == len(known.validation)
    assert beside["trained_rows"] == len(known.train)
    assert found.notes == ()


def test_the_control_can_be_left_out(run):
    found = examine_model(open_gated(run.path), control=False)
    assert "linear head" not in [finding.name for finding in found.findings]
    assert found.notes == ("not looked at: a linear head beside it; it was switched off",)


def test_a_run_whose_data_are_gone_tells_what_its_weights_tell(run, folder):
    clinic = folder / "clinic.csv"
    away = clinic.rename(folder / "away.csv")
    try:
        found = examine_model(open_gated(run.path))
        assert found.verdict == "ok as far as weights alone tell"
        assert found["duplicate bases"].level == "ok"
        assert "clinic.csv" in found.notes[-1]
        assert examine_model(open_gated(run.path), data=away)["linear head"].level == "ok"
        with pytest.raises(DataError, match="no_such"):  # what a person names must be there
            examine_model(open_gated(run.path), data=folder / "no_such.csv")
    finally:
        away.rename(clinic)


def test_a_run_says_itself_how_its_data_are_read(run):
    with pytest.raises(DataError, match="its recipe says how its data are read"):
        examine_model(open_gated(run.path), reading=Reading(target="age"))


# -- an estimator ------------------------------------------------------------------------------------------------------


def test_an_estimator_is_looked_at_on_the_rows_it_keeps(rows, tmp_path):
    fitted(GDUClassifier, rows).save(tmp_path / "model")
    found = examine_model(open_gated(tmp_path / "model"))
    assert found["dependence on the input"].level == "ok"
    assert not found.of_weights_alone
    assert "120 rows of training" in found.notes[0]
    assert "--data FILE" in found.notes[1]


def test_one_that_keeps_no_rows_tells_what_its_weights_tell(rows, tmp_path):
    fitted(GDUClassifier, rows, reference_rows=0).save(tmp_path / "model")
    found = examine_model(open_gated(tmp_path / "model"))
    assert found.of_weights_alone
    assert "--data FILE" in found.notes[-1]


def test_with_its_data_both_are_fitted_without_each_domain_and_asked_about_it(rows, tmp_path):
    model = fitted(GDUClassifier, rows)
    model.save(tmp_path / "model")
    found = examine_model(open_gated(tmp_path / "model"), data=of_vectors(rows, tmp_path, "rows.npz"))
    beside = found["linear head"].value["left-out domains"]
    right = []
    for kind in (fitted(GDUClassifier, rows), fitted(ERMClassifier, rows)):
        hits = []
        for site in np.unique(rows.sites):
            out = rows.sites == site
            kind.fit(rows.x[~out], rows.classes[~out], sample_domain=rows.sites[~out])
            hits += (kind.predict(rows.x[out]) == rows.classes[out]).tolist()
        right.append(np.mean(hits))
    assert beside["gated"] == pytest.approx(right[0])
    assert beside["linear"] == pytest.approx(right[1])
    assert beside["low"] <= beside["difference"] <= beside["high"]


def test_without_domains_there_are_five_folds(rows, tmp_path):
    fitted(GDUClassifier, rows).save(tmp_path / "model")
    np.savez(tmp_path / "rows.npz", X=rows.x, y=rows.classes)
    found = examine_model(open_gated(tmp_path / "model"), data=tmp_path / "rows.npz")["linear head"]
    assert found.value["left-out rows"]["rows"] == 120
    assert "fitted anew 5 times" in found.says


def test_of_numbers_the_error_is_compared(rows, written, tmp_path):
    import pandas as pd

    frame = pd.read_csv(written)
    GDURegressor(num_bases=3, random_state=0, max_iter=50, tol=1e-2).fit(
        frame[list("abcd")], frame["size"], sample_domain=frame["site"]
    ).save(tmp_path / "model")
    found = examine_model(open_gated(tmp_path / "model"), data=written, reading=Reading(target="size", domain="site"))
    assert found["linear head"].value["metric"] == "rmse"
    assert found["linear head"].value["left-out domains"]["rows"] == 120


def data_of(domains: list[int] | None, rows: int = 100) -> NewData:
    from gated_domains.data.inputs import Features

    names = () if domains is None else tuple(map(str, range(max(domains) + 1)))
    return NewData(
        name="made",
        inputs=Features(np.zeros((rows, 1), np.float32)),
        class_names=None,
        domains=None if domains is None else np.array(domains),
        domain_names=names,
    )


def test_domains_stay_whole_and_are_never_more_than_ten_parts():
    few = _left_out(data_of([0] * 50 + [1] * 30 + [2] * 20))
    assert [len(set(few[part])) for part in (slice(0, 50), slice(50, 80), slice(80, 100))] == [1, 1, 1]
    assert len(set(few)) == 3
    domains = np.arange(100) % 25
    many = _left_out(data_of(domains.tolist()))
    assert len(set(many)) == 10
    assert all(len(set(many[domains == number])) == 1 for number in range(25))
    assert np.bincount(_left_out(data_of(None))).tolist() == [20] * 5
    assert np.bincount(_left_out(data_of([0] * 100))).tolist() == [20] * 5


def test_rows_beyond_the_most_are_not_read(run, monkeypatch):
    from gated_domains.applying import examining

    monkeypatch.setattr(examining, "MOST_ROWS", 50)
    found = examine_model(open_gated(run.path))["linear head"].value
    assert (found["trained_rows"], found["held out"]["rows"]) == (50, 50)
