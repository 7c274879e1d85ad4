"""Each penalty against its formula."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch

import oracles
from gated_domains.layer import CosineGate, GatedDomainUnits, MMDGate, ProjectionGate, penalties
from gated_domains.layer.gates import InnerProducts, inner_products
from gated_domains.layer.kernels import Gaussian
from oracles import assert_matches, rows

TARGETS = ["identity", "diagonal"]


@pytest.fixture(params=[CosineGate(3.0), MMDGate(3.0), ProjectionGate(), ProjectionGate(0.1)], ids=repr)
def case(request):
    """What a penalty reads, and the loops' products for the same."""
    x, bases = torch.randn(5, 3).double(), torch.randn(4, 2, 3).double()
    kernel = oracles.radial_kernel("gaussian", 1.3)
    own, cross = oracles.self_product(kernel, rows(x)), oracles.cross(kernel, rows(x), rows(bases))
    products = inner_products(Gaussian(1.3), x, bases)
    out = SimpleNamespace(beta=request.param(products), products=products)
    return out, (own, cross, oracles.gram(kernel, rows(bases)), rows(out.beta))


def of_gram(gram, beta=None):
    """What a penalty reads, for a Gram matrix made by hand."""
    size = len(gram)
    beta = torch.full((1, size), 1 / size, dtype=gram.dtype) if beta is None else beta
    products = InnerProducts(torch.ones(len(beta), dtype=gram.dtype), torch.ones_like(beta), gram)
    return SimpleNamespace(beta=beta, products=products)


def test_reconstruction_is_the_mean_squared_distance_to_the_combination(case):
    out, loop = case
    assert_matches(penalties.reconstruction(out), oracles.reconstruction(*loop))


def test_sparsity_is_the_mean_l1_norm_of_beta(case):
    out, (_, _, _, beta) = case
    assert_matches(penalties.sparsity(out), oracles.sparsity(beta))


def test_sparsity_counts_negative_weights_by_their_size():
    beta = torch.tensor([[0.5, -2.0], [0.0, 1.0]], dtype=torch.float64)
    assert_matches(penalties.sparsity(of_gram(torch.eye(2).double(), beta)), (2.5 + 1.0) / 2)


def test_entropy_is_the_mean_entropy_of_beta_on_the_simplex(case):
    out, (_, _, _, beta) = case
    assert_matches(penalties.entropy(out), oracles.entropy(beta))


@pytest.mark.parametrize("target", TARGETS)
def test_soft_orthogonality_is_the_squared_frobenius_norm(case, target):
    out, (_, _, gram, _) = case
    assert_matches(penalties.soft_orthogonality(out, target), oracles.soft_orthogonality(gram, target))


@pytest.mark.parametrize("target", TARGETS)
def test_srip_is_the_largest_singular_value(case, target):
    out, (_, _, gram, _) = case
    assert_matches(penalties.srip(out, target), oracles.srip(gram, target))


def test_mutual_coherence_is_the_largest_cosine_between_two_bases(case):
    out, (_, _, gram, _) = case
    assert_matches(penalties.mutual_coherence(out), oracles.mutual_coherence(gram))


def test_mutual_coherence_counts_opposite_bases_as_coherent():
    gram = torch.tensor([[4.0, -1.8, 0.1], [-1.8, 1.0, 0.2], [0.1, 0.2, 9.0]], dtype=torch.float64)
    assert_matches(penalties.mutual_coherence(of_gram(gram)), 0.9)


def test_distributional_variance_is_how_far_the_bases_lie_apart(case):
    out, (_, _, gram, _) = case
    assert_matches(penalties.distributional_variance(out), oracles.distributional_variance(gram))


def test_distributional_variance_is_the_mean_squared_distance_to_the_mean_basis():
    bases = torch.randn(4, 2, 3).double()
    products = inner_products(lambda a, b: a @ b.mT, torch.randn(1, 3).double(), bases)
    means = bases.mean(1)
    expected = (means - means.mean(0)).square().sum(-1).mean()
    out = SimpleNamespace(beta=torch.ones(1, 4), products=products)
    torch.testing.assert_close(penalties.distributional_variance(out), expected)


