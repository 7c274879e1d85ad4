"""What the paper claims of its layer, and what we claim of ours, as facts that can fail."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from scipy.optimize import minimize
from torch import nn

import oracles
from gated_domains.layer import CosineGate, GatedDomainUnits, MMDGate, ProjectionGate, penalties
from gated_domains.layer.experts import ProbabilisticRegression
from gated_domains.layer.gates import InnerProducts, exact_projection, inner_products, residual
from gated_domains.layer.kernels import KERNELS, Gaussian
from oracles import rows

SOFTMAX_GATES = [CosineGate, MMDGate]


def far_apart_bases(count=3, size=4, width=2):
    """Bases in clusters so far apart that their embeddings are orthogonal, <mu_j, mu_l> < 1e-100."""
    centres = 40.0 * torch.arange(count).double().reshape(-1, 1, 1)
    return centres + 0.5 * torch.randn(count, size, width).double()


def overlapping_bases(count=5, size=4, width=2):
    return 0.5 * torch.randn(count, size, width).double()


def numerical_minimum(objective, size):
    found = minimize(objective, [0.1] * size, method="BFGS", options={"gtol": 1e-10})
    return torch.tensor(found.x)


# -- projection --------------------------------------------------------------------------------------------------------


def test_the_papers_coefficient_minimises_the_sum_of_distances_to_each_basis():
    # Proposition: sum_j ||mu - beta_j mu_j||^2 is smallest at <mu, mu_j> / ||mu_j||^2.
    x, bases, kernel = torch.randn(1, 2).double(), overlapping_bases(3), oracles.radial_kernel("gaussian", 1.0)
    cross, gram = oracles.cross(kernel, rows(x), rows(bases))[0], oracles.gram(kernel, rows(bases))

    def objective(beta):
        return sum(1 - 2 * b * cross[j] + b**2 * gram[j][j] for j, b in enumerate(beta))

    beta = ProjectionGate()(inner_products(Gaussian(1.0), x, bases))[0]
    torch.testing.assert_close(beta, numerical_minimum(objective, 3), rtol=1e-6, atol=1e-6)


def test_the_papers_coefficient_minimises_the_distance_to_the_span_of_orthogonal_bases():
    # A batch whose mean embedding lies near the span: half of it from the first cluster, a quarter from each other.
    bases, kernel = far_apart_bases(), oracles.radial_kernel("gaussian", 1.0)
    batch = torch.cat([bases[0], bases[0], bases[1], bases[2]]) + 0.1 * torch.randn(16, 2).double()
    own = [oracles.weighted_self_product(kernel, rows(batch), [1.0] * 16)]
    cross = [oracles.weighted_cross(kernel, rows(batch), rows(bases), [1.0] * 16)]
    gram = oracles.gram(kernel, rows(bases))
    assert max(abs(gram[i][j]) for i in range(3) for j in range(3) if i != j) < 1e-100

    best = numerical_minimum(lambda beta: oracles.residual(own, cross, gram, [list(beta)])[0], 3)
    products = InnerProducts(*(torch.tensor(value, dtype=torch.float64) for value in (own, cross, gram)))
    torch.testing.assert_close(ProjectionGate()(products)[0], best, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(best, torch.tensor([0.5, 0.25, 0.25]).double(), rtol=0, atol=0.05)


def test_for_orthogonal_bases_the_papers_projection_is_exact():
    x, bases = far_apart_bases().flatten(0, 1), far_apart_bases()
    products = inner_products(Gaussian(1.0), x, bases)
    torch.testing.assert_close(ProjectionGate()(products), ProjectionGate(0.0)(products), rtol=1e-12, atol=1e-12)


def test_exact_projection_minimises_the_distance_to_the_span_of_any_bases():
    x, bases, kernel = torch.randn(1, 2).double(), torch.randn(3, 2, 2).double(), oracles.radial_kernel("matern52", 1.0)
    own, cross = oracles.self_product(kernel, rows(x)), oracles.cross(kernel, rows(x), rows(bases))
    gram = oracles.gram(kernel, rows(bases))
    best = numerical_minimum(lambda beta: oracles.residual(own, cross, gram, [list(beta)])[0], 3)
    beta = ProjectionGate(0.0)(inner_products(KERNELS["matern52"](1.0), x, bases))[0]
    torch.testing.assert_close(beta, best, rtol=1e-4, atol=1e-4)


def test_ridge_penalises_the_size_of_the_coefficients():
    x, bases, kernel = torch.randn(1, 2).double(), overlapping_bases(3), oracles.radial_kernel("gaussian", 1.0)
    own, cross = oracles.self_product(kernel, rows(x)), oracles.cross(kernel, rows(x), rows(bases))
    gram = oracles.gram(kernel, rows(bases))

    def objective(beta):
        return oracles.residual(own, cross, gram, [list(beta)])[0] + 0.1 * sum(b**2 for b in beta)

    beta = ProjectionGate(0.1)(inner_products(Gaussian(1.0), x, bases))[0]
    torch.testing.assert_close(beta, numerical_minimum(objective, 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_no_residual_is_below_that_of_the_exact_projection(name):
    x, bases = torch.randn(40, 3).double(), torch.randn(4, 3, 3).double()
    products = inner_products(KERNELS[name](1.5), x, bases)
    best = residual(products, exact_projection(products, 0.0))
    assert (best >= -1e-12).all()
    rivals = [ProjectionGate()(products), torch.zeros(40, 4).double(), CosineGate(5.0)(products), MMDGate()(products)]
    for beta in [*rivals, torch.randn(40, 4).double()]:
        assert (best <= residual(products, beta) + 1e-12).all()


def test_the_papers_projection_overshoots_when_bases_overlap():
    x, bases = 0.5 * torch.randn(20, 2).double(), overlapping_bases()
    products = inner_products(Gaussian(1.0), x, bases)
    beta = ProjectionGate()(products)
    assert beta.sum(-1).mean() > 3
    assert residual(products, beta).mean() > residual(products, torch.zeros_like(beta)).mean()


def test_exact_projection_recovers_the_shares_of_a_mixture():
    def first(count):
        return torch.randn(count, 2).double()

    def second(count):
        return torch.randn(count, 2).double() + torch.tensor([2.0, 0.0])

    head = GatedDomainUnits(
        2, 1, num_bases=2, basis_size=400, kernel=Gaussian(1.0), gate=ProjectionGate(0.0), shared=False
    ).double()
    with torch.no_grad():
        head.bases.copy_(torch.stack([first(400), second(400)]))
        beta = head.evaluate(torch.cat([first(300), second(700)]), gates="batch").beta
    torch.testing.assert_close(beta, torch.tensor([[0.3, 0.7]]).double(), rtol=0, atol=0.06)


# -- softmax gates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [0.01, 2.0, 1e4])
@pytest.mark.parametrize("gate", SOFTMAX_GATES)
def test_weights_of_softmax_gates_are_positive_and_sum_to_one(gate, kappa):
    beta = gate(kappa)(inner_products(Gaussian(1.0), torch.randn(30, 2).double(), overlapping_bases()))
    assert (beta >= 0).all()
    torch.testing.assert_close(beta.sum(-1), torch.ones(30).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("gate", SOFTMAX_GATES)
@pytest.mark.parametrize("name", KERNELS)
def test_nearer_basis_gets_the_larger_weight(name, gate):
    shape = torch.randn(1, 6, 2).double() * 0.3
    bases = torch.cat([shape - 2, shape + 2])  # the same cloud at two places
    x = torch.tensor([[-2.0, -2.0], [-0.5, -0.5], [0.5, 0.5], [2.0, 2.0]]).double() + shape.mean(1)
    beta = gate(2.0)(inner_products(KERNELS[name](1.5), x, bases))
    assert (beta[:2, 0] > beta[:2, 1]).all()
    assert (beta[2:, 1] > beta[2:, 0]).all()
    assert beta[0, 0] > beta[1, 0]


@pytest.mark.parametrize("gate", SOFTMAX_GATES)
def test_a_larger_kappa_makes_gates_sharper(gate):
    products = inner_products(Gaussian(1.0), torch.randn(30, 2).double(), torch.randn(4, 3, 2).double())
    entropies = [
        penalties.entropy(SimpleNamespace(beta=gate(kappa)(products), products=products))
        for kappa in (0.1, 1.0, 10.0, 100.0)
    ]
    assert entropies == sorted(entropies, reverse=True)


@pytest.mark.parametrize("gate", SOFTMAX_GATES)
def test_sparsity_of_softmax_gates_is_one_and_has_no_gradient(gate):
    x = torch.randn(6, 2).double().requires_grad_()
    bases = overlapping_bases().requires_grad_()
    products = inner_products(Gaussian(1.0), x, bases)
    value = penalties.sparsity(SimpleNamespace(beta=gate(2.0)(products), products=products))
    assert value.item() == pytest.approx(1, abs=1e-12)
    for gradient in torch.autograd.grad(value, [x, bases]):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-15)


def test_sparsity_of_projection_gates_does_have_a_gradient():
    bases = overlapping_bases().requires_grad_()
    products = inner_products(Gaussian(1.0), torch.randn(6, 2).double(), bases)
    value = penalties.sparsity(SimpleNamespace(beta=ProjectionGate()(products), products=products))
    assert torch.autograd.grad(value, bases)[0].abs().max() > 1e-3


# -- entropy -----------------------------------------------------------------------------------------------------------


def of_beta(beta):
    products = InnerProducts(torch.ones(len(beta)), torch.ones_like(beta), torch.eye(beta.shape[-1]).to(beta))
    return SimpleNamespace(beta=beta, products=products)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entropy_is_zero_for_one_basis_a_sample_and_log_m_for_all_alike(dtype):
    assert penalties.entropy(of_beta(torch.eye(5, dtype=dtype))).item() == pytest.approx(0, abs=1e-12)
    uniform = torch.full((3, 5), 0.2, dtype=dtype)
    assert penalties.entropy(of_beta(uniform)).item() == pytest.approx(math.log(5), rel=1e-6)


def test_entropy_has_a_gradient_where_sparsity_has_none():
    bases = torch.randn(4, 3, 2).double().requires_grad_()
    products = inner_products(Gaussian(1.0), torch.randn(6, 2).double(), bases)
    value = penalties.entropy(SimpleNamespace(beta=CosineGate(5.0)(products), products=products))
    assert torch.autograd.grad(value, bases)[0].abs().max() > 1e-3


def test_entropy_of_one_hot_gates_has_a_finite_gradient():
    beta = torch.eye(3, requires_grad=True)
    penalties.entropy(of_beta(beta)).backward()
    assert torch.isfinite(beta.grad).all()


# -- moment matching ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("gate", [CosineGate(), MMDGate(), ProjectionGate(), ProjectionGate(0.0)], ids=repr)
def test_probabilistic_variance_is_never_negative(gate, shared):
    head = GatedDomainUnits(
        2, 3, num_bases=5, basis_size=3, kernel=Gaussian(1.0), gate=gate, task=ProbabilisticRegression(), shared=shared
    )
    for parameter in head.parameters():
        nn.init.normal_(parameter, std=3.0)
    out = head.evaluate(torch.randn(200, 2) * 3)
    assert out.beta.min() < 0 or not isinstance(gate, ProjectionGate) or gate.ridge is None
    assert (out.variance > 0).all()


def test_projection_weights_off_the_simplex_would_have_made_the_variance_negative():
    # Why the simplex: two experts that agree on 1 with weights that sum to two.
    _, variance = oracles.moment_match([1.0, 1.0], [[1.0], [1.0]], [[0.1], [0.1]])
    assert variance[0] < 0
    _, variance = oracles.moment_match(oracles.simplex([1.0, 1.0]), [[1.0], [1.0]], [[0.1], [0.1]])
    assert variance[0] > 0


# -- orthogonality -----------------------------------------------------------------------------------------------------


def with_bases(bases):
    products = inner_products(Gaussian(1.0), torch.zeros(1, bases.shape[-1]).to(bases), bases)
    return SimpleNamespace(beta=torch.ones(1, len(bases)).to(bases), products=products)


@pytest.mark.parametrize("penalty", [penalties.soft_orthogonality, penalties.srip])
def test_the_identity_as_target_rewards_bases_that_collapse_and_the_diagonal_does_not(penalty):
    bases = far_apart_bases()
    centres = bases.mean(1, keepdim=True)

    def at_spread(spread, target):
        return penalty(with_bases(centres + spread * (bases - centres)), target).item()

    towards_identity = [at_spread(spread, "identity") for spread in (1.0, 0.5, 0.1, 0.0)]
    assert towards_identity == sorted(towards_identity, reverse=True)
    assert towards_identity[0] > 0.01
    assert towards_identity[-1] == pytest.approx(0, abs=1e-12)
    assert [at_spread(spread, "diagonal") for spread in (1.0, 0.5, 0.1, 0.0)] == pytest.approx([0.0] * 4, abs=1e-12)


@pytest.mark.parametrize("penalty", [penalties.soft_orthogonality, penalties.srip])
def test_only_the_identity_as_target_pulls_the_vectors_of_a_basis_together(penalty):
    bases = far_apart_bases().requires_grad_()
    outward = (bases - bases.mean(1, keepdim=True)).detach()
    (identity,) = torch.autograd.grad(penalty(with_bases(bases), "identity"), bases)
    (diagonal,) = torch.autograd.grad(penalty(with_bases(bases), "diagonal"), bases)
    assert (identity * outward).sum() > 0.01
    torch.testing.assert_close(diagonal, torch.zeros_like(diagonal), rtol=0, atol=1e-12)


@pytest.mark.parametrize("penalty", [penalties.soft_orthogonality, penalties.srip, penalties.mutual_coherence])
def test_orthogonality_by_default_pushes_overlapping_bases_apart(penalty):
    bases = torch.randn(3, 4, 2).double().requires_grad_()
    optimizer = torch.optim.Adam([bases], lr=0.1)
    before = penalty(with_bases(bases)).item()
    for _ in range(30):
        optimizer.zero_grad()
        penalty(with_bases(bases)).backward()
        optimizer.step()
    assert penalty(with_bases(bases)).item() < 0.5 * before
