"""``gated-domains doctor``: findings for people and machines, and an exit code that a pipeline can stop at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.estimators import ERMClassifier, GDUClassifier
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import DataSettings
from made_estimators import fitted, made_table
from made_runs import assert_refused, call, recipe, runner, table

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run

READING = Reading(target="sick", domain="site")
BLIND = "gates do not depend on the input"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trained")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, RunFolder]:
    """The recommended method, the paper's, one with a single basis, and one without gates."""
    clinic = table(folder / "clinic.csv", 300)
    found, data = {}, load_data(clinic, READING)
    for name, method, settings in (
        ("gdu", "gdu", {"num_bases": 3}),
        ("paper", "gdu-paper", {}),
        ("one", "gdu", {"num_bases": 1}),
        ("erm", "erm", {}),
    ):
        chosen = recipe(method, "north", settings=settings, data=DataSettings.of(clinic, READING))
        found[name] = runner(data, folder / "runs").run(chosen)
    return found


@pytest.fixture(scope="module")
def saved(folder: Path) -> Path:
    fitted(GDUClassifier).save(folder / "estimator")
    return folder / "estimator"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    made = made_table()
    np.savez(tmp_path / "rows.npz", X=made.x, y=made.classes, domains=made.sites)
    return tmp_path / "rows.npz"


def test_a_run_that_a_linear_head_equals_is_a_line_a_finding_and_worth_a_look(runs):
    done = call("doctor", runs["gdu"].path)
    assert done.code == 0, done
    title, *lines = done.out.splitlines()
    assert title == f"GDU, {runs['gdu'].path}"
    assert lines[0].startswith("ok      dependence on the input: gates depend on the input (")
    assert lines[-3].startswith("look    linear head: a retrained linear head is not significantly worse (")
    assert lines[-2].startswith("        -> take the simpler model (--method erm)")
    assert (
        lines[-1]
        == "look: frozen gates make no significant difference; a retrained linear head is not significantly worse"
    )
    assert "\x1b" not in done.out  # colours are for terminals


def test_the_papers_run_is_broken_and_the_pipeline_stops(runs):
    done = call("doctor", str(runs["paper"].path)[:-2], "--no-control")
    assert done.code == 3, done
    assert done.out.splitlines()[-1] == f"broken: {BLIND}"
    assert f"broken  dependence on the input: {BLIND} (" in done.out
    assert "        -> train with --method gdu, which fits bases, sigma and kappa to the data" in done.out
    assert "fit_bases" not in done.out  # nobody at a shell can call it
    assert "look    frozen gates: frozen gates " in done.out
    assert "linear head: " not in done.out
    assert "note: not looked at: a linear head; switched off by --no-control" in done.out


def test_what_is_worth_a_look_stops_a_strict_pipeline_alone(runs):
    done = call("doctor", runs["one"].path, "--no-control")
    verdict = "look: gates cannot depend on the input; frozen gates change nothing"
    assert (done.code, done.out.splitlines()[-1]) == (0, verdict)
    assert call("doctor", runs["one"].path, "--no-control", "--strict").code == 3


@pytest.mark.parametrize(("name", "code"), [("gdu", 0), ("paper", 3)])
def test_json_is_all_of_it_and_nothing_else_goes_to_standard_output(runs, name, code):
    done = call("doctor", runs[name].path, "--json")
    assert done.code == code
    said = json.loads(done.out)
    assert set(said) == {"model", "label", "level", "verdict", "of_weights_alone", "findings", "notes"}
    assert said["model"] == str(runs[name].path)
    assert said["level"] == ("broken" if code else "look")
    findings = {finding["name"]: finding for finding in said["findings"]}
    assert set(findings["linear head"]["value"]) == {"metric", "ridge", "trained_rows", "validation", "held out"}
    assert findings["dependence on the input"]["value"]["information"] >= 0
    assert all(finding["level"] == "ok" or finding["cure"] for finding in said["findings"])


def test_a_run_without_its_data_says_what_was_not_looked_at(runs, folder, tmp_path):
    clinic = folder / "clinic.csv"
    away = clinic.rename(tmp_path / "away.csv")
    try:
        done = call("doctor", runs["gdu"].path)
        assert done.code == 0, done
        assert done.out.splitlines()[-1] == "ok as far as weights alone tell"
        assert "note: without rows these were not looked at: " in done.out
        assert "clinic.csv" in done.out
        assert "linear head: " in call("doctor", runs["gdu"].path, "--data", away).out
    finally:
        away.rename(clinic)


def test_an_estimator_is_looked_at_with_and_without_data(saved, rows):
    alone = call("doctor", saved)
    assert (alone.code, alone.out.splitlines()[-1]) == (0, "ok"), alone
    assert "note: looked at 90 rows of training, which the estimator keeps" in alone.out
    done = call("doctor", saved, "--data", rows)
    assert done.code == 0, done
    assert "linear head: " in done.out
    assert "left-out domains" in done.out


def test_a_projection_on_overlapping_bases_is_broken(tmp_path):
    x = np.random.default_rng(0).normal(size=(120, 6))
    GDUClassifier(num_bases=3, gate="projection", random_state=0).fit(x, x[:, 0] > 0).save(tmp_path / "model")
    done = call("doctor", tmp_path / "model")
    assert done.code == 3, done
    assert done.out.splitlines()[-1] == f"broken: {BLIND}"


def test_bad_input_is_refused_in_a_sentence(runs, saved, rows, tmp_path):
    assert_refused(call("doctor", runs["erm"].path), "has no gates to look at", "ERM")
    fitted(ERMClassifier).save(tmp_path / "model")
    assert_refused(call("doctor", tmp_path / "model"), "ERMClassifier is no gated model")
    assert_refused(call("doctor", tmp_path / "nothing"), "nothing")
    assert_refused(call("doctor", runs["gdu"].path, "--data", tmp_path / "no.csv"), "no.csv")
    assert_refused(call("doctor", runs["gdu"].path, "--target", "age"), "its recipe says")
    (tmp_path / "model.onnx").write_bytes(b"graph")
    assert_refused(call("doctor", tmp_path / "model.onnx"), "holds a graph")
    other = tmp_path / "other.csv"
    table(other, 200)
    assert_refused(call("doctor", runs["gdu"].path, "--data", other), "other rows", "--data")


def test_help_needs_no_torch():
    code = "import sys; from gated_domains.cli import doctor; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
