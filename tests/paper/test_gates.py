"""The three gates, and the exact projection, against their formulas."""

from __future__ import annotations

import pytest
import torch

import oracles
from gated_domains.layer.gates import (
    GATES,
    CosineGate,
    MMDGate,
    ProjectionGate,
    exact_projection,
    inner_products,
    simplex,
)
from gated_domains.layer.kernels import Gaussian, Scaled
from oracles import assert_matches, rows


@pytest.fixture
def case():
    """Our products of a small case, and the loops' (with k(x, x) = 1.5, so that self_product is seen to matter)."""
    x, bases = torch.randn(5, 3).double(), torch.randn(4, 2, 3).double()
    kernel = oracles.scaled_kernel(oracles.radial_kernel("gaussian", 1.3), 1.5)
    own = oracles.self_product(kernel, rows(x))
    cross, gram = oracles.cross(kernel, rows(x), rows(bases)), oracles.gram(kernel, rows(bases))
    return inner_products(Scaled(Gaussian(1.3), 1.5), x, bases), own, cross, gram


@pytest.mark.parametrize("kappa", [0.1, 2.0, 37.0])
def test_cosine_gate_is_the_softmax_of_the_cosine(case, kappa):
    products, own, cross, gram = case
    assert_matches(CosineGate(kappa).similarity(products), oracles.cosine_similarity(own, cross, gram))
    assert_matches(CosineGate(kappa)(products), oracles.cosine_gate(own, cross, gram, kappa))


@pytest.mark.parametrize("kappa", [0.1, 2.0, 37.0])
def test_mmd_gate_is_the_softmax_of_minus_the_squared_distance(case, kappa):
    products, own, cross, gram = case
    assert_matches(MMDGate(kappa).similarity(products), oracles.mmd_similarity(own, cross, gram))
    assert_matches(MMDGate(kappa)(products), oracles.mmd_gate(own, cross, gram, kappa))


def test_projection_gate_divides_by_the_squared_norm(case):
    products, _, cross, gram = case
    assert_matches(ProjectionGate()(products), oracles.projection_gate(cross, gram))


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 0.5])
def test_exact_projection_solves_the_ridged_gram_matrix(case, ridge):
    products, _, cross, gram = case
    expected = oracles.exact_projection_gate(cross, gram, ridge)
    assert_matches(ProjectionGate(ridge)(products), expected)
    assert_matches(exact_projection(products, ridge), expected)


def test_a_ridge_of_zero_is_exact_and_none_is_the_paper(case):
    products = case[0]
    assert not torch.allclose(ProjectionGate(0.0)(products), ProjectionGate(None)(products))


def test_set_kappa_changes_the_sharpness_in_place(case):
    products, own, cross, gram = case
    gate = CosineGate(1.0)
    gate.set_kappa(9.0)
    assert_matches(gate(products), oracles.cosine_gate(own, cross, gram, 9.0))


def test_simplex_drops_what_is_negative_and_normalises():
    beta = torch.tensor([[0.5, -0.2, 1.5], [-1.0, 0.0, 2.0]], dtype=torch.float64)
    assert_matches(simplex(beta), [oracles.simplex(row) for row in rows(beta)])


def test_simplex_is_uniform_where_no_weight_is_positive():
    beta = torch.tensor([[-0.5, -0.2, 0.0, -1.0]], dtype=torch.float64)
    assert_matches(simplex(beta), [[0.25] * 4])


def test_the_registry_names_the_three_gates_of_the_paper():
    assert {"cosine": CosineGate, "mmd": MMDGate, "projection": ProjectionGate} == GATES