@pytest.mark.parametrize(
    "penalty",
    [
        penalties.mutual_coherence,
        penalties.soft_orthogonality,
        penalties.srip,
        penalties.distributional_variance,
    ],
)
def test_one_basis_alone_is_orthogonal(penalty):
    gram = torch.tensor([[0.4]], dtype=torch.float64, requires_grad=True)
    value = penalty(of_gram(gram))
    value.backward()
    assert value.item() == 0
    assert gram.grad.item() == 0


def symmetric(eigenvalues, seed=0):
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(len(eigenvalues), len(eigenvalues), generator=generator).double())
    return basis @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ basis.mT


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize(
    "eigenvalues",
    [
        [3.0, 1.0, 0.5],
        [-3.0, 2.9, 0.0],  # the largest singular value belongs to a negative eigenvalue
        [1.0, 1.0, 1.0],  # all alike
        [1.0, -1.0, 0.3],  # two that cancel
        [1.0, 0.999999, -0.9999999, 0.2],  # as good as alike
        [0.0, 0.0, 0.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_power_iteration_finds_the_largest_singular_value(eigenvalues, scale, dtype):
    matrix = (symmetric(eigenvalues) * scale).to(dtype)
    expected = torch.linalg.svdvals(matrix.double())[0]
    torch.testing.assert_close(penalties.spectral_norm(matrix).double(), expected, rtol=2e-5, atol=1e-30)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(5))
def test_srip_and_its_gradient_are_those_of_the_spectral_norm(seed, target):
    generator = torch.Generator().manual_seed(seed)
    bases = torch.randn(4, 3, 2, generator=generator).double().requires_grad_()
    x = torch.randn(1, 2).double()

    products = inner_products(Gaussian(1.3), x, bases)
    ours = penalties.srip(SimpleNamespace(beta=torch.ones(1, 4), products=products), target)
    (our_gradient,) = torch.autograd.grad(ours, bases)

    gram = inner_products(Gaussian(1.3), x, bases).gram
    overlap = gram - (torch.eye(4).double() if target == "identity" else torch.diag(gram.diagonal()))
    svd = torch.linalg.matrix_norm(overlap, ord=2)
    (svd_gradient,) = torch.autograd.grad(svd, bases)

    torch.testing.assert_close(ours, svd, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(our_gradient, svd_gradient, rtol=1e-8, atol=1e-8)


def test_the_loss_adds_each_penalty_times_its_lambda():
    head = GatedDomainUnits(
        3,
        2,
        num_bases=4,
        basis_size=2,
        kernel=Gaussian(1.3),
        shared=False,
        lambda_ols=0.5,
        lambda_l1=0.25,
        lambda_entropy=2.0,
        lambda_orth=8.0,
        orthogonality=partial(penalties.soft_orthogonality, target="identity"),
    ).double()
    x = torch.randn(5, 3).double()
    kernel = oracles.radial_kernel("gaussian", 1.3)
    own, cross = oracles.self_product(kernel, rows(x)), oracles.cross(kernel, rows(x), rows(head.bases))
    gram = oracles.gram(kernel, rows(head.bases))
    beta = oracles.cosine_gate(own, cross, gram, 2.0)
    values = {
        "reconstruction": oracles.reconstruction(own, cross, gram, beta),
        "sparsity": oracles.sparsity(beta),
        "entropy": oracles.entropy(beta),
        "orthogonality": oracles.soft_orthogonality(gram, "identity"),
    }
    out = head.evaluate(x)
    found = head.penalty_terms(out)
    assert set(found) == set(values)
    for name, value in values.items():
        assert_matches(found[name], value)
    weights = {"reconstruction": 0.5, "sparsity": 0.25, "entropy": 2.0, "orthogonality": 8.0}
    assert_matches(head.penalty(out), sum(weights[name] * values[name] for name in values))


def test_a_penalty_with_lambda_zero_is_left_out():
    head = GatedDomainUnits(3, 2, lambda_ols=0.0, lambda_dev=0.0)
    out = head.evaluate(torch.randn(5, 3))
    assert head.penalty_terms(out) == {}
    assert head.penalty(out).item() == 0
