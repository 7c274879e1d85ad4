"""A trained model on new data: predictions as a table, and scores where there are targets."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from gated_domains.applying.of_run import predict_new
from gated_domains.applying.scoring import score_new
from gated_domains.applying.tables import prediction_table
from gated_domains.applying.writing import predictions_path, write_table
from gated_domains.data import errors
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.scores import Predicted
from gated_domains.experiments.model import Model
from made_runs import recipe, runner, vectors


def new(rows: int = 3, **others: object) -> NewData:
    settings = {"name": "new", "inputs": Features(np.zeros((rows, 4), np.float32)), "class_names": ("no", "yes")}
    return NewData(**{**settings, **others})


def said(rows: int = 3) -> Predicted:
    yes = np.linspace(0.1, 0.9, rows, dtype=np.float32)
    beta = np.tile(np.array([0.2, 0.8], np.float32), (rows, 1))
    ones = np.ones(rows, np.float32)
    return Predicted(np.stack([1 - yes, yes], 1), beta, residual=0.5 * ones, coverage=ones)


def test_a_model_says_of_new_rows_what_it_said_of_the_same_rows_in_training(tmp_path):
    data = vectors()
    run = runner(data, tmp_path).run(recipe("gdu"))
    before = run.predictions()
    inputs = Features(np.asarray(data.inputs.read(before["rows"])))
    found = predict_new(Model.load(run.path), new(inputs=inputs))
    for name, values in found.arrays().items():
        np.testing.assert_allclose(values, before[name], rtol=1e-5, atol=1e-6)


# -- scores ------------------------------------------------------------------------------------------------------------


def test_scores_are_by_the_domains_of_the_new_site():
    data = new(targets=np.array([0, 1, 1]), domains=np.array([0, 0, 1]), domain_names=("ward 1", "ward 2"))
    found = score_new(data, said())
    assert found.by_domain == {"ward 1": 0.5, "ward 2": 1.0}
    assert found.overall == pytest.approx(2 / 3)


def test_without_domains_all_rows_are_one():
    assert score_new(new(targets=np.array([0, 0, 1])), said()).by_domain == {"all": 1.0}


def test_numbers_are_scored_by_their_error():
    data = new(targets=np.array([1.0, 2.0, 3.0]), class_names=None)
    found = score_new(data, Predicted(np.array([[1.0], [2.0], [6.0]])))
    assert found.metric.name == "rmse"
    assert found.overall == pytest.approx(3**0.5)


def test_without_targets_there_is_nothing_to_score():
    with pytest.raises(DataError, match="new was read without targets: there is nothing to score"):
        score_new(new(), said())


# -- the table ---------------------------------------------------------------------------------------------------------


def test_a_line_says_where_a_row_is_from_what_is_predicted_and_what_the_gates_saw():
    data = new(
        domains=np.array([1, 0, 0]), domain_names=("a", "b"), metadata={"file": np.array(["x.png", "y.png", "z.png"])}
    )
    table = prediction_table(data, said()).to_pydict()
    assert list(table) == [
        *("row", "file", "domain", "prediction", "probability", "p(no)", "p(yes)"),
        *("novelty", "coverage", "gate 1", "gate 2"),
    ]
    assert table["row"] == [0, 1, 2]
    assert table["domain"] == ["b", "a", "a"]
    assert table["prediction"] == ["no", "no", "yes"]
    assert table["probability"] == pytest.approx([0.9, 0.5, 0.9])
    assert table["p(yes)"] == pytest.approx([0.1, 0.5, 0.9])
    assert table["gate 2"] == pytest.approx([0.8] * 3)


def test_of_numbers_and_methods_without_gates_there_is_less_to_say():
    table = prediction_table(new(class_names=None), Predicted(np.array([[1.0], [2.0], [3.0]]))).to_pydict()
    assert table == {"row": [0, 1, 2], "prediction": [1.0, 2.0, 3.0]}


def test_a_column_that_was_asked_for_is_never_lost_to_one_of_ours():
    theirs = {
        "row": np.array([7, 8, 9]),
        "prediction": np.array(["p", "q", "r"]),
        "patient": np.array([1.5, np.nan, 2]),
    }
    table = prediction_table(new(metadata=theirs), said()).to_pydict()
    assert table["row"] == [0, 1, 2]
    assert table["given row"] == [7, 8, 9]
    assert table["given prediction"] == ["p", "q", "r"]
    assert table["prediction"] == ["no", "no", "yes"]
    assert table["patient"][2] == 2


# -- on disk -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "OUT.CSV"])
def test_a_table_is_written_as_its_name_says(tmp_path, name):
    table = prediction_table(new(), said())
    write_table(table, tmp_path / "sub" / name)
    read = pyarrow.parquet.read_table if name.endswith("parquet") else pyarrow.csv.read_csv
    again = read(tmp_path / "sub" / name)
    assert again.column_names == table.column_names
    assert again.column("prediction").to_pylist() == ["no", "no", "yes"]
    np.testing.assert_array_equal(again.column("p(no)").to_numpy().astype(np.float32), table.column("p(no)").to_numpy())
    assert [path.name for path in (tmp_path / "sub").iterdir()] == [name]


@pytest.mark.parametrize("name", ["out.xlsx", "out", "out.csv.gz", ".csv"])
def test_a_name_that_says_nothing_known_is_refused(tmp_path, name):
    with pytest.raises(DataError, match=r"predictions are written as \.csv or \.parquet, not"):
        predictions_path(tmp_path / name)
    with pytest.raises(DataError, match=r"\.csv or \.parquet"):
        write_table(prediction_table(new(), said()), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_table_and_no_half_of_a_new_one(tmp_path, monkeypatch):
    path: Path = tmp_path / "out.csv"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(errors.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_table(prediction_table(new(), said()), path)
    assert path.read_text() == "old"
    assert [left.name for left in tmp_path.iterdir()] == ["out.csv"]
