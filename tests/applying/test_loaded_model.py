"""``load_model``: a model predicts from files and tables in memory alike, as the command does."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import gated_domains as gd
from gated_domains.data.errors import DataError
from made_runs import call, numbers, recipe, runner, table

pytestmark = pytest.mark.usefixtures("without_shape_checks")


def trained(folder: Path) -> gd.Run:
    path = table(folder / "clinic.csv")
    return gd.train(
        path, target="sick", domain="site", method="gdu", training={"epochs": 2}, out=folder / "runs", progress=False
    )


def test_files_and_tables_in_memory_give_what_the_command_writes(tmp_path: Path):
    run = trained(tmp_path)
    model, path = gd.load_model(run.path), tmp_path / "clinic.csv"
    assert call("predict", run.path, path, "--out", tmp_path / "out.csv").code == 0
    with open(tmp_path / "out.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert model.classes == ("no", "yes")
    probabilities = np.array([[float(row["p(no)"]), float(row["p(yes)"])] for row in written])
    arrow = pyarrow.csv.read_csv(path)
    for source in (path, str(path), arrow, arrow.to_pandas()):
        assert model.predict(source).tolist() == [row["prediction"] for row in written]
        np.testing.assert_allclose(model.predict_proba(source), probabilities, atol=1e-6)
    assert isinstance(model.predict_table(arrow), pa.Table)
    with pytest.raises(DataError, match="give the file, or a pandas or Arrow table"):
        model.predict(gd.load_dataset(path, target="sick", domain="site"))


def test_a_model_of_numbers_predicts_numbers_and_has_no_probabilities(tmp_path: Path):
    made = runner(numbers(), tmp_path).run(recipe("erm"))
    model = gd.load_model(made.path)
    assert model.predict(numbers()).dtype.kind == "f"
    with pytest.raises(DataError, match="a number is predicted, which has no probabilities; use predict"):
        model.predict_proba(numbers())


def test_a_run_prints_its_scores_and_is_opened_by_the_beginning_of_its_name(tmp_path: Path):
    run = trained(tmp_path)
    again = gd.open_run(run.path.with_name(run.path.name[:6]))
    assert again.path == run.path
    assert str(again) == str(run)
    assert str(run).splitlines()[0] == "GDU on clinic.csv, trained on all domains, seed 0"
    assert again.recipe.method.name == "gdu"
    assert again.result.epochs == 2
