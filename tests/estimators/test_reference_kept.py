"""Rows of training that a gated estimator keeps: which, how many, and how they travel."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from sklearn.base import clone

from gated_domains.data.errors import DataError
from gated_domains.estimators import ERMClassifier, GDUClassifier, GDURegressor, load_estimator, reference, saving
from made_estimators import SITES, fitted, made, made_table

pytestmark = pytest.mark.usefixtures("without_shape_checks")

CARD, WEIGHTS = "estimator.json", "estimator.safetensors"


def standard(fit, x):
    return fit.standard(x).float().numpy()


def has_row(rows, row) -> bool:
    return bool((np.abs(rows - row).max(1) < 1e-6).any())


@pytest.mark.parametrize("kind", [GDUClassifier, GDURegressor])
def test_some_standardised_rows_are_kept_with_their_domains(kind):
    table = made_table()
    fit = fitted(kind, table, reference_rows=30)
    assert fit.reference_.shape == (30, 4)
    assert fit.reference_.dtype == np.float32
    all_rows = standard(fit, table.x)
    for row, site in zip(fit.reference_, fit.reference_domains_, strict=True):
        place = int(np.abs(all_rows - row).max(1).argmin())
        np.testing.assert_allclose(all_rows[place], row, atol=1e-6)
        assert table.sites[place] == site
    assert set(fit.reference_domains_) == set(SITES)


def test_all_rows_are_kept_where_there_are_few_and_none_where_none_are_wanted():
    assert len(fitted(GDUClassifier).reference_) == 90
    assert fitted(GDUClassifier, reference_rows=0).reference_.shape == (0, 4)
    assert not hasattr(fitted(ERMClassifier), "reference_")


def test_without_names_of_domains_there_are_none():
    table = made_table()
    fit = made(GDUClassifier).fit(table.x, table.classes)
    assert len(fit.reference_) == 90
    assert fit.reference_domains_ is None


def test_fewer_of_very_wide_rows(monkeypatch):
    monkeypatch.setattr(reference, "_MOST_NUMBERS", 4 * 7)
    assert len(fitted(GDUClassifier).reference_) == 7


def test_rows_without_weight_are_not_kept():
    table = made_table()
    weights = (table.sites != "bern").astype(float)
    fit = made(GDUClassifier).fit(table.x, table.classes, sample_domain=table.sites, sample_weight=weights)
    assert len(fit.reference_) == 60
    assert set(fit.reference_domains_) == {"basel", "chur"}


def test_rows_that_validate_are_not_kept():
    table = made_table()
    assert len(fitted(GDUClassifier, table, early_stopping=True, validation_fraction=0.2).reference_) == 72


def test_the_same_seed_keeps_the_same_rows_and_predicts_as_if_none_were_kept():
    table = made_table()
    one, other = (fitted(GDUClassifier, table, reference_rows=20) for _ in range(2))
    np.testing.assert_array_equal(one.reference_, other.reference_)
    without = fitted(GDUClassifier, table, reference_rows=0)
    np.testing.assert_array_equal(one.predict_proba(table.x), without.predict_proba(table.x))
    again = clone(one).fit(table.x, table.classes, sample_domain=table.sites)
    np.testing.assert_array_equal(one.reference_, again.reference_)


def test_parts_fill_the_room_that_is_left_and_no_more():
    table = made_table()
    fit = made(GDUClassifier, reference_rows=50)
    for start in (0, 30, 60):
        part = slice(start, start + 30)
        fit.partial_fit(table.x[part], table.classes[part], classes=[0, 1, 2], sample_domain=table.sites[part])
        assert len(fit.reference_) == len(fit.reference_domains_) == min(50, start + 30)
    first = standard(fit, table.x[:30])
    assert all(has_row(fit.reference_, row) for row in first)
    assert not any(has_row(fit.reference_, row) for row in standard(fit, table.x[60:]))


def test_a_part_of_unknown_domains_leaves_none_known():
    table = made_table()
    fit = made(GDUClassifier).partial_fit(
        table.x[:45], table.classes[:45], classes=[0, 1, 2], sample_domain=table.sites[:45]
    )
    fit.partial_fit(table.x[45:], table.classes[45:])
    assert len(fit.reference_) == 90
    assert fit.reference_domains_ is None


@pytest.mark.parametrize("named", [True, False])
def test_kept_rows_are_saved_and_pickled_to_the_bit(named, tmp_path):
    table = made_table()
    fit = made(GDUClassifier, reference_rows=25)
    fit.fit(table.x, table.classes, sample_domain=table.sites if named else None)
    fit.save(tmp_path)
    for back in (load_estimator(tmp_path), pickle.loads(pickle.dumps(fit))):
        np.testing.assert_array_equal(back.reference_, fit.reference_)
        assert back.reference_.dtype == np.float32
        if named:
            assert back.reference_domains_.tolist() == fit.reference_domains_.tolist()
        else:
            assert back.reference_domains_ is None


def test_domains_that_are_numbers_come_back_as_numbers(tmp_path):
    table = made_table()
    sites = np.searchsorted(SITES, table.sites) + 7
    fit = made(GDUClassifier).fit(table.x, table.classes, sample_domain=sites)
    fit.save(tmp_path)
    back = load_estimator(tmp_path)
    assert back.reference_domains_.dtype.kind == "i"
    np.testing.assert_array_equal(back.reference_domains_, fit.reference_domains_)


def test_a_file_without_the_rows_that_were_kept_is_damaged(tmp_path):
    fitted(GDUClassifier).save(tmp_path)
    card = json.loads((tmp_path / CARD).read_text())
    tensors = load((tmp_path / WEIGHTS).read_bytes())
    content = save({name: value for name, value in tensors.items() if name != "reference"})
    card.pop("sha256")
    card["sha256"] = saving._digest(card, content)
    (tmp_path / CARD).write_text(json.dumps(card))
    (tmp_path / WEIGHTS).write_bytes(content)
    with pytest.raises(DataError, match=r"is damaged \('reference'\)"):
        load_estimator(tmp_path)


FORGED = {
    "too wide": {"reference": torch.zeros(3, 9)},
    "no table": {"reference": torch.zeros(8)},
    "of another precision": {"reference": torch.zeros(3, 4, dtype=torch.float64)},
    "no numbers": {"reference": torch.full((3, 4), torch.nan)},
    "domains of other rows": {"reference": torch.zeros(3, 4), "reference_domains": torch.zeros(2, dtype=torch.int64)},
    "domains that are none": {"reference": torch.zeros(2, 4), "reference_domains": torch.tensor([0, 9])},
    "a domain below none": {"reference": torch.zeros(2, 4), "reference_domains": torch.tensor([0, -1])},
    "domains in fractions": {"reference": torch.zeros(2, 4), "reference_domains": torch.zeros(2)},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    fitted(GDUClassifier).save(folder)
    return folder


@pytest.mark.parametrize("what", FORGED)
def test_rows_made_by_somebody_else_are_refused_even_with_the_right_digest(saved, what, tmp_path):
    card = json.loads((saved / CARD).read_text())
    tensors = load((saved / WEIGHTS).read_bytes())
    content = save({name: value for name, value in tensors.items() if "reference" not in name} | FORGED[what])
    card.pop("sha256")
    card["sha256"] = saving._digest(card, content)
    (tmp_path / CARD).write_text(json.dumps(card))
    (tmp_path / WEIGHTS).write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        load_estimator(tmp_path)
