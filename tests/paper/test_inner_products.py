"""self_product, cross and gram against their formulas."""

from __future__ import annotations

import pytest
import torch

import oracles
from gated_domains.layer.gates import inner_products, pooled, residual
from gated_domains.layer.kernels import KERNELS, Scaled
from oracles import assert_matches, rows

NAMES = list(oracles.RADIAL)


@pytest.fixture
def x():
    return torch.randn(5, 3).double()


@pytest.fixture
def bases():
    return torch.randn(4, 2, 3).double()


@pytest.mark.parametrize("name", NAMES)
def test_self_product_is_the_kernel_of_a_sample_with_itself(name, x, bases):
    kernel = oracles.scaled_kernel(oracles.radial_kernel(name, 1.3), 2.0)
    products = inner_products(Scaled(KERNELS[name](1.3), 2.0), x, bases)
    assert_matches(products.self_product, oracles.self_product(kernel, rows(x)))


@pytest.mark.parametrize("name", NAMES)
def test_cross_is_the_mean_kernel_with_the_vectors_of_a_basis(name, x, bases):
    products = inner_products(KERNELS[name](1.3), x, bases)
    assert_matches(products.cross, oracles.cross(oracles.radial_kernel(name, 1.3), rows(x), rows(bases)))


@pytest.mark.parametrize("name", NAMES)
def test_gram_is_the_mean_kernel_over_pairs_of_vectors_of_two_bases(name, x, bases):
    products = inner_products(KERNELS[name](1.3), x, bases)
    assert_matches(products.gram, oracles.gram(oracles.radial_kernel(name, 1.3), rows(bases)))


def test_products_of_a_kernel_that_is_a_plain_function(x, bases):
    def kernel(a, b):
        return sum(p * q for p, q in zip(a, b, strict=True))

    products = inner_products(lambda a, b: a @ b.mT, x, bases)
    assert_matches(products.self_product, oracles.self_product(kernel, rows(x)))
    assert_matches(products.cross, oracles.cross(kernel, rows(x), rows(bases)))
    assert_matches(products.gram, oracles.gram(kernel, rows(bases)))


def test_norms_are_the_diagonal_of_the_gram_matrix(x, bases):
    kernel = oracles.radial_kernel("gaussian", 0.8)
    gram = oracles.gram(kernel, rows(bases))
    assert_matches(inner_products(KERNELS["gaussian"](0.8), x, bases).norms, [gram[j][j] for j in range(4)])


def test_a_basis_is_the_mean_of_its_vectors_in_the_embedding():
    # With the linear kernel phi is the identity: mu_j is the mean vector and everything can be done by hand.
    x, bases = torch.randn(5, 3).double(), torch.randn(4, 2, 3).double()
    means, products = bases.mean(1), inner_products(lambda a, b: a @ b.mT, x, bases)
    torch.testing.assert_close(products.cross, x @ means.mT)
    torch.testing.assert_close(products.gram, means @ means.mT)


@pytest.mark.parametrize("frozen", ["x", "bases", "both", "none"])
def test_products_are_the_same_whatever_needs_a_gradient(frozen, x, bases):
    kernel = oracles.radial_kernel("gaussian", 1.3)
    x.requires_grad_(frozen not in ("x", "both"))
    bases.requires_grad_(frozen not in ("bases", "both"))
    products = inner_products(KERNELS["gaussian"](1.3), x, bases)
    assert_matches(products.cross, oracles.cross(kernel, rows(x), rows(bases)))
    assert_matches(products.gram, oracles.gram(kernel, rows(bases)))


@pytest.mark.parametrize("weights", [None, [0.1, 0.2, 0.3, 0.4, 1.0]])
def test_pooled_products_are_those_of_the_weighted_mean_embedding(weights, x, bases):
    kernel = oracles.radial_kernel("laplacian", 1.1)
    ours = KERNELS["laplacian"](1.1)
    given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    products = pooled(inner_products(ours, x, bases), ours, x, given)
    counted = [1.0] * 5 if weights is None else weights
    assert_matches(products.self_product, [oracles.weighted_self_product(kernel, rows(x), counted)])
    assert_matches(products.cross, [oracles.weighted_cross(kernel, rows(x), rows(bases), counted)])


def test_residual_is_the_squared_distance_to_the_combination_of_bases(x, bases):
    kernel = oracles.radial_kernel("gaussian", 1.3)
    own, cross = oracles.self_product(kernel, rows(x)), oracles.cross(kernel, rows(x), rows(bases))
    gram = oracles.gram(kernel, rows(bases))
    beta = torch.randn(5, 4).double()
    products = inner_products(KERNELS["gaussian"](1.3), x, bases)
    assert_matches(residual(products, beta), oracles.residual(own, cross, gram, rows(beta)))
