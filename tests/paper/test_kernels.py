"""Each kernel against its formula."""

from __future__ import annotations

import pytest
import torch

import oracles
from gated_domains.layer.kernels import KERNELS, Average, Gaussian, Matern32, RationalQuadratic, Scaled, as_kernel
from oracles import assert_matches, rows

NAMES = list(oracles.RADIAL)


def test_every_kernel_has_an_oracle():
    assert set(KERNELS) == set(oracles.RADIAL)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.5])
@pytest.mark.parametrize("name", NAMES)
def test_kernel_follows_its_formula(name, sigma):
    x, z = torch.randn(4, 3).double(), torch.randn(5, 3).double()
    expected = oracles.kernel_matrix(oracles.radial_kernel(name, sigma), rows(x), rows(z))
    assert_matches(KERNELS[name](sigma)(x, z), expected)


@pytest.mark.parametrize("alpha", [0.25, 1.0, 6.0])
def test_rational_quadratic_follows_its_formula_for_any_alpha(alpha):
    x, z = torch.randn(4, 3).double(), torch.randn(5, 3).double()
    expected = [
        [oracles.rational_quadratic(oracles.squared_distance(a, b), 1.7, alpha) for b in rows(z)] for a in rows(x)
    ]
    assert_matches(RationalQuadratic(1.7, alpha=alpha)(x, z), expected)


def test_rational_quadratic_tends_to_the_gaussian_as_alpha_grows():
    x, z = torch.randn(4, 3).double(), torch.randn(5, 3).double()
    torch.testing.assert_close(RationalQuadratic(1.5, alpha=1e8)(x, z), Gaussian(1.5)(x, z), rtol=1e-6, atol=1e-6)


def test_average_is_the_mean_over_its_kernels():
    x, z = torch.randn(4, 3).double(), torch.randn(5, 3).double()
    kernel = Average([Gaussian(0.5), lambda a, b: a @ b.mT, Matern32(2.0)])
    members = [
        oracles.radial_kernel("gaussian", 0.5),
        lambda a, b: sum(p * q for p, q in zip(a, b, strict=True)),
        oracles.radial_kernel("matern32", 2.0),
    ]
    assert_matches(kernel(x, z), oracles.kernel_matrix(oracles.average_kernel(members), rows(x), rows(z)))


def test_scaled_kernel_is_a_multiple():
    x, z = torch.randn(4, 3).double(), torch.randn(5, 3).double()
    kernel = oracles.scaled_kernel(oracles.radial_kernel("matern52", 1.3), 0.7)
    expected = oracles.kernel_matrix(kernel, rows(x), rows(z))
    assert_matches(Scaled(KERNELS["matern52"](1.3), 0.7)(x, z), expected)
    assert_matches((0.7 * KERNELS["matern52"](1.3))(x, z), expected)


@pytest.mark.parametrize("name", NAMES)
def test_each_matrix_of_a_stack_is_as_if_it_stood_alone(name):
    x, z = torch.randn(2, 4, 3).double(), torch.randn(2, 5, 3).double()
    kernel = KERNELS[name](1.2)
    torch.testing.assert_close(kernel(x, z), torch.stack([kernel(a, b) for a, b in zip(x, z, strict=True)]))


@pytest.mark.parametrize("name", NAMES)
def test_kernel_matrix_is_symmetric_and_positive_semidefinite(name):
    x = torch.randn(12, 3).double()
    matrix = KERNELS[name](1.1)(x, x)
    torch.testing.assert_close(matrix, matrix.mT, rtol=0, atol=1e-14)
    assert torch.linalg.eigvalsh(matrix).min() > -1e-12


@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_identical_rows_have_kernel_exactly_one(name, dtype, shift):
    x = torch.randn(6, 300, dtype=dtype) + shift
    others = torch.cat([x, torch.randn(3, 300, dtype=dtype) + shift])
    assert torch.equal(KERNELS[name](20.0)(x, others)[:, :6].diagonal(), torch.ones(6, dtype=dtype))


@pytest.mark.parametrize("shift", [0.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_rows_are_seen_as_such_in_2048_dimensions(dtype, shift):
    x = torch.randn(512, 2048, dtype=dtype) + shift
    x[256:] += 30
    assert torch.equal(KERNELS["laplacian"](45.0)(x, x.clone()).diagonal(), torch.ones(512, dtype=dtype))


@pytest.mark.parametrize("name", NAMES)
def test_a_set_with_one_row_has_kernel_exactly_one_with_itself(name):
    x = torch.randn(1, 40) * 100
    assert KERNELS[name](0.01)(x, x).item() == 1


@pytest.mark.parametrize(
    "kernel",
    [
        *(kind(1.4) for kind in KERNELS.values()),
        Average([Gaussian(0.5), Gaussian(2.0)]),
        Scaled(Gaussian(1.0), 2.5),
        as_kernel(lambda a, b: (a @ b.mT + 1) ** 2),
    ],
    ids=repr,
)
def test_diagonal_is_the_diagonal_of_the_matrix(kernel):
    x = torch.randn(5, 3).double()
    torch.testing.assert_close(kernel.diagonal(x), kernel(x, x).diagonal(), rtol=1e-12, atol=1e-12)


def test_average_keeps_the_ratios_of_its_widths_when_sigma_is_set():
    kernel = Average([Gaussian(1.0), Gaussian(2.0), Gaussian(4.0)])
    kernel.set_sigma(6.0)
    assert [member.sigma.item() for member in kernel.members] == pytest.approx([3.0, 6.0, 12.0])


@pytest.mark.parametrize("convert", ["float", "half", "bfloat16"])
def test_sigma_keeps_its_precision_when_the_module_is_converted(convert):
    kernel = getattr(Gaussian(0.7), convert)()
    assert kernel.sigma.item() == 0.7
