"""Scaling: mean 0 and deviation 1, whatever precision, offset and size the columns have; rows come a part at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from gated_domains.estimators import ERMClassifier, rows
from gated_domains.estimators.rows import RowSource
from gated_domains.estimators.scaling import Scaling
from made_estimators import KINDS, answers, made, made_table

CPU = torch.device("cpu")


def scaled(values, weights=None) -> Scaling:
    weights = torch.ones(values.shape[0]) if weights is None else torch.as_tensor(weights)
    return Scaling(values.shape[1]).fit(RowSource(values, device=CPU), weights.double())


def test_columns_are_standardised_as_scikit_learn_does():
    x = made_table().x
    found, theirs = scaled(x), StandardScaler().fit(x)
    np.testing.assert_allclose(found.mean, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(found.scale, theirs.scale_, rtol=1e-12)
    standard = found(torch.from_numpy(x))
    np.testing.assert_allclose(standard, theirs.transform(x), rtol=1e-10)
    np.testing.assert_allclose(found.undo(standard), x, rtol=1e-12)


def test_a_large_offset_costs_no_precision():
    noise = np.random.default_rng(0).normal(size=(500, 2))
    near, far = scaled(noise), scaled(noise + 1e6)
    np.testing.assert_allclose(far.scale, near.scale, rtol=1e-8)
    np.testing.assert_allclose(far(torch.from_numpy(noise + 1e6)), near(torch.from_numpy(noise)), atol=1e-8)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6 / 3, 1e-12])
@pytest.mark.parametrize("count", [50, 30_011])
def test_a_constant_column_is_only_centred(value, count):
    rng = np.random.default_rng(0)
    found = scaled(np.full((count, 1), value), rng.uniform(0.1, 5, count))
    assert float(found.scale) == 1.0
    assert float(found.mean) == value
    assert float(found(torch.full((1, 1), value, dtype=torch.float64))) == 0.0


def test_a_column_that_hardly_varies_is_scaled():
    found = scaled(1.0 + 1e-9 * np.arange(20.0)[:, None])
    assert float(found.scale) == pytest.approx(1e-9 * np.arange(20).std(), rel=1e-5)


def test_a_weighted_row_is_that_many_rows():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(2, 3, (40, 3)), rng.integers(1, 5, 40)
    found, repeated = scaled(x, weights), scaled(np.repeat(x, weights, 0))
    np.testing.assert_allclose(found.mean, repeated.mean, rtol=1e-12)
    np.testing.assert_allclose(found.scale, repeated.scale, rtol=1e-12)


@pytest.mark.parametrize("given", [np.float16, np.float32, np.int32, np.uint8, ">f8"])
@pytest.mark.parametrize("name", ["GDUClassifier", "ERMRegressor"])
def test_other_dtypes_are_taken_as_the_numbers_they_hold(name, given):
    kind, table = KINDS[name], made_table()
    x = (np.abs(table.x) * 2).astype(given)
    exact = x.astype(np.float64)
    y = answers(kind, table)
    found = made(kind, alpha=0.05).fit(x, y).predicted(x).output
    expected = made(kind, alpha=0.05).fit(exact, y).predicted(exact).output
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["GDUClassifier", "ERMRegressor"])
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_sparse_rows_are_the_same_rows(name, solver):
    kind, table = KINDS[name], made_table()
    x = np.where(np.abs(table.x) > 1, table.x, 0.0)
    y = answers(kind, table)
    dense = made(kind, solver=solver, epochs=2, alpha=0.05).fit(x, y)
    for form in (sparse.csr_matrix, sparse.coo_array):
        thin = made(kind, solver=solver, epochs=2, alpha=0.05).fit(form(x), y)
        np.testing.assert_array_equal(thin.predicted(form(x)).output, dense.predicted(x).output)


@pytest.mark.parametrize("name", ["GDUClassifier", "ERMRegressor"])
def test_rows_that_come_in_many_parts_are_the_same_rows(name, monkeypatch):
    kind, table = KINDS[name], made_table()
    y = answers(kind, table)
    settings = {"alpha": 0.05, "tol": 1e-3}
    whole = made(kind, **settings).fit(table.x, y)
    of_whole = whole.predicted(table.x)
    monkeypatch.setattr(rows, "_AT_ONCE", 7)
    monkeypatch.setattr(rows, "_FEWEST", 1)
    split = made(kind, **settings).fit(table.x, y)
    for name, values in split.predicted(table.x).arrays().items():
        np.testing.assert_allclose(values, getattr(of_whole, name), rtol=1e-3, atol=1e-4)


def test_parts_take_every_row_once_and_in_order():
    values = np.arange(20.0).reshape(10, 2)
    found = list(RowSource(values, device=CPU).parts(4))
    assert [(part.start, part.stop) for part, _ in found] == [(0, 4), (4, 8), (8, 10)]
    assert np.array_equal(torch.cat([x for _, x in found]), values)


def test_a_read_only_file_on_disk_is_read_and_left_as_it_is(tmp_path):
    table = made_table()
    np.save(tmp_path / "x.npy", table.x)
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = made(ERMClassifier).fit(x, table.classes).predict_proba(x)
    assert np.array_equal(found, made(ERMClassifier).fit(table.x, table.classes).predict_proba(table.x))
    assert np.array_equal(np.load(tmp_path / "x.npy"), table.x)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.parametrize("name", KINDS)
def test_what_is_given_is_not_written_to(name, solver):
    kind, table = KINDS[name], made_table()
    given = [table.x.copy(), answers(kind, table).copy(), table.sites.copy(), np.ones(90)]
    kept = [one.copy() for one in given]
    x, y, sites, weights = given
    made(kind, solver=solver, epochs=2).fit(x, y, sample_domain=sites, sample_weight=weights).predict(x)
    assert all(np.array_equal(one, before) for one, before in zip(given, kept, strict=True))
