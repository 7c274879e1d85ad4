"""The fused path in Triton, on a GPU, against float64."""

from __future__ import annotations

import pytest
import torch

from fused_problems import SHAPES, both_ways, needs_gpu, problem
from gated_domains.layer import fused_steps
from gated_domains.layer.fused import KINDS, fused_path
from gated_domains.layer.kernels import Gaussian
from gated_domains.layer.products import mean_gram, mean_kernel

pytestmark = needs_gpu


def relative(found, right):
    return float((found.double() - right).abs().max() / right.abs().max().clamp_min(1e-300))


def triton_against_float64(kernel, shape, *, dtype=torch.float32, compute=mean_kernel):
    """Relative errors of value and gradients by Triton, and by the plain path in the same precision."""
    x, bases = problem(shape, dtype=dtype, device="cuda")
    exact = [each.detach().double().requires_grad_() for each in (x, bases)]
    right, _ = both_ways(kernel, *exact, compute=compute)
    plain, ours = both_ways(kernel, x, bases, compute=compute)
    return [[relative(a, b) for a, b in zip(found, right, strict=True)] for found in (ours, plain)]


GPU_SHAPES = {**SHAPES, "many": (1000, 37, 50, 300), "wide": (257, 20, 10, 2048), "features_of_no_kind": (65, 5, 7, 77)}


@pytest.mark.parametrize(
    ("shape", "kind"),
    [pytest.param(shape, Gaussian, id=name) for name, shape in GPU_SHAPES.items()]
    + [pytest.param(GPU_SHAPES["many"], kind, id=kind.__name__) for kind in KINDS if kind is not Gaussian],
)
def test_triton_is_as_near_as_float32_can_be(shape, kind, monkeypatch):
    monkeypatch.setattr(fused_steps, "CHUNK_BYTES", 3 * 2**20)
    ours, _ = triton_against_float64(kind(1.3 * shape[-1] ** 0.5).cuda(), shape)
    assert max(ours) < 1e-5


def test_the_gram_matrix_by_triton_is_near_too():
    def gram(kernel, x, bases):
        return mean_gram(kernel, bases) + 0 * x.sum()

    ours, _ = triton_against_float64(Gaussian(20.0).cuda(), GPU_SHAPES["many"], compute=gram)
    assert ours[0] < 1e-5
    assert ours[2] < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_triton_in_half_precision_is_near_for_what_came_in(dtype):
    (cross, *gradients_), _ = triton_against_float64(Gaussian(20.0).cuda(), GPU_SHAPES["many"], dtype=dtype)
    assert cross < 1e-4
    assert max(gradients_) < 1e-2  # rounded to half precision


def test_triton_with_tf32_allowed_keeps_more_than_tf32():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        ours, _ = triton_against_float64(Gaussian(20.0).cuda(), GPU_SHAPES["many"])
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert max(ours) < 1e-4


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("features", [3, 64, 2048])
def test_triton_gives_identical_rows_exactly_one(features, tf32):
    x = torch.randn(300, features, device="cuda") + 5
    bases = x[:, None].expand(300, 6, features).contiguous()
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        with fused_path("on"):
            found = mean_kernel(Gaussian(1.0).cuda(), x, bases)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert torch.equal(found.diagonal(), torch.ones(300, device="cuda"))


def test_triton_gives_the_same_bits_twice():
    x, bases = problem(GPU_SHAPES["many"], dtype=torch.float32, device="cuda")
    first, second = (both_ways(Gaussian(20.0).cuda(), x, bases)[1] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_second_derivatives_exist_on_a_gpu():
    x, bases = problem((200, 5, 30, 70), dtype=torch.float32, device="cuda")
    kernel, found = Gaussian(10.0).cuda(), []
    for mode in ("off", "on"):
        with fused_path(mode):
            (once,) = torch.autograd.grad(mean_kernel(kernel, x, bases).sum(), x, create_graph=True)
            found += torch.autograd.grad(once.square().sum(), x)
    torch.testing.assert_close(*found)


def test_triton_holds_no_kernel_values():
    shape = (8192, 100, 50, 64)
    x, bases = problem(shape, dtype=torch.float32, device="cuda")
    kernel = Gaussian(20.0).cuda()
    with fused_path("on"):
        for _ in range(2):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            mean_kernel(kernel, x, bases).sum().backward()
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - before
    assert peak < 8192 * 100 * 50 * 4 / 2  # half of what the kernel values alone would take
