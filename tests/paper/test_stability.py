"""The formulas hold for any shape, scale, shift and precision."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from gated_domains.layer import CosineGate, GatedDomainUnits, MMDGate, ProjectionGate, penalties
from gated_domains.layer.gates import inner_products
from gated_domains.layer.kernels import KERNELS, Gaussian
from oracles import rows

ALL_GATES = [CosineGate(3.0), MMDGate(3.0), ProjectionGate(), ProjectionGate(1e-3)]


@st.composite
def clouds(draw):
    """Rows x and bases around ``shift``, as wide as ``scale``, some rows of x the same as vectors of the bases."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    count, num_bases, size, width = (draw(st.integers(1, most)) for most in (7, 4, 5, 40))
    scale = 10.0 ** draw(st.integers(-3, 3))
    shift = draw(st.sampled_from([0.0, 1.0, -30.0, 1e3, -1e4]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x = torch.randn(count, width, generator=generator, dtype=torch.float64) * scale + shift
    bases = torch.randn(num_bases, size, width, generator=generator, dtype=torch.float64) * scale + shift
    if draw(st.booleans()):
        x[0] = bases[0, 0]
    sigma = draw(st.sampled_from([0.3, 1.0, 3.0])) * scale * width**0.5
    return x.to(dtype), bases.to(dtype), sigma


def bracket(name, x, z, sigma):
    """The least and the largest kernel value that a squared distance with rounding errors may give.

    Errors are relative to the squared distances from the centre of z, which is what survives the expanded square; they
    do not grow with the shift.
    """
    eps = torch.finfo(x.dtype).eps
    centre = z.double().mean(0)
    low, high = [], []
    for x_i in x.double():
        low.append([])
        high.append([])
        for z_j in z.double():
            squared = oracles.squared_distance(rows(x_i), rows(z_j))
            norms = (x_i - centre).square().sum().item() + (z_j - centre).square().sum().item()
            error = 24 * eps * norms
            low[-1].append(oracles.RADIAL[name](squared + error, sigma) - 8 * eps)
            high[-1].append(oracles.RADIAL[name](max(squared - error, 0), sigma) + 8 * eps)
    return torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)


@pytest.mark.parametrize("name", KERNELS)
@given(cloud=clouds())
def test_kernels_are_as_exact_as_their_inputs_allow(name, cloud):
    x, bases, sigma = cloud
    z = bases.flatten(0, 1)
    value = KERNELS[name](sigma)(x, z)
    low, high = bracket(name, x, z, sigma)
    assert value.dtype == x.dtype
    assert (value.double() >= low).all()
    assert (value.double() <= high).all()


@pytest.mark.parametrize("name", KERNELS)
@given(cloud=clouds())
def test_inner_products_are_near_the_loops(name, cloud):
    x, bases, sigma = cloud
    products = inner_products(KERNELS[name](sigma), x, bases)
    kernel = oracles.radial_kernel(name, sigma)
    # The Laplacian has a kink at 0: there an error of eps in the square is one of its root in the distance.
    tolerance = (torch.finfo(x.dtype).eps * 400) ** (0.5 if name == "laplacian" else 1)
    oracles.assert_matches(products.cross.double(), oracles.cross(kernel, rows(x), rows(bases)), tolerance=tolerance)
    oracles.assert_matches(products.gram.double(), oracles.gram(kernel, rows(bases)), tolerance=tolerance)


@pytest.mark.parametrize("gate", [CosineGate, MMDGate])
@given(cloud=clouds(), kappa=st.sampled_from([1e-3, 2.0, 1e3, 1e6]))
def test_softmax_weights_are_finite_and_sum_to_one(gate, cloud, kappa):
    x, bases, sigma = cloud
    beta = gate(kappa)(inner_products(Gaussian(sigma), x, bases))
    assert beta.dtype == x.dtype
    assert torch.isfinite(beta).all()
    assert (beta >= 0).all()
    torch.testing.assert_close(beta.sum(-1), torch.ones_like(beta[:, 0]), rtol=0, atol=8 * torch.finfo(x.dtype).eps)


@pytest.mark.parametrize("gate", ALL_GATES, ids=repr)
@settings(max_examples=12)
@given(cloud=clouds())
def test_weights_and_gradients_are_finite_when_the_kernel_saturates(gate, cloud):
    x, bases, sigma = cloud
    for width in (sigma * 1e-4, sigma * 1e4):  # every k as good as 0, every k as good as 1
        x, bases = x.detach().requires_grad_(), bases.detach().requires_grad_()
        beta = gate(inner_products(Gaussian(width), x, bases))
        assert torch.isfinite(beta).all()
        for gradient in torch.autograd.grad(beta.square().sum(), [x, bases]):
            assert torch.isfinite(gradient).all()


def half_and_full(gate, dtype, gates, *, shared=True, shift=0.0):
    head = GatedDomainUnits(8, 3, num_bases=4, basis_size=5, kernel=Gaussian(4.0), gate=gate, shared=shared)
    with torch.no_grad():
        head.bases += shift
        for parameter in head.experts.parameters():
            parameter.normal_(std=0.3)
    x = torch.randn(50, 8) + shift
    head.fit_coverage(x)
    full = head.evaluate(x, gates=gates)
    with torch.autocast("cpu", dtype=dtype):
        half = head.evaluate(x, gates=gates)
        penalty = head.penalty(half)
    return head, half, full, penalty


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gates", ["sample", "batch"])
@pytest.mark.parametrize("gate", ALL_GATES, ids=repr)
def test_autocast_gives_finite_predictions_near_those_of_float32(gate, gates, dtype):
    head, half, full, penalty = half_and_full(gate, dtype, gates, shared=False)
    assert torch.isfinite(half.prediction).all()
    torch.testing.assert_close(half.beta.float(), full.beta, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(half.prediction.float(), full.prediction, rtol=0.05, atol=0.05)
    torch.testing.assert_close(penalty.float(), head.penalty(full), rtol=0.02, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gate", [CosineGate(3.0), MMDGate(3.0)], ids=repr)
def test_gates_are_computed_in_float32_under_autocast(gate, dtype):
    _, half, full, _ = half_and_full(gate, dtype, "sample", shift=100.0)
    assert half.beta.dtype == torch.float32
    torch.testing.assert_close(half.beta, full.beta, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_coverage_under_autocast_is_near_that_of_float32(dtype):
    # Clusters in 256 dimensions: residuals lie so close together that coverage magnifies their errors.
    x = (0.6 * torch.randn(5, 256)).repeat(80, 1) + torch.randn(400, 256)
    head = GatedDomainUnits(256, 3, num_bases=5).fit_bases(x)
    full = head.evaluate(x)
    with torch.autocast("cpu", dtype=dtype):
        half = head.evaluate(x)
    torch.testing.assert_close(half.coverage.float(), full.coverage, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "penalty",
    [
        penalties.reconstruction,
        penalties.entropy,
        penalties.soft_orthogonality,
        penalties.srip,
        penalties.mutual_coherence,
        penalties.distributional_variance,
    ],
)
@pytest.mark.parametrize("sigma", [0.5, 2.0, 8.0])  # bases nearly orthogonal, overlapping, nearly the same
def test_penalties_under_autocast_are_near_those_of_float32(penalty, sigma, dtype):
    head = GatedDomainUnits(8, 3, num_bases=4, basis_size=5, kernel=Gaussian(sigma), shared=False)
    out = head.evaluate(torch.randn(50, 8))
    with torch.autocast("cpu", dtype=dtype):
        value = penalty(out)
    torch.testing.assert_close(value.float(), penalty(out), rtol=0.01, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gate", ALL_GATES, ids=repr)
def test_training_under_autocast_gives_finite_gradients(gate, dtype):
    head = GatedDomainUnits(8, 3, num_bases=4, basis_size=5, gate=gate, lambda_orth=0.1, lambda_entropy=0.1)
    with torch.autocast("cpu", dtype=dtype):
        out = head.evaluate(torch.randn(20, 8))
        loss = out.prediction.float().square().mean() + head.penalty(out)
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in head.parameters())
