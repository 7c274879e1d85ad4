"""A saved estimator reads new data by the columns it was fitted on and says of them what it said before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gated_domains.applying.of_estimator import EstimatorPredictor
from gated_domains.applying.predictor import Predictor
from gated_domains.data import Reading, read_like
from gated_domains.data.errors import DataError
from gated_domains.estimators import ERMClassifier, ERMRegressor, GDUClassifier, GDURegressor
from gated_domains.layer.stream import GateStream

NAMES = ("age", "chol", "weight")


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Two sites that lie apart, one after the other."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0, 1, (60, 3)), rng.normal(4, 1, (60, 3))])
    table = pd.DataFrame(values, columns=NAMES)
    table["site"] = ["basel"] * 60 + ["bern"] * 60
    table["ill"] = np.where(values.sum(1) + rng.normal(0, 1, 120) > 6, "yes", "no")
    return table


@pytest.fixture(scope="module")
def fitted(rows) -> GDUClassifier:
    return GDUClassifier(num_bases=2, random_state=0).fit(rows[list(NAMES)], rows["ill"], sample_domain=rows["site"])


@pytest.fixture
def folder(fitted, tmp_path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def file(rows, tmp_path) -> Path:
    """The columns in another order, with others among them."""
    rows[["site", "weight", "ill", "age", "chol"]].to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "new.csv"


def test_a_file_is_read_by_names_and_predicted_as_by_the_estimator(fitted, folder, file, rows):
    predictor = EstimatorPredictor(folder)
    assert isinstance(predictor, Predictor)
    assert predictor.schema.class_names == ("no", "yes")
    found = predictor.predict(read_like(file, predictor.schema, targets=False))
    expected = fitted.predicted(rows[list(NAMES)])
    for name, values in expected.arrays().items():
        np.testing.assert_allclose(getattr(found, name), values, rtol=1e-5, atol=1e-6)
    assert found.output.shape == (120, 2)
    assert found.beta.shape == (120, 2)
    assert found.residual.shape == found.coverage.shape == (120,)


def test_nothing_is_warned_of_when_names_are_right(folder, file, recwarn):
    predictor = EstimatorPredictor(folder)
    predictor.predict(read_like(file, predictor.schema, targets=False))
    assert not [str(warning.message) for warning in recwarn if "feature names" in str(warning.message)]


def test_gates_by_batch_are_one_a_domain(fitted, folder, file, rows):
    predictor = EstimatorPredictor(folder, gates="batch")
    alone = predictor.predict(read_like(file, predictor.schema, targets=False))
    assert len(np.unique(alone.beta.round(5), axis=0)) == 1
    data = read_like(file, predictor.schema, targets=False, reading=Reading(domain="site"))
    found = predictor.predict(data)
    for rows_of in (slice(0, 60), slice(60, 120)):
        expected = fitted.predicted(rows[list(NAMES)].iloc[rows_of], gates="batch")
        np.testing.assert_allclose(found.beta[rows_of], expected.beta, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.output[rows_of], expected.output, rtol=1e-4, atol=1e-5)
    assert abs(found.beta[0] - found.beta[-1]).max() > 0.05


def test_a_batch_has_no_more_than_1024_rows(folder, rows, tmp_path):
    many = pd.concat([rows] * 10)
    many.to_csv(tmp_path / "many.csv", index=False)
    predictor = EstimatorPredictor(folder, gates="batch")
    found = predictor.predict(read_like(tmp_path / "many.csv", predictor.schema, targets=False))
    assert len(np.unique(found.beta.round(6), axis=0)) == 2


def test_a_stream_goes_on_from_call_to_call(fitted, folder, file, rows):
    predictor = EstimatorPredictor(folder, gates="stream")
    data = read_like(file, predictor.schema, targets=False)
    first, second = predictor.predict(data), predictor.predict(data)
    stream = GateStream()
    for found in (first, second):
        expected = fitted.predicted(rows[list(NAMES)], gates=stream)
        np.testing.assert_allclose(found.beta, expected.beta, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(first.beta[:32], first.beta[:1].repeat(32, 0))
    assert abs(first.beta[0] - first.beta[119]).max() > 0.05
    assert abs(first.beta[0] - second.beta[0]).max() > 0.01


@pytest.mark.parametrize("gates", ["batch", "stream"])
def test_an_estimator_without_gates_says_so(rows, tmp_path, gates):
    ERMClassifier().fit(rows[list(NAMES)], rows["ill"]).save(tmp_path / "model")
    with pytest.raises(
        DataError, match=rf"this ERMClassifier has no gates, and they cannot be by {gates}; leave --gates"
    ):
        EstimatorPredictor(tmp_path / "model", gates=gates)
    predictor = EstimatorPredictor(tmp_path / "model", gates="sample")
    rows.to_csv(tmp_path / "new.csv", index=False)
    found = predictor.predict(read_like(tmp_path / "new.csv", predictor.schema, targets=False))
    assert set(found.arrays()) == {"output"}


@pytest.mark.parametrize("kind", [ERMRegressor, GDURegressor])
def test_a_number_is_predicted_from_vectors_without_names(kind, rows, tmp_path):
    values, target = rows[list(NAMES)].to_numpy(), rows["age"].to_numpy() * 2
    model = kind().fit(values, target)
    model.save(tmp_path / "model")
    predictor = EstimatorPredictor(tmp_path / "model")
    assert predictor.schema.class_names is None
    np.savez(tmp_path / "new.npz", X=values)
    rows[list(NAMES)].to_csv(tmp_path / "new.csv", index=False)
    for name in ("new.npz", "new.csv"):
        found = predictor.predict(read_like(tmp_path / name, predictor.schema, targets=False))
        np.testing.assert_allclose(found.output[:, 0], model.predict(values), rtol=1e-4, atol=1e-4)


def test_classes_that_are_numbers_are_named_as_people_write_them(rows, tmp_path):
    ERMClassifier().fit(rows[list(NAMES)], np.where(rows["ill"] == "yes", 2.0, 1.0)).save(tmp_path / "model")
    assert EstimatorPredictor(tmp_path / "model").schema.class_names == ("1", "2")


def test_a_missing_number_is_refused_in_the_words_of_scikit_learn_and_its_column_named(folder, rows, tmp_path):
    holes = rows.copy()
    holes.loc[5, "chol"] = np.nan
    holes.to_csv(tmp_path / "new.csv", index=False)
    predictor = EstimatorPredictor(folder)
    with pytest.raises(DataError, match=r"(?s)new\.csv: Input X contains NaN.*missing in these columns: chol$"):
        predictor.predict(read_like(tmp_path / "new.csv", predictor.schema, targets=False))


def test_a_file_without_the_columns_of_fit_is_refused_by_name(folder, rows, tmp_path):
    rows.drop(columns="chol").to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(DataError, match=r"trained on are missing: chol.*Add them; none may be empty$"):
        read_like(tmp_path / "new.csv", EstimatorPredictor(folder).schema, targets=False)
    rows.assign(chol="high").to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(DataError, match=r"'high' in row 1, line 2 .*mend the cell$"):
        read_like(tmp_path / "new.csv", EstimatorPredictor(folder).schema, targets=False)


def test_several_numbers_a_row_do_not_fit_into_a_file_of_predictions(rows, tmp_path):
    ERMRegressor().fit(rows[list(NAMES)], rows[["age", "chol"]].to_numpy()).save(tmp_path / "model")
    with pytest.raises(DataError, match="predicts 2 numbers a row"):
        EstimatorPredictor(tmp_path / "model")


def test_a_folder_without_an_estimator_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no saved estimator"):
        EstimatorPredictor(tmp_path)
