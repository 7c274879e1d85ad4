"""What the span of the bases cannot express of rows and batches, against loops; and AUROC against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from gated_domains.data.errors import DataError
from gated_domains.insight.shift import auroc, batch_novelty, novelty, sample_novelty
from gated_domains.layer import GatedDomainUnits
from gated_domains.layer.kernels import Gaussian


def made_units(spare=0):
    units = GatedDomainUnits(3, 2, num_bases=2, basis_size=4, max_bases=2 + spare, kernel=Gaussian(2.0))
    if spare:
        units.bases.data[2:] = 0.5  # lies near the rows, and must not count
    return units


def projected(units, product_with, length):
    """``length - cross' gram^-1 cross``, from means over pairs."""
    bases = units.active_bases.detach().double()
    gram = np.array([[float(units.kernel(a, b).mean()) for b in bases] for a in bases])
    cross = np.array([float(units.kernel(product_with.double(), basis).mean()) for basis in bases])
    return length - cross @ np.linalg.solve(gram, cross)


@pytest.mark.parametrize("spare", [0, 1])
def test_of_a_row_what_is_left_is_the_residual_of_the_projection(spare, monkeypatch):
    monkeypatch.setattr(novelty, "BLOCK", 2)  # so that rows are cut into blocks
    units, rows = made_units(spare), torch.randn(5, 3)
    for row, found in zip(rows, sample_novelty(units, rows), strict=True):
        assert float(found) == pytest.approx(projected(units, row[None], 1.0), abs=1e-5)


def test_no_gate_comes_nearer_than_the_projection():
    units, rows = made_units(), torch.randn(50, 3)
    assert (sample_novelty(units, rows) <= units.novelty(rows) + 1e-6).all()


def test_of_a_batch_pairs_of_different_rows_give_the_length():
    units, rows = made_units(), torch.randn(6, 3)
    pairs = [float(units.kernel(a[None], b[None])) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
    found = batch_novelty(units, rows)
    assert found == pytest.approx(max(0.0, projected(units, rows, np.mean(pairs))), abs=1e-5)


def test_one_row_is_a_batch():
    units, row = made_units(), torch.randn(1, 3)
    assert batch_novelty(units, row) == pytest.approx(float(sample_novelty(units, row)), abs=1e-6)


def test_a_small_batch_of_what_the_bases_express_is_not_new_and_one_from_afar_is():
    bases = torch.randn(2, 400, 3) + torch.tensor([-2.0, 2.0]).reshape(2, 1, 1)
    units = GatedDomainUnits(3, 2, num_bases=2, basis_size=400, kernel=Gaussian(3.0))
    units.bases.data.copy_(bases)
    like = [batch_novelty(units, bases.flatten(0, 1)[torch.randperm(800)[:20]]) for _ in range(20)]
    assert np.mean(like) < 0.03
    assert batch_novelty(units, torch.randn(20, 3) + 20) > 0.5


def test_of_many_rows_some_give_the_length(monkeypatch):
    units, rows = made_units(), torch.randn(3_000, 3)
    whole = batch_novelty(units, rows)
    monkeypatch.setattr(novelty, "PAIRED_ROWS", 500)
    assert batch_novelty(units, rows) == pytest.approx(whole, abs=0.02)


def test_rows_of_another_width_are_refused():
    with pytest.raises(DataError, match="view: rows have 4 columns"):
        batch_novelty(made_units(), torch.zeros(5, 4))


def test_the_area_under_the_curve_is_that_of_scikit_learn_with_ties():
    rng = np.random.default_rng(0)
    for _ in range(20):
        novel, familiar = rng.integers(2, 9, 30), rng.integers(0, 8, 50)
        labels = np.repeat([1, 0], [30, 50])
        assert auroc(novel, familiar) == pytest.approx(roc_auc_score(labels, np.concatenate([novel, familiar])))
    assert auroc(np.array([2.0]), np.array([1.0])) == 1
    assert auroc(np.zeros(4), np.zeros(3)) == 0.5


def test_scores_that_are_not_there_have_no_area():
    with pytest.raises(DataError, match="familiar: expected some finite scores"):
        auroc(np.ones(3), np.array([]))
    with pytest.raises(DataError, match="novel: expected some finite scores"):
        auroc(np.array([np.nan]), np.ones(3))
