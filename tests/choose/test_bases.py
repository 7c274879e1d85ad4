"""Bases to start from: rows of one cluster each, rows of the data, or draws of the paper's law."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from sklearn.datasets import make_blobs

from gated_domains.choose import INITIALISERS, kmeans_bases, paper_bases, paper_normal, random_bases
from gated_domains.layer import fitting

CORNERS = np.array([[0.0, 0, 0], [9, 0, 0], [0, 9, 0]])


def three_blobs(rows: int = 90, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(rows, centers=CORNERS + shift, cluster_std=0.5, random_state=0)


def row_numbers(x: np.ndarray, bases: np.ndarray) -> np.ndarray:
    """Which row of x each basis vector is; fails where it is none."""
    same = (bases[:, :, None] == x).all(-1)
    assert same.any(-1).all()
    return same.argmax(-1)


def in_pytorch(x: np.ndarray, num_bases: int, basis_size: int, seed: int) -> np.ndarray:
    return fitting.kmeans_bases(torch.from_numpy(x), num_bases, basis_size, seed).numpy()


# -- from clusters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 1e9])
def test_kmeans_bases_are_rows_of_one_cluster_each_wherever_the_data_lie(shift):
    x, labels = three_blobs(shift=shift)
    bases = kmeans_bases(x, 3, 5, 0)
    assert bases.shape == (3, 5, 3)
    blobs = labels[row_numbers(x, bases)]
    assert (blobs == blobs[:, :1]).all()
    assert sorted(blobs[:, 0]) == [0, 1, 2]


def test_kmeans_bases_repeat_no_row_while_a_cluster_has_enough():
    x, _ = three_blobs()
    assert all(len(set(own)) == 30 for own in row_numbers(x, kmeans_bases(x, 3, 30, 0)))


def test_kmeans_bases_larger_than_their_clusters_repeat_rows_of_them():
    x, labels = three_blobs(rows=6)
    blobs = labels[row_numbers(x, kmeans_bases(x, 3, 10, 0))]
    assert (blobs == blobs[:, :1]).all()
    assert sorted(blobs[:, 0]) == [0, 1, 2]


def test_members_are_drawn_at_random_and_not_the_first_ones():
    x, labels = three_blobs()
    numbers = row_numbers(x, kmeans_bases(x, 3, 10, 0))
    firsts = [np.flatnonzero(labels == labels[own[0]])[:10] for own in numbers]
    assert not any(set(own) == set(first) for own, first in zip(numbers, firsts, strict=True))


def test_many_rows_are_clustered_on_a_subsample_of_them(monkeypatch):
    x, labels = three_blobs(rows=600)
    monkeypatch.setattr("gated_domains.choose.bases._CLUSTER_ROWS", 60)
    numbers = row_numbers(x, kmeans_bases(x, 3, 1_000, 0))
    assert len(np.unique(numbers)) <= 60
    assert max(np.unique(numbers)) > 60
    assert all(len(set(labels[own])) == 1 for own in numbers)


def test_as_many_bases_as_rows_give_each_row_its_own():
    x = np.random.default_rng(0).normal(size=(7, 2))
    assert sorted(row_numbers(x, kmeans_bases(x, 7, 1, 0))[:, 0]) == list(range(7))


@pytest.mark.parametrize("distinct", [1, 2, 4])
@pytest.mark.parametrize("make", [kmeans_bases, in_pytorch])
def test_among_duplicates_every_basis_still_holds_rows_and_every_distinct_row_a_basis(distinct, make):
    x = np.repeat(np.random.default_rng(0).normal(size=(distinct, 3)), 6, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bases = make(x, 5, 2, 0)
    numbers = row_numbers(x, bases)
    assert (x[numbers[:, 0]] == x[numbers[:, 1]]).all()
    assert len(np.unique(x[numbers[:, 0]], axis=0)) == distinct


# -- from all rows ---------------------------------------------------------------------------------------------------


def test_random_bases_are_rows_of_the_data_without_repetition():
    x, _ = three_blobs()
    bases = random_bases(x, 4, 20, 0)
    assert bases.shape == (4, 20, 3)
    assert len(np.unique(row_numbers(x, bases))) == 80


def test_random_bases_of_more_vectors_than_rows_repeat_some():
    x, _ = three_blobs(rows=6)
    assert row_numbers(x, random_bases(x, 4, 5, 0)).shape == (4, 5)


# -- as in the paper -------------------------------------------------------------------------------------------------


def test_the_papers_bases_follow_the_papers_law():
    for j, basis in enumerate(paper_normal(6, 100, 100, 0)):
        law = kstest(basis.ravel(), "norm", args=(0.5 * j * (-1) ** j, 0.1 * (j + 1)))
        assert law.pvalue > 1e-3


def test_the_papers_bases_have_the_means_and_deviations_of_the_pytorch_ones():
    ours = paper_normal(6, 100, 400, 0)
    theirs = fitting.paper_normal(6, 100, 400).double().numpy()
    for j, (own, other) in enumerate(zip(ours, theirs, strict=True)):
        spread = 0.1 * (j + 1)
        assert own.mean() == pytest.approx(other.mean(), abs=7 * spread / 200)
        assert own.std() == pytest.approx(other.std(), rel=0.03)


def test_the_papers_initialiser_follows_the_seed_and_not_the_data():
    x = np.random.default_rng(0).normal(size=(20, 30))
    np.testing.assert_array_equal(paper_bases(x, 5, 4, 7), paper_bases(x + 100, 5, 4, 7))
    np.testing.assert_array_equal(paper_bases(x, 5, 4, 7), paper_normal(5, 4, 30, 7))


# -- all of them -----------------------------------------------------------------------------------------------------


def test_there_is_an_initialiser_here_for_each_of_the_pytorch_layer():
    assert set(INITIALISERS) == set(fitting.INITIALISERS)
    for name, initialise in INITIALISERS.items():
        assert initialise.__name__ == fitting.INITIALISERS[name].__name__


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", INITIALISERS)
def test_an_initialiser_gives_the_same_bases_for_the_same_seed_only_as_precise_as_the_features(name, dtype):
    x = three_blobs()[0].astype(dtype)
    first, again, other = (INITIALISERS[name](x, 3, 4, seed) for seed in (0, 0, 1))
    assert first.shape == (3, 4, 3)
    assert first.dtype == dtype
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("name", INITIALISERS)
def test_features_are_left_as_they_were(name):
    x, _ = three_blobs()
    before = x.copy()
    INITIALISERS[name](x, 3, 4, 0)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("name", ["kmeans", "random"])
def test_fewer_rows_than_bases_are_refused(name):
    with pytest.raises(ValueError, match="at least 5 rows of features are needed, got 3"):
        INITIALISERS[name](np.ones((3, 2)), 5, 4, 0)


@pytest.mark.parametrize("name", INITIALISERS)
def test_rows_that_are_no_numbers_are_refused_with_their_count(name):
    x, _ = three_blobs()
    x[4, 1] = math.nan
    with pytest.raises(ValueError, match="NaN or infinity in 1 of 90 rows"):
        INITIALISERS[name](x, 3, 4, 0)


@pytest.mark.parametrize("name", INITIALISERS)
@pytest.mark.parametrize(("counts", "refused"), [((0, 4), "num_bases"), ((3, 0), "basis_size")])
def test_no_bases_and_bases_of_nothing_are_refused(name, counts, refused):
    with pytest.raises(ValueError, match=f"{refused} must be a whole number of at least 1, got 0"):
        INITIALISERS[name](three_blobs()[0], *counts, 0)


@pytest.mark.parametrize("name", INITIALISERS)
def test_a_negative_seed_is_refused(name):
    with pytest.raises(ValueError, match="seed must not be negative, got -1"):
        INITIALISERS[name](three_blobs()[0], 3, 4, -1)
