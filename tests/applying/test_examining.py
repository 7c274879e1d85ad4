"""The doctor's visit: what is looked at of a run, of an estimator, and of one whose data are not at hand."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from gated_domains import GatedDomainUnits
from gated_domains.applying.examining import examine_model
from gated_domains.applying.inside import open_gated
from gated_domains.applying.refitting import _left_out
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.new_data import NewData
from gated_domains.estimators import ERMClassifier, GDUClassifier, GDURegressor
from gated_domains.insight.doctor import examine
from gated_domains.insight.doctor.frozen_gates import frozen_gates
from gated_domains.insight.doctor.paired import compare_paired
from gated_domains.runs.recipe import DataSettings
from made_estimators import Table, fitted, made_table
from made_runs import numbers, recipe, runner, table

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
    same = same.of("run")
    ours = {finding.name: finding for finding in found.findings}
    assert set(ours) - {finding.name for finding in same.findings} == {"domain or class", "frozen gates", "linear head"}
    assert all(ours[finding.name] == finding for finding in same.findings if finding.name != "cost")
    beside = found["linear head"].value
    assert beside["held out"]["gated"] == pytest.approx(run.result().to_json()["test"]["overall"])
    assert beside["validation"]["rows"] == len(known.validation)
    assert beside["trained_rows"] == len(known.train)
    assert found.notes == ()


def test_the_control_can_be_left_out(run):
    found = examine_model(open_gated(run.path), control=False)
    assert "linear head" not in [finding.name for finding in found.findings]
    assert "frozen gates" in [finding.name for finding in found.findings]  # nothing is trained for it
    assert found.notes == ("not looked at: a linear head; switched off by --no-control",)


def test_a_run_whose_data_are_gone_tells_what_its_weights_tell(run, folder):
    clinic = folder / "clinic.csv"
    away = clinic.rename(folder / "away.csv")
    try:
        found = examine_model(open_gated(run.path))
        assert found.verdict == "ok as far as weights alone tell"
        assert found["duplicate bases"].level == "ok"
        assert "clinic.csv" in found.notes[-1]
        assert examine_model(open_gated(run.path), data=away)["linear head"].value["trained_rows"] > 0
        with pytest.raises(DataError, match="no_such"):  # what a person names must be there
            examine_model(open_gated(run.path), data=folder / "no_such.csv")
    finally:
        away.rename(clinic)


def test_a_run_says_itself_how_its_data_are_read(run):
    with pytest.raises(DataError, match="its recipe says how its data are read"):
        examine_model(open_gated(run.path), reading=Reading(target="age"))


def test_the_interval_keeps_rows_of_a_patient_together(folder, monkeypatch):
    from gated_domains.applying import examining

    lines = (folder / "clinic.csv").read_text().splitlines()
    named = [f"{line},{(row % 3, row // 12)}".replace(", ", "-") for row, line in enumerate(lines[1:])]
    (folder / "patients.csv").write_text("\n".join([f"{lines[0]},patient", *named]) + "\n")
    reading = Reading(target="sick", domain="site", keep_together="patient")
    chosen = recipe("gdu", "north", data=DataSettings.of(folder / "patients.csv", reading))
    trained = runner(load_data(folder / "patients.csv", reading), folder / "runs").run(chosen)
    seen = {}

    def compare(part, *others, together=None):
        seen[part] = together
        return compare_paired(part, *others, together=together)

    monkeypatch.setattr(examining, "compare_paired", compare)
    model = open_gated(trained.path)
    examine_model(model, control=False)
    known = model.trained_on()
    assert seen["held out"].tolist() == known.held_out.metadata["patient"].tolist()
    assert set(seen) == {"validation", "held out"}


# -- frozen gates ------------------------------------------------------------------------------------------------------


def test_frozen_gates_are_the_mean_for_every_row_and_for_the_time_being():
    x = torch.randn(50, 4)
    head = GatedDomainUnits(4, 2, num_bases=3, coverage=True).fit_bases(x)
    with torch.no_grad():
        for parameter in head.experts.parameters():
            parameter.normal_()
    before, gate, familiar = head.evaluate(x), head.gate, head.familiarity(x)
    beta = before.beta.detach().numpy()
    with frozen_gates(head, beta):
        out, still = head.evaluate(x), head.familiarity(x)
    mean = [sum(row[j] for row in beta.tolist()) / 50 for j in range(3)]
    deviations, shared = head.experts(x), head.shared(x).squeeze(-2)
    for row in range(50):
        mixed = sum(mean[j] * deviations[row, j] for j in range(3))
        torch.testing.assert_close(out.prediction[row], shared[row] + before.coverage[row] * mixed)
    assert torch.equal(familiar, still)
    assert not torch.allclose(out.prediction, before.prediction, atol=0.1)
    assert head.gate is gate
    assert torch.equal(head(x), before.prediction)


def test_of_constant_gates_frozen_minus_plain_is_exactly_0(run):
    model = open_gated(run.path)
    assert model.method.norms  # gates of the body are frozen, too
    model.units.gate.set_kappa(1e-30)
    held_out = model.trained_on().held_out
    plain = model.predictor.predict(held_out)
    with frozen_gates(model.units, plain.beta):
        np.testing.assert_array_equal(model.predictor.predict(held_out).output, plain.output)
    finding = examine_model(model, control=False)["frozen gates"]
    for part in ("validation", "held out"):
        assert [finding.value[part][name] for name in ("difference", "low", "high")] == [0.0, 0.0, 0.0]
    assert (finding.level, finding.brief) == ("look", "frozen gates change nothing")


def test_of_constant_gates_of_a_regression_frozen_minus_plain_is_exactly_0_too(folder):
    np.savez(folder / "numbers.npz", X=numbers().inputs.values, y=numbers().targets, domains=numbers().domains)
    data = load_data(folder / "numbers.npz", Reading(task="regression"))
    chosen = recipe(
        "gdu", data.domain_names[0], data=DataSettings.of(folder / "numbers.npz", Reading(task="regression"))
    )
    model = open_gated(runner(data, folder / "runs").run(chosen).path)
    model.units.gate.set_kappa(1e-30)
    finding = examine_model(model, control=False)["frozen gates"]
    assert finding.value["metric"] == "rmse"
    assert finding.value["held out"]["difference"] == 0.0
    assert finding.level == "look"


def test_where_labels_depend_on_the_element_frozen_and_constant_gates_lose_clearly(folder):
    """Linear experts on the inputs themselves: nothing but gates can follow rules that differ from place to place."""
    made = runner(load_data("synthetic", Reading()), folder / "runs")
    learned, constant = (
        made.run(
            recipe(
                "gdu",
                "domain 1",
                settings={"gates": gates},
                body="identity",
                data=DataSettings(what="synthetic"),
                training={"epochs": 15, "batch_size": 64, "rate": 0.03},
            )
        )
        for gates in ("learned", "constant")
    )
    found = examine_model(open_gated(learned.path))
    frozen = found["frozen gates"]
    assert (frozen.level, frozen.brief) == ("ok", "the model depends on its gates")
    assert frozen.value["validation"]["high"] < -0.1
    assert frozen.value["held out"]["high"] < -0.1
    assert "gdu[gates=constant]" in frozen.cure
    assert constant.result().to_json()["test"]["overall"] < learned.result().to_json()["test"]["overall"] - 0.1
    control = examine_model(open_gated(constant.path), control=False)
    assert control["frozen gates"].value["held out"]["difference"] == 0.0
    assert "trained with gates=constant" in control.notes[0]
    assert found["linear head"].level == "ok"
    assert found["domain or class"].value["domain"]["share"] > found["domain or class"].value["class"]["share"]


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
    kinds = [fitted(kind, rows) for kind in (GDUClassifier, ERMClassifier, GDUClassifier)]
    for kind, freeze in zip(kinds, (False, False, True), strict=True):
        hits = []
        for site in np.unique(rows.sites):
            out = rows.sites == site
            kind.fit(rows.x[~out], rows.classes[~out], sample_domain=rows.sites[~out])
            with frozen_gates(kind.network_.units, kind.gates(rows.x[~out])) if freeze else nullcontext():
                hits += (kind.predict(rows.x[out]) == rows.classes[out]).tolist()
        right.append(np.mean(hits))
    assert beside["gated"] == pytest.approx(right[0])
    assert beside["linear"] == pytest.approx(right[1])
    assert beside["low"] <= beside["difference"] <= beside["high"]
    frozen = found["frozen gates"].value["left-out domains"]
    assert frozen["plain"] == beside["gated"]
    assert frozen["frozen"] == pytest.approx(right[2])
    assert found["domain or class"].value["domain"]["share"] > 0.5


def test_without_domains_there_are_five_folds(rows, tmp_path):
    fitted(GDUClassifier, rows).save(tmp_path / "model")
    np.savez(tmp_path / "rows.npz", X=rows.x, y=rows.classes)
    found = examine_model(open_gated(tmp_path / "model"), data=tmp_path / "rows.npz")["linear head"]
    assert found.value["left-out rows"]["rows"] == 120
    assert "refitted 5 times" in found.says


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
