"""First and second derivatives against finite differences, and by hand where two rows are the same."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from gated_domains.layer import (
    CosineGate,
    GatedDomainUnits,
    LinearExperts,
    MLPExperts,
    MMDGate,
    ProjectionGate,
    StackedExperts,
    penalties,
)
from gated_domains.layer.experts import ProbabilisticRegression
from gated_domains.layer.gates import inner_products, pooled
from gated_domains.layer.kernels import KERNELS, Average, Gaussian, Laplacian, Matern52, Scaled

GATES = [CosineGate(3.0), MMDGate(3.0), ProjectionGate(), ProjectionGate(0.0), ProjectionGate(0.1)]
ALL_KERNELS = [
    *(kind(1.3) for kind in KERNELS.values()),
    Average([Gaussian(0.7), Matern52(2.0)]),
    Scaled(Gaussian(1.3), 2.0),
]
SMOOTH_KERNELS = [kernel for kernel in ALL_KERNELS if not isinstance(kernel, Laplacian)]
PENALTIES = {
    "reconstruction": penalties.reconstruction,
    "entropy": penalties.entropy,
    "soft_diagonal": penalties.soft_orthogonality,
    "soft_identity": partial(penalties.soft_orthogonality, target="identity"),
    "distributional_variance": penalties.distributional_variance,
    "srip_diagonal": penalties.srip,
    "srip_identity": partial(penalties.srip, target="identity"),
    "mutual_coherence": penalties.mutual_coherence,
    "sparsity": penalties.sparsity,
}
TWICE = ["reconstruction", "entropy", "soft_diagonal", "soft_identity", "distributional_variance"]


@pytest.fixture
def x():
    return torch.randn(3, 2).double().requires_grad_()


@pytest.fixture
def bases():
    return torch.randn(3, 2, 2).double().requires_grad_()


# -- kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
def test_first_derivatives_of_kernels(kernel, x):
    assert gradcheck(kernel, (x, torch.randn(2, 2).double().requires_grad_()))


@pytest.mark.parametrize("kernel", SMOOTH_KERNELS, ids=repr)
def test_second_derivatives_of_kernels(kernel, x):
    assert gradgradcheck(kernel, (x, torch.randn(2, 2).double().requires_grad_()))


@pytest.mark.parametrize("kernel", SMOOTH_KERNELS, ids=repr)
def test_first_derivatives_of_kernels_where_rows_are_the_same(kernel):
    x = torch.randn(2, 2).double()
    z = torch.cat([x[:1], torch.randn(1, 2).double()]).requires_grad_()
    assert gradcheck(kernel, (x.requires_grad_(), z))


@pytest.mark.parametrize("kernel", SMOOTH_KERNELS, ids=repr)
def test_first_derivatives_of_the_kernel_of_a_set_with_itself(kernel, x):
    # Both arguments move together: the diagonal stays 1 and the rest gets two shares.
    assert gradcheck(lambda rows: kernel(rows, rows), (x,))


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_identical_rows_have_value_one_and_gradient_zero(name, others):
    point = torch.randn(1, 3).double()
    x = point.clone().requires_grad_()
    z = torch.cat([point, torch.randn(others, 3).double()]).requires_grad_()
    value = KERNELS[name](1.3)(x, z)[0, 0]
    assert value.item() == 1
    for gradient in torch.autograd.grad(value, [x, z]):
        assert torch.isfinite(gradient).all()
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-14)


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize(
    ("name", "curvature"),
    [
        ("gaussian", 1.0),
        ("rational_quadratic", 1.0),
        ("inverse_multiquadric", 1.0),
        ("matern32", 3.0),
        ("matern52", 5 / 3),
    ],
)
def test_hessian_where_rows_are_the_same_is_the_analytic_one(name, curvature, others):
    sigma, point = 1.7, torch.randn(3).double()
    z = torch.cat([point[None], torch.randn(others, 3).double()])
    kernel = KERNELS[name](sigma)
    hessian = torch.autograd.functional.hessian(lambda x: kernel(x[None], z)[0, 0], point)
    torch.testing.assert_close(hessian, -curvature / sigma**2 * torch.eye(3).double(), rtol=1e-10, atol=1e-10)


def test_laplacian_has_second_derivatives_that_are_finite_where_rows_are_the_same():
    point = torch.randn(3).double()
    hessian = torch.autograd.functional.hessian(lambda x: Laplacian(1.7)(x[None], point[None])[0, 0], point)
    assert torch.isfinite(hessian).all()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_stay_finite_when_rows_are_almost_the_same(name, dtype):
    x = torch.randn(4, 3, dtype=dtype)
    z = torch.cat([x * (1 + 4 * torch.finfo(dtype).eps), x + 1e-6, x + 1e-3]).requires_grad_()
    x = x.clone().requires_grad_()
    for gradient in torch.autograd.grad(KERNELS[name](1.0)(x, z).sum(), [x, z]):
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() < 100


# -- gates and inner products ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", GATES, ids=repr)
def test_first_and_second_derivatives_of_gates(gate, x, bases):
    def beta(x, bases):
        return gate(inner_products(Gaussian(1.3), x, bases))

    assert gradcheck(beta, (x, bases))
    assert gradgradcheck(beta, (x[:2], bases[:2]))


@pytest.mark.parametrize("gate", GATES, ids=repr)
def test_derivatives_of_batch_gates(gate, x, bases):
    def beta(x, bases):
        products = inner_products(Gaussian(1.3), x, bases)
        return gate(pooled(products, Gaussian(1.3), x))

    assert gradcheck(beta, (x, bases))


@pytest.mark.parametrize("name", KERNELS)
def test_derivatives_of_inner_products(name, x, bases):
    def flat(x, bases):
        products = inner_products(KERNELS[name](1.3), x, bases)
        return products.cross, products.gram

    assert gradcheck(flat, (x, bases))


# -- penalties ---------------------------------------------------------------------------------------------------------


def penalised(penalty, gate, x, bases):
    products = inner_products(Gaussian(1.3), x, bases)
    return penalty(SimpleNamespace(beta=gate(products), products=products))


@pytest.mark.parametrize("gate", [CosineGate(3.0), ProjectionGate(0.1)], ids=repr)
@pytest.mark.parametrize("name", PENALTIES)
def test_first_derivatives_of_penalties(name, gate, x, bases):
    assert gradcheck(partial(penalised, PENALTIES[name], gate), (x, bases))


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives_of_penalties(name, x, bases):
    assert gradgradcheck(partial(penalised, PENALTIES[name], CosineGate(3.0)), (x[:2], bases[:, :1]))


# -- experts and the whole layer ---------------------------------------------------------------------------------------

EXPERTS = {
    "linear": LinearExperts,
    "linear_tanh_no_bias": partial(LinearExperts, activation=torch.tanh, bias=False),
    "mlp": partial(MLPExperts, hidden=3, activation=torch.tanh),
    "stacked": partial(StackedExperts, factory=lambda i, o: nn.Sequential(nn.Linear(i, 3), nn.Tanh(), nn.Linear(3, o))),
}


@pytest.mark.parametrize("kind", EXPERTS)
def test_first_derivatives_of_experts_by_features_and_parameters(kind, x):
    experts = EXPERTS[kind](2, 2, 2).double()
    names = [name for name, _ in experts.named_parameters()]
    values = tuple(value.detach().clone().requires_grad_() for value in experts.parameters())

    def outputs(x, *values):
        return functional_call(experts, dict(zip(names, values, strict=True)), (x,))

    assert gradcheck(outputs, (x, *values))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", EXPERTS)
def test_first_derivatives_of_the_prediction_by_features_and_bases(kind, shared, x, bases):
    head = GatedDomainUnits(
        2, 2, num_bases=3, basis_size=2, kernel=Gaussian(1.3), experts=EXPERTS[kind], shared=shared
    ).double()
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    assert gradcheck(lambda x, bases: functional_call(head, {"bases": bases}, (x,)), (x, bases))


@pytest.mark.parametrize("gate", GATES, ids=repr)
def test_first_derivatives_of_mean_and_variance_of_a_probabilistic_head(gate, x):
    head = GatedDomainUnits(
        2, 1, num_bases=2, basis_size=2, kernel=Gaussian(1.3), gate=gate, task=ProbabilisticRegression(), shared=False
    ).double()
    assert gradcheck(lambda x: (head.evaluate(x).prediction, head.evaluate(x).variance), (x,))
