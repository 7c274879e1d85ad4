"""Sigma, clusters, starting bases and kappa from data, against numpy loops and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score, davies_bouldin_score

from gated_domains.layer.fitting import (
    INITIALISERS,
    choose_num_bases,
    davies_bouldin,
    kmeans,
    kmeans_bases,
    match_kappa,
    median_sigma,
    paper_bases,
    random_bases,
    subsample,
)

CORNERS = np.array([[0.0, 0, 0], [9, 0, 0], [0, 9, 0]])


def three_blobs(rows: int = 90, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, np.ndarray]:
    x, labels = make_blobs(rows, centers=CORNERS, cluster_std=0.5, random_state=0)
    return torch.tensor(x, dtype=dtype), labels


def digits(rows: int = 500) -> torch.Tensor:
    return torch.tensor(load_digits().data[:rows] / 16, dtype=torch.float32)


def slow_median_sigma(x: np.ndarray) -> float:
    squared = [((x[i] - x[j]) ** 2).sum() for i in range(len(x)) for j in range(len(x)) if i != j]
    return math.sqrt(np.median(squared))


def inertia(x: torch.Tensor, centres: torch.Tensor) -> float:
    far = x.double()[:, None] - centres.double()[None]
    return float(far.square().sum(-1).min(1).values.sum())


# -- sigma -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [2, 3, 4, 17, 30])
def test_median_sigma_is_that_of_a_double_loop_off_the_diagonal(rows):
    x = torch.randn(rows, 5, dtype=torch.float64)
    assert median_sigma(x) == pytest.approx(slow_median_sigma(x.numpy()), rel=1e-12)


def test_median_sigma_of_many_rows_looks_at_a_subsample_of_them():
    x = torch.randn(300, 5, dtype=torch.float64)
    expected = slow_median_sigma(subsample(x, 40, 7).numpy())
    assert median_sigma(x, max_rows=40, seed=7) == pytest.approx(expected, rel=1e-12)


def test_median_sigma_is_the_same_for_the_same_seed_and_moves_with_it():
    x = torch.randn(300, 5)
    assert median_sigma(x, max_rows=40, seed=1) == median_sigma(x, max_rows=40, seed=1)
    assert median_sigma(x, max_rows=40, seed=1) != median_sigma(x, max_rows=40, seed=2)


def test_median_sigma_does_not_change_when_all_rows_are_shifted_far_away():
    x = torch.randint(-8, 9, (50, 4)).float()  # whole numbers, which float32 shifts without rounding
    assert median_sigma(x + 1e4) == pytest.approx(median_sigma(x), rel=1e-5)


def test_median_sigma_of_identical_rows_is_refused_with_the_count_and_the_cure():
    with pytest.raises(ValueError, match=r"12 rows is 0.*set sigma yourself"):
        median_sigma(torch.ones(12, 3))


def test_median_sigma_of_one_row_is_refused():
    with pytest.raises(ValueError, match="got 1"):
        median_sigma(torch.ones(1, 3))


# -- clusters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "clusters"), [("blobs", 3), ("blobs", 5), ("digits", 5), ("digits", 10)])
def test_kmeans_is_as_tight_as_that_of_scikit_learn(data, clusters):
    x = three_blobs()[0] if data == "blobs" else digits(1797)
    theirs = KMeans(clusters, n_init=10, random_state=0).fit(x.numpy()).inertia_
    centres, _ = kmeans(x, clusters)
    assert inertia(x, centres) <= 1.02 * theirs


def test_kmeans_finds_separated_blobs_without_a_single_error():
    x, labels = three_blobs()
    assert adjusted_rand_score(labels, kmeans(x, 3)[1].numpy()) == 1


def test_kmeans_finds_the_same_blobs_far_from_the_origin():
    x, labels = three_blobs()
    assert adjusted_rand_score(labels, kmeans(x + 1e4, 3)[1].numpy()) == 1


def test_kmeans_gives_each_row_its_nearest_centre_and_each_centre_the_mean_of_its_rows():
    x = digits()
    centres, labels = kmeans(x, 6)
    assert torch.equal(torch.cdist(x, centres).argmin(1), labels)
    for j, centre in enumerate(centres):
        torch.testing.assert_close(x[labels == j].mean(0), centre)


def test_kmeans_is_the_same_for_the_same_seed():
    x = digits()
    assert torch.equal(kmeans(x, 4, seed=3)[0], kmeans(x, 4, seed=3)[0])


@pytest.mark.parametrize("distinct", [1, 2, 4])
def test_kmeans_leaves_no_cluster_empty_even_among_duplicates(distinct):
    x = torch.randn(distinct, 3).repeat(6, 1)
    _, labels = kmeans(x, 5)
    assert torch.bincount(labels, minlength=5).min() >= 1


def test_kmeans_of_as_many_clusters_as_rows_gives_each_row_its_own():
    x = torch.randn(7, 2)
    _, labels = kmeans(x, 7)
    assert sorted(labels.tolist()) == list(range(7))


def test_kmeans_refuses_more_clusters_than_rows():
    with pytest.raises(ValueError, match="at least 8 rows, got 7"):
        kmeans(torch.randn(7, 2), 8)


@pytest.mark.parametrize("clusters", [2, 3, 7])
def test_davies_bouldin_is_that_of_scikit_learn(clusters):
    x = digits().double()
    _, labels = kmeans(x, clusters)
    assert davies_bouldin(x, labels) == pytest.approx(davies_bouldin_score(x, labels), abs=1e-10)


def test_davies_bouldin_reads_any_labels_not_only_those_from_zero():
    x, labels = three_blobs(dtype=torch.float64)
    shifted = torch.tensor(labels) * 5 + 2
    assert davies_bouldin(x, shifted) == pytest.approx(davies_bouldin_score(x, labels), abs=1e-10)


def test_davies_bouldin_of_one_cluster_is_refused():
    with pytest.raises(ValueError, match="at least 2 clusters, got 1"):
        davies_bouldin(torch.randn(4, 2), torch.zeros(4, dtype=torch.long))


def test_the_number_of_blobs_is_found():
    x, _ = three_blobs()
    chosen, scores = choose_num_bases(x, range(2, 9))
    assert chosen == 3
    assert set(scores) == set(range(2, 9))
    assert scores[3] == min(scores.values())


def test_candidates_without_enough_rows_are_left_out():
    _, scores = choose_num_bases(torch.randn(5, 2), [1, 2, 3, 4, 5, 6])
    assert set(scores) == {2, 3, 4}


def test_no_usable_candidate_is_an_error_that_lists_them():
    with pytest.raises(ValueError, match=r"between 2 and 4.*got \[1, 9\]"):
        choose_num_bases(torch.randn(5, 2), [1, 9])


def test_a_candidate_whose_score_is_undefined_is_not_chosen():
    # Five clusters of three distinct points: two centres coincide, and their score is no number.
    three_points = torch.tensor([[0.0, 0], [4, 0], [0, 4]]).repeat(8, 1)
    assert choose_num_bases(three_points, [5, 3])[0] == 3


# -- starting bases --------------------------------------------------------------------------------------------------


def row_numbers(x: torch.Tensor, bases: torch.Tensor) -> torch.Tensor:
    """Which row of x each basis vector is; fails where it is none."""
    same = (bases[:, :, None] == x).all(-1)
    assert same.any(-1).all()
    return same.int().argmax(-1)


def test_kmeans_bases_are_rows_of_one_cluster_each():
    x, labels = three_blobs()
    bases = kmeans_bases(x, 3, 5, 0)
    assert bases.shape == (3, 5, 3)
    blobs = torch.tensor(labels)[row_numbers(x, bases)]
    assert (blobs == blobs[:, :1]).all()
    assert sorted(blobs[:, 0].tolist()) == [0, 1, 2]


def test_kmeans_bases_repeat_no_row_while_a_cluster_has_enough():
    x, _ = three_blobs()
    numbers = row_numbers(x, kmeans_bases(x, 3, 20, 0))
    assert all(len(set(own.tolist())) == 20 for own in numbers)


def test_kmeans_bases_larger_than_their_clusters_repeat_rows():
    x, labels = three_blobs(rows=6)
    blobs = torch.tensor(labels)[row_numbers(x, kmeans_bases(x, 3, 10, 0))]
    assert (blobs == blobs[:, :1]).all()


def test_random_bases_are_rows_of_the_data_without_repetition():
    x, _ = three_blobs()
    numbers = row_numbers(x, random_bases(x, 4, 20, 0))
    assert numbers.unique().numel() == 80


def test_paper_bases_have_the_mean_and_spread_of_the_paper():
    bases = paper_bases(torch.zeros(1, 400), 6, 100, 0).double()
    for j, basis in enumerate(bases):
        spread = 0.1 * (j + 1)
        assert basis.mean() == pytest.approx(0.5 * j * (-1) ** j, abs=5 * spread / 200)
        assert basis.std() == pytest.approx(spread, rel=0.02)


@pytest.mark.parametrize("name", INITIALISERS)
def test_an_initialiser_gives_the_same_bases_for_the_same_seed_only(name):
    x, _ = three_blobs(dtype=torch.float64)
    first, again, other = (INITIALISERS[name](x, 3, 4, seed) for seed in (0, 0, 1))
    assert first.shape == (3, 4, 3)
    assert first.dtype == x.dtype
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# -- kappa -----------------------------------------------------------------------------------------------------------


def mean_entropy(similarity: torch.Tensor, kappa: float) -> float:
    logits = kappa * similarity.double().numpy()
    beta = np.exp(logits - logits.max(-1, keepdims=True))
    beta /= beta.sum(-1, keepdims=True)
    return float(-(beta * np.log(np.maximum(beta, 1e-300))).sum(-1).mean())


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
def test_kappa_gives_gates_the_wanted_share_of_the_largest_entropy(share, spread):
    similarity = spread * torch.rand(200, 6)
    kappa = match_kappa(similarity, entropy=share)
    assert mean_entropy(similarity, kappa) / math.log(6) == pytest.approx(share, abs=1e-4)


def test_kappa_falls_as_more_entropy_is_wanted():
    similarity = torch.rand(100, 4)
    kappas = [match_kappa(similarity, entropy=share) for share in (0.05, 0.2, 0.5, 0.8, 0.95)]
    assert kappas == sorted(kappas, reverse=True)
    assert len(set(kappas)) == 5


def test_kappa_of_one_basis_is_one():
    assert match_kappa(torch.rand(10, 1)) == 1


def test_kappa_of_a_constant_similarity_is_the_upper_end_and_finite():
    kappa = match_kappa(torch.full((10, 4), 0.3), high=1e6)
    assert math.isfinite(kappa)
    assert kappa == pytest.approx(1e6, rel=1e-6)


def test_kappa_of_an_entropy_below_reach_is_the_lower_end():
    assert match_kappa(1e6 * torch.rand(10, 4), entropy=0.9, low=1e-3) == pytest.approx(1e-3, rel=1e-6)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_kappa_refuses_a_share_that_is_none(share):
    with pytest.raises(ValueError, match=f"got {share}"):
        match_kappa(torch.rand(10, 4), entropy=share)


# -- subsample -------------------------------------------------------------------------------------------------------


def test_a_subsample_is_the_same_rows_for_the_same_seed_whatever_they_hold():
    x, other = torch.randn(100, 3), torch.randn(100, 5).double()
    kept = row_numbers(x, subsample(x, 20, 4)[None])[0]
    assert kept.unique().numel() == 20
    assert torch.equal(subsample(other, 20, 4), other[kept])
    assert not torch.equal(subsample(x, 20, 5), subsample(x, 20, 4))


def test_few_rows_are_all_kept_in_their_order():
    x = torch.randn(20, 3)
    assert torch.equal(subsample(x, 20, 4), x)
