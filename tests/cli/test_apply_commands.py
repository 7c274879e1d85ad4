"""``gated-domains predict`` and ``evaluate``: a trained model on a new site's file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from gated_domains.applying import writing
from gated_domains.data import blocks
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import DataSettings
from made_runs import Done, assert_refused, call, changed, recipe, runner, table

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run

GATED = ["novelty", "coverage", "gate 1", "gate 2", "gate 3"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """A gated run with a domain held out, and a plain one on data without domains."""
    folder = tmp_path_factory.mktemp("trained")
    path = table(folder / "clinic.csv")
    found = {}
    for name, method, reading, hold_out, settings in (
        ("gdu", "gdu", Reading(target="sick", domain="site"), "north", {"num_bases": 3}),
        ("erm", "erm", Reading(target="sick", drop=("site",)), None, {}),
    ):
        chosen = recipe(method, hold_out, settings=settings, data=DataSettings.of(path, reading))
        found[name] = runner(load_data(path, reading), folder / "runs").run(chosen)
    return found


@pytest.fixture
def run(runs: dict[str, RunFolder]) -> RunFolder:
    return runs["gdu"]


@pytest.fixture(autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def new() -> Path:
    """Twenty rows of a new site: no targets, no domains."""
    return table(Path("new.csv"), 20, target=False, domain=False, start=150)


@pytest.fixture
def labelled() -> Path:
    return table(Path("labelled.csv"), 30, start=150)


def short(run: RunFolder) -> Path:
    """The run by its first letters."""
    return run.path.parent / run.name[:5]


# -- predict -----------------------------------------------------------------------------------------------------------


def test_rows_without_target_and_domain_are_predicted(run, new):
    done = call("predict", short(run), new)
    assert done.code == 0, done
    found = pyarrow.csv.read_csv("predictions.csv")
    assert found.column_names == ["row", "prediction", "probability", "p(no)", "p(yes)", *GATED]
    assert found.num_rows == 20
    columns = {name: found.column(name).to_numpy() for name in found.column_names}
    np.testing.assert_array_equal(columns["row"], np.arange(20))
    np.testing.assert_allclose(columns["p(no)"] + columns["p(yes)"], 1, atol=1e-5)
    np.testing.assert_allclose(columns["probability"], np.maximum(columns["p(no)"], columns["p(yes)"]))
    assert set(columns["prediction"]) <= {"no", "yes"}
    np.testing.assert_array_equal(columns["prediction"] == "yes", columns["p(yes)"] > columns["p(no)"])
    np.testing.assert_allclose(columns["gate 1"] + columns["gate 2"] + columns["gate 3"], 1, atol=1e-5)
    assert done.out.splitlines()[0].startswith("coverage: ")
    assert done.out.splitlines()[-1] == "wrote predictions.csv (20 rows)"
    one = call("predict", short(run), table(Path("one.csv"), 1, target=False, domain=False, start=150))
    assert one.out.splitlines()[-1] == "wrote predictions.csv (1 row)"


def test_parquet_says_the_same(run, new):
    assert call("predict", run.path, new, "--out", "sub/out.parquet").code == 0
    assert call("predict", run.path, new, "--out", "out.csv").code == 0
    one, other = pyarrow.parquet.read_table("sub/out.parquet"), pyarrow.csv.read_csv("out.csv")
    assert one.column_names == other.column_names
    np.testing.assert_allclose(one.column("p(yes)").to_numpy(), other.column("p(yes)").to_numpy(), rtol=1e-6)


def test_domains_and_columns_that_are_asked_for_stand_beside(run, labelled):
    done = call("predict", run.path, labelled, "--metadata", "sick,age")
    assert done.code == 0, done
    found = pyarrow.csv.read_csv("predictions.csv")
    assert found.column_names[:5] == ["row", "sick", "age", "domain", "prediction"]
    assert set(found.column("domain").to_pylist()) == {"north", "south", "west"}


def test_a_method_without_gates_says_less(runs, new):
    done = call("predict", runs["erm"].path, new)
    assert done.code == 0, done
    assert pyarrow.csv.read_csv("predictions.csv").column_names == [
        *("row", "prediction", "probability", "p(no)", "p(yes)")
    ]
    assert "coverage" not in done.out


def test_a_word_never_seen_is_taken_and_said(run, new):
    new.write_text(new.read_text().replace(",a\n", ",z\n"))
    done = call("predict", run.path, new)
    assert done.code == 0, done
    assert "note: " in done.out
    assert "z" in done.out


@pytest.mark.parametrize("name", ["out.xlsx", "out", "out.csv.gz"])
def test_a_table_of_an_unknown_kind_is_refused_before_anything_is_looked_at(name):
    done = call("predict", "no/such/run", "no/such/data.csv", "--out", name)
    assert_refused(done, f"{name}: predictions are written as .csv or .parquet")
    assert list(Path().iterdir()) == []


def test_the_data_are_not_written_over(run, new):
    before = new.read_bytes()
    assert_refused(call("predict", run.path, new, "--out", "./new.csv"), "holds the data themselves", "--out")
    assert new.read_bytes() == before


def refused_and_old_left(done: Done, *words: str) -> None:
    assert_refused(done, *words)
    assert Path("predictions.csv").read_text() == "old"
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]


def test_wrong_columns_are_refused_and_nothing_is_written(run, new):
    Path("predictions.csv").write_text("old")
    new.write_text(new.read_text().replace("dose", "dosis", 1))
    refused_and_old_left(call("predict", run.path, new), "new.csv", "'dose'", "'dosis'")
    new.write_text(new.read_text().replace("dosis", "dose", 1).replace("\n5", "\nfive", 1))
    refused_and_old_left(call("predict", run.path, new), "new.csv", "'age'")


def test_a_fault_on_the_way_leaves_nothing_half_written(run, new, monkeypatch):
    Path("predictions.csv").write_text("old")

    class Full:
        def __init__(self, path: Path, schema: object) -> None:
            path.write_text("half")

        def write_table(self, table: object) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr(writing.pyarrow.csv, "CSVWriter", Full)
    refused_and_old_left(call("predict", run.path, new), "predictions.csv: the disk is full")


def test_what_is_not_there_is_refused(run, new):
    assert_refused(call("predict", run.path.parent / "zzz", new), "there is no such run")
    assert_refused(call("predict", run.path, "nowhere.csv"), "nowhere.csv is neither a file")
    assert_refused(call("predict", run.path, new, "--device", "tpu"), "the device must be auto, cpu or cuda")
    assert sorted(path.name for path in Path().iterdir()) == ["new.csv"]


def test_a_damaged_or_unfinished_run_is_refused_with_the_cure(run, new):
    spoilt = Path(shutil.copytree(run.path, "spoilt"))
    weights = spoilt / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert_refused(call("predict", spoilt, new), "model.safetensors", "delete the run's folder and train it again")
    changed(spoilt / "model.json", format=9)
    assert_refused(call("predict", spoilt, new), "is of format 9, this version reads 1")
    (spoilt / "result.json").unlink()
    assert_refused(call("predict", spoilt, new), "is not finished: 2 epochs are done", "start the same command")
    assert not Path("predictions.csv").exists()


def test_several_files_go_into_one_table_with_the_name_of_each(run):
    files = [table(Path("a.csv"), 20, start=150), table(Path("b.csv"), 12, start=300)]
    done = call("predict", run.path, *files)
    assert done.code == 0, done
    found = pyarrow.csv.read_csv("predictions.csv")
    assert found.column_names[:4] == ["row", "file", "domain", "prediction"]
    assert found.column("row").to_pylist() == [*range(20), *range(12)]
    assert found.column("file").to_pylist() == ["a.csv"] * 20 + ["b.csv"] * 12
    assert done.out.splitlines()[-1] == "wrote predictions.csv (32 rows of 2 files)"
    assert_refused(call("predict", run.path, *files, "--out", "b.csv"), "b.csv holds the data themselves")


def test_gates_may_look_at_a_batch_or_at_a_stream(run, runs, new):
    gates = {}
    for by in ("sample", "batch", "stream"):
        assert call("predict", run.path, new, "--gates", by).code == 0
        gates[by] = set(pyarrow.csv.read_csv("predictions.csv").column("gate 1").to_pylist())
    assert len(gates["sample"]) > 5
    assert len(gates["batch"]) == len(gates["stream"]) == 1
    assert call("predict", run.path, new, "--gates", "stream", "--window", 4).code == 0
    assert set(pyarrow.csv.read_csv("predictions.csv").column("gate 1").to_pylist()) != gates["stream"]
    assert call("predict", run.path, new, "--gates", "stream", "--half-life", 2).code == 0
    assert set(pyarrow.csv.read_csv("predictions.csv").column("gate 1").to_pylist()) != gates["stream"]
    assert_refused(call("predict", run.path, new, "--half-life", 2), "a half-life of 2 rows is for gates of a stream")
    assert_refused(call("predict", run.path, new, "--gates", "stream", "--half-life", 0), "half_life")
    assert_refused(call("predict", run.path, new, "--gates", "streams"), "not at 'streams'", "did you mean 'stream'")
    assert_refused(call("predict", run.path, new, "--window", 4), "a window of 4 rows is for gates of a stream")
    assert_refused(call("predict", runs["erm"].path, new, "--gates", "batch"), "ERM has no gates")


def test_a_large_file_is_predicted_in_parts_and_says_the_same(run, monkeypatch):
    path = table(Path("large.csv"), 3_000, start=150)
    assert call("predict", run.path, path, "--out", "whole.csv").code == 0
    monkeypatch.setattr(blocks, "LARGE", 1)
    monkeypatch.setattr(blocks, "_MOST_ELSE", 1024)
    done = call("predict", run.path, path, "--out", "parts.csv")
    assert done.code == 0, done
    assert Path("parts.csv").read_text() == Path("whole.csv").read_text()
    assert "predicting rows" in done.err


# -- evaluate ----------------------------------------------------------------------------------------------------------


def test_scores_are_by_domain_with_what_training_has_seen(run, labelled):
    done = call("evaluate", short(run), labelled)
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert lines[0].split() == ["domain", "accuracy"]
    assert [" ".join(line.split()[:-1]) for line in lines[1:4]] == [
        "north not seen in training",
        "south seen in training",
        "west seen in training",
    ]
    assert lines[4].startswith("30 rows: ")


def test_the_scores_are_those_of_the_predictions(run, labelled):
    said = json.loads(call("evaluate", run.path, labelled, "--json").out)
    assert call("predict", run.path, labelled, "--metadata", "sick").code == 0
    found = pyarrow.csv.read_csv("predictions.csv")
    right = found.column("sick").to_numpy() == found.column("prediction").to_numpy()
    domain = found.column("domain").to_numpy()
    by_domain = {name: right[domain == name].mean() for name in ("north", "south", "west")}
    assert said["by_domain"] == pytest.approx(by_domain)
    assert said["overall"] == pytest.approx(right.mean())
    assert said["mean"] == pytest.approx(np.mean(list(by_domain.values())))
    assert said["worst"] == pytest.approx(min(by_domain.values()))
    assert (said["metric"], said["rows"]) == ("accuracy", 30)


def test_the_held_out_rows_score_what_the_result_says(run):
    path = table(Path("all.csv"), 150)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *(line for line in lines if ",north," in line)]) + "\n")
    said = json.loads(call("evaluate", run.path, path, "--json").out)
    assert said["by_domain"] == pytest.approx(run.result().to_json()["test"]["by_domain"])


def test_without_domains_nothing_is_said_of_what_training_has_seen(run, runs):
    path = table(Path("new.csv"), 20, domain=False, start=150)
    for each in (run, runs["erm"]):
        done = call("evaluate", each.path, path)
        assert done.code == 0, done
        assert "seen in training" not in done.out
    done = call("evaluate", runs["erm"].path, table(Path("sites.csv"), 20, start=150), "--domain", "site")
    assert done.code == 0, done
    assert "north" in done.out
    assert "seen in training" not in done.out


def test_without_targets_there_is_nothing_to_score(run, new):
    assert_refused(call("evaluate", run.path, new), "new.csv", "'sick'", "nothing can be scored, only predicted")


def test_a_class_that_training_did_not_have_is_refused(run, labelled):
    labelled.write_text(labelled.read_text().replace(",yes", ",perhaps", 1))
    assert_refused(call("evaluate", run.path, labelled), "perhaps")
