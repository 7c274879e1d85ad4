"""Features and bases of many shapes, and their inner products by the plain path and by the fused one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from gated_domains.layer.fused import fused_path
from gated_domains.layer.products import mean_kernel

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("triton") is None, reason="needs a GPU and Triton"
)
SHAPES = {
    "basis_within_a_tile": (130, 7, 50, 24),
    "basis_over_several_tiles": (9, 3, 300, 5),
    "one_basis": (6, 1, 10, 3),
    "one_vector_a_basis": (5, 140, 1, 4),
    "one_row": (1, 4, 3, 2),
}


def problem(shape, *, dtype=torch.float64, device="cpu", offset=3.0):
    rows, count, size, features = shape
    x = torch.randn(rows, features, dtype=torch.float64) + offset
    bases = torch.randn(count, size, features, dtype=torch.float64) + offset
    bases[0, 0] = x[0]
    return (given.to(device, dtype).requires_grad_() for given in (x, bases))


def both_ways(kernel, x, bases, *, compute=mean_kernel):
    """Result and gradients by the plain path and by the fused one."""
    found = []
    for mode in ("off", "on"):
        with fused_path(mode):
            value = compute(kernel, x, bases)
            upstream = torch.linspace(-1, 2, value.numel()).to(value).reshape(value.shape)
            found.append((value, *torch.autograd.grad(value, (x, bases), upstream)))
    return found
