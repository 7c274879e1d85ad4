"""``gated-domains shift``: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.estimators import GDUClassifier
from gated_domains.reports.shift_words import sentences
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import DataSettings
from gated_domains.runs.site_shift import SiteShift
from made_runs import assert_refused, call, recipe, runner, table

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run

READING = Reading(target="sick", domain="site")


def trained(folder: Path, method: str, **settings: object) -> RunFolder:
    path = table(folder / "clinic.csv")
    chosen = recipe(method, None, settings=settings, data=DataSettings.of(path, READING))
    return runner(load_data(path, READING), folder / "runs").run(chosen)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained(tmp_path_factory.mktemp("trained"), "gdu", num_bases=3)


@pytest.fixture(autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def new() -> Path:
    return table(Path("new.csv"), 40, target=False, domain=False, start=150)


def test_it_prints_the_answer_and_the_mixture_and_writes_the_page(run, new):
    done = call("shift", run.path.parent / run.name[:5], new)
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert "new.csv" in lines[0]
    assert "p = " in lines[2]
    assert "are too few to say whether there is a shift (50 are needed)" in lines[0]
    assert "No shift was seen" not in done.out
    head = next(line for line in lines if line.startswith("basis "))
    assert head.split() == ["basis", "the", "site", "90", "%", "interval", "north", "south", "west"]
    table_rows = [line for line in lines[lines.index(head) + 1 :] if line[:1].isdigit()]
    assert [line.split()[0] for line in table_rows] == ["1", "2", "3"]
    assert lines[-1] == "wrote shift.html"
    assert "<!DOCTYPE html>" in Path("shift.html").read_text("utf-8")


def test_json_says_the_same_and_the_page_may_be_left_out(run, new):
    done = call("shift", run.path, new, "--json", "--no-page")
    assert done.code == 0, done
    found = json.loads(done.out)
    assert found.pop("page") is None
    assert not Path("shift.html").exists()
    shift = SiteShift.from_json(found)
    printed = call("shift", run.path, new, "--no-page").out
    for sentence in sentences(shift):
        assert sentence in printed


def test_targets_are_used_unasked_and_notes_are_printed(run):
    labelled = table(Path("labelled.csv"), 40, start=150)
    done = call("shift", run.path, labelled, "--out", "pages/site.html", "--rows", "30")
    assert done.code == 0, done
    assert "Its true accuracy there is" in done.out
    assert "note: 30 of 40 rows were looked at, drawn at random" in done.out
    assert Path("pages/site.html").exists()


def test_calibrating_shows_progress_and_is_done_once(run, new):
    done = call("shift", run.path, new, "--calibrate", "--no-page")
    assert done.code == 0, done
    assert "[3/3]" in done.err
    assert "add --calibrate" not in done.out
    again = call("shift", run.path, new, "--no-page")
    assert again.out == done.out
    assert again.err == ""


def test_a_saved_estimator_is_asked_in_the_same_way(new):
    data = load_data(table(Path("clinic.csv")), READING)
    lines = [line.split(",") for line in Path("clinic.csv").read_text().split()[1:]]
    rows, sites = [[float(cell) for cell in line[:2]] for line in lines], [line[3] for line in lines]
    GDUClassifier(random_state=0, num_bases=2, tol=1e-2).fit(rows, data.targets, sample_domain=sites).save("model")
    narrow = Path("narrow.csv")
    narrow.write_text("\n".join(",".join(line.split(",")[:2]) for line in new.read_text().split()))
    done = call("shift", "model", narrow)
    assert done.code == 0, done
    assert "calibrate_accuracy(X, y, sample_domain=...)" in done.out
    assert "note: rows of the sources are some that it was trained on" in done.out


def test_what_makes_no_sense_is_refused_before_anything_is_done(run, new, tmp_path):
    assert_refused(call("shift", run.path, new, "--out", "shift.pdf"), "ends in .html")
    assert_refused(call("shift", run.path, "nowhere.csv"), "nowhere.csv")
    assert_refused(call("shift", "nowhere", new), "nowhere")
    assert_refused(call("shift", run.path, new, "--target", "health"), "health")
    Path("other.csv").write_text("age,weight\n1,2\n3,4\n")
    assert_refused(call("shift", run.path, "other.csv"), "dose")
    plain = trained(tmp_path, "erm")
    assert_refused(call("shift", plain.path, new), "no gates")
    Path("model.onnx").write_bytes(b"")
    assert_refused(call("shift", "model.onnx", new), "saved estimator")
    assert not Path("shift.html").exists()
