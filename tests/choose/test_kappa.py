"""Kappa from similarities: the wanted share of entropy, the one that the PyTorch layer finds, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gated_domains.choose import match_kappa
from gated_domains.layer import fitting


def similarities(rows: int = 200, bases: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((rows, bases))


def slow_mean_entropy(similarity: np.ndarray, kappa: float) -> float:
    total = 0.0
    for row in similarity:
        weights = [math.exp(kappa * (h - max(row))) for h in row]
        shares = [weight / sum(weights) for weight in weights]
        total -= sum(share * math.log(share) for share in shares if share > 0)
    return total / len(similarity)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
def test_gates_have_the_wanted_share_of_the_largest_entropy(share, spread):
    similarity = spread * similarities()
    kappa = match_kappa(similarity, entropy=share)
    assert slow_mean_entropy(similarity, kappa) / math.log(6) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [-50.0, 0.0])
def test_kappa_is_the_one_of_the_pytorch_layer(share, dtype, shift):
    similarity = (shift + 3 * similarities(bases=4)).astype(dtype)
    theirs = fitting.match_kappa(torch.from_numpy(similarity), entropy=share)
    assert match_kappa(similarity, entropy=share) == pytest.approx(theirs, rel=1e-10)


def test_the_defaults_are_those_of_the_pytorch_layer():
    similarity = similarities()
    assert match_kappa(similarity) == pytest.approx(fitting.match_kappa(torch.from_numpy(similarity)), rel=1e-10)
    constant = np.full((5, 3), 0.3)
    assert match_kappa(constant) == pytest.approx(fitting.match_kappa(torch.from_numpy(constant)), rel=1e-10)
    steep = 1e9 * similarity
    assert match_kappa(steep) == pytest.approx(fitting.match_kappa(torch.from_numpy(steep)), rel=1e-10)


def test_kappa_falls_as_more_entropy_is_wanted():
    kappas = [match_kappa(similarities(), entropy=share) for share in (0.05, 0.2, 0.5, 0.8, 0.95)]
    assert kappas == sorted(kappas, reverse=True)
    assert len(set(kappas)) == 5


def test_kappa_of_one_basis_is_one():
    assert match_kappa(similarities(bases=1)) == 1


def test_a_target_out_of_reach_gives_the_nearer_end():
    assert match_kappa(np.full((10, 4), 0.3), high=1e4) == pytest.approx(1e4, rel=1e-9)
    assert match_kappa(1e6 * similarities(), entropy=0.9, low=1e-2) == pytest.approx(1e-2, rel=1e-9)


def test_lists_are_similarities_too():
    assert match_kappa([[0.1, 0.9], [0.8, 0.3]]) == match_kappa(np.array([[0.1, 0.9], [0.8, 0.3]]))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 1.5, math.nan])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match=f"between 0 and 1, got {share}"):
        match_kappa(similarities(), entropy=share)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (2.0, 1.0), (1.0, math.inf), (math.nan, 1.0)])
def test_ends_that_bound_no_search_are_refused(low, high):
    with pytest.raises(ValueError, match=f"low={low} and high={high}"):
        match_kappa(similarities(), low=low, high=high)


@pytest.mark.parametrize("shape", [(6,), (0, 6), (5, 0), (2, 5, 6)])
def test_what_is_no_matrix_of_rows_and_bases_is_refused_with_its_shape(shape):
    with pytest.raises(ValueError, match=r"shape \(rows, bases\).*got shape \(" + ", ".join(map(str, shape))):
        match_kappa(np.ones(shape))


def test_similarities_that_are_no_numbers_are_refused_with_their_count():
    similarity = similarities()
    similarity[3, 1], similarity[7, 0] = math.nan, -math.inf
    with pytest.raises(ValueError, match="NaN or infinity in 2 of 200 rows"):
        match_kappa(similarity)
