"""The fused path gives what the plain path gives: here by its steps in plain torch, which Triton's follow."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
import torch

from fused_problems import SHAPES, both_ways, needs_gpu, problem
from gated_domains.layer import fused_steps
from gated_domains.layer.fused import KINDS, fused_path
from gated_domains.layer.fused_reference import TorchTiles
from gated_domains.layer.fused_steps import gradients, mean_values
from gated_domains.layer.kernels import Gaussian, RationalQuadratic
from gated_domains.layer.products import inner_products, mean_gram, mean_kernel, pooled


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_values_and_gradients_are_those_of_the_plain_path(shape, kind, monkeypatch):
    monkeypatch.setattr(fused_steps, "CHUNK_BYTES", 1)  # one tile of columns a chunk
    x, bases = problem(shape)
    for plain, ours in zip(*both_ways(kind(2.0), x, bases), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradients_are_the_derivatives(kind):
    x, bases = problem((4, 3, 2, 3))
    bases = (bases.detach() + 0.3).requires_grad_()  # no two rows the same, where some kernels have a kink
    with fused_path("on"):
        assert torch.autograd.gradcheck(lambda *given: mean_kernel(kind(1.7), *given), (x, bases))


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_come_by_the_plain_path(kind):
    x, bases = problem((4, 3, 2, 3))
    bases = (bases.detach() + 0.3).requires_grad_()
    with fused_path("on"):
        assert torch.autograd.gradgradcheck(lambda *given: mean_kernel(kind(1.7), *given), (x, bases))
        assert torch.autograd.gradgradcheck(lambda given: mean_gram(kind(1.7), given), bases)


def test_the_exponent_of_the_rational_quadratic_is_passed_on():
    x, bases = problem((4, 3, 2, 3))
    for plain, ours in zip(*both_ways(RationalQuadratic(1.5, alpha=3.0), x, bases), strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_the_gram_matrix_and_its_gradient_are_those_of_the_plain_path(shape, kind, monkeypatch):
    monkeypatch.setattr(fused_steps, "CHUNK_BYTES", 1)
    _, bases = problem(shape)
    upstream, found = torch.randn(shape[1], shape[1]).double(), []
    for mode in ("off", "on"):
        with fused_path(mode):
            gram = mean_gram(kind(2.0), bases)
            found.append((gram, *torch.autograd.grad(gram, bases, upstream)))
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-12)


def test_only_the_gradients_asked_for_are_computed(monkeypatch):
    calls = []
    for name in ("to_rows", "to_columns"):
        step = getattr(TorchTiles, name)
        monkeypatch.setattr(
            TorchTiles,
            name,
            lambda *given, _name=name, _step=step, **more: (calls.append(_name), _step(*given, **more)),
        )
    x, bases = problem((4, 3, 2, 3))
    with fused_path("on"):
        mean_kernel(Gaussian(2.0), x.detach(), bases).sum().backward()
        assert calls == ["to_columns"]
        calls.clear()
        mean_kernel(Gaussian(2.0), x, bases.detach()).sum().backward()
        assert calls == ["to_rows"]
        calls.clear()
        assert not mean_kernel(Gaussian(2.0), x.detach(), bases.detach()).requires_grad


@pytest.mark.parametrize("budget", [1, 3 * 128 * 128 * 8, 10**9], ids=["a_tile", "three_tiles", "all"])
def test_the_gradients_do_not_depend_on_how_the_columns_are_cut(budget, monkeypatch):
    monkeypatch.setattr(fused_steps, "CHUNK_BYTES", budget)
    given = [each.detach() for each in problem((20, 41, 17, 6))]
    upstream, sigma = torch.randn(20, 41).double(), torch.tensor(2.0).double()
    spans = list(fused_steps._chunks(TorchTiles(), 20, 41 * 17))
    assert spans[0][0] == 0
    assert spans[-1][1] == 41 * 17
    assert all(stop == start for (_, stop), (start, _) in pairwise(spans))
    assert all(start % TorchTiles.block == 0 for start, _ in spans)
    assert len(spans) == {1: 6, 3 * 128 * 128 * 8: 2, 10**9: 1}[budget]
    found = gradients(TorchTiles(), upstream, *given, sigma, sigma, kind=0, to_x=True, to_bases=True)
    monkeypatch.setattr(fused_steps, "CHUNK_BYTES", 10**9)
    whole = gradients(TorchTiles(), upstream, *given, sigma, sigma, kind=0, to_x=True, to_bases=True)
    for ours, theirs in zip(found, whole, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_identical_rows_have_exactly_the_kernel_value_one_far_from_the_origin(kind):
    x = (torch.randn(5, 64) + 1000).requires_grad_()
    bases = x.detach()[:, None].expand(5, 4, 64).contiguous()
    with fused_path("on"):
        assert torch.equal(mean_kernel(kind(1.0), x, bases).diagonal(), torch.ones(5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_back_as_float32_with_gradients_in_its_own(dtype):
    x, bases = problem((6, 3, 4, 8), dtype=dtype)
    (plain, *_), (ours, to_x, to_bases) = both_ways(Gaussian(3.0), x, bases)
    assert ours.dtype == plain.dtype == torch.float32
    torch.testing.assert_close(ours, plain)
    assert to_x.dtype == to_bases.dtype == dtype


def test_inner_products_and_the_pooled_ones_are_the_same_both_ways():
    x, bases = problem((7, 3, 4, 5))

    def cross_and_gram(kernel, x, bases):
        found = inner_products(kernel, x, bases)
        whole = pooled(found, kernel, x)
        return torch.cat([found.cross.flatten(), found.gram.flatten(), whole.self_product, whole.cross.flatten()])

    for plain, ours in zip(*both_ways(Gaussian(2.0), x, bases, compute=cross_and_gram), strict=True):
        torch.testing.assert_close(ours, plain)


COMPILED = """
import sys
import torch
from torch._dynamo.backends.common import aot_autograd
from gated_domains.layer.fused import fused_path
from gated_domains.layer.kernels import Gaussian
from gated_domains.layer.products import inner_products

torch.manual_seed(0)
device, backend, answer = sys.argv[1:]
if answer == "old":  # that of older compilers
    torch.compiler.is_exporting = lambda: torch.compiler.is_compiling()
kernel = Gaussian(5.0).to(device)
x = torch.randn(130, 70, device=device, requires_grad=True)
bases = torch.randn(5, 30, 70, device=device, requires_grad=True)
graphs = []


class Loss(torch.nn.Module):
    def forward(self, x, bases):
        found = inner_products(kernel, x, bases)
        return found.cross.square().sum() + found.gram.square().sum()


def remember(graph, example):
    graphs.append(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
    return graph.forward


def check(found):
    for ours, theirs in zip(found, right, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


loss = Loss()
right = (loss(x, bases), *torch.autograd.grad(loss(x, bases), (x, bases)))
for how in (aot_autograd(fw_compiler=remember, bw_compiler=remember), backend):
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(loss, fullgraph=True, backend=how, dynamic=dynamic)
        with fused_path("off"):
            compiled(x, bases)
        graphs.clear()
        with fused_path("on"):
            value = compiled(x, bases)
            check((value, *torch.autograd.grad(value, (x, bases))))
        for graph in graphs:
            print(*sorted(name for name in graph if "gated_domains" in name or "mm" in name))
if device == "cpu":
    with fused_path("on"):
        for strict in (False, True):
            graph = torch.export.export(loss, (x, bases), strict=strict).graph
            assert not any("gated_domains" in str(node.target) for node in graph.nodes), f"strict={strict}"
"""


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["old", "new"])
@pytest.mark.parametrize(
    ("device", "backend"), [("cpu", "aot_eager"), pytest.param("cuda", "inductor", marks=needs_gpu)]
)
def test_compiled_graphs_hold_the_operators_and_no_other_product(device, backend, answer):
    """Forward and backward; while an exported graph holds none. Whatever the compiler answers to is_exporting().

    In a process of its own: no compiler sees through the shape checks of the tests.
    """
    done = subprocess.run([sys.executable, "-c", COMPILED, device, backend, answer], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    forward = "gated_domains.mean_gram.default gated_domains.mean_kernel.default"
    backward = "gated_domains.mean_gram_gradient.default gated_domains.mean_kernel_gradients.default"
    assert done.stdout.splitlines() == [forward, backward] * 2  # of fixed and of varying sizes


def test_the_operators_keep_torchs_rules():
    x, bases = problem((6, 3, 4, 5), dtype=torch.float32)
    sigma = Gaussian(2.0).sigma
    torch.library.opcheck(torch.ops.gated_domains.mean_kernel.default, (x, bases, sigma, sigma, 0))
    plain = (torch.randn(6, 3), x.detach(), bases.detach(), sigma, sigma, 0)
    torch.library.opcheck(torch.ops.gated_domains.mean_gram.default, (bases, sigma, sigma, 0))
    gram = (torch.randn(3, 3), bases.detach(), sigma, sigma, 0)
    torch.library.opcheck(torch.ops.gated_domains.mean_gram_gradient.default, gram)
    for wanted in ((True, True), (True, False), (False, True)):
        torch.library.opcheck(torch.ops.gated_domains.mean_kernel_gradients.default, (*plain, *wanted))


def test_mean_values_of_the_reference_are_the_loop():
    x, bases = (each.detach() for each in problem((3, 2, 4, 5)))
    sigma = torch.tensor(1.5).double()
    found = mean_values(TorchTiles(), x, bases, sigma, sigma, kind=0)
    for i in range(3):
        for j in range(2):
            expected = sum(torch.exp(-(x[i] - v).square().sum() / 4.5) for v in bases[j]) / 4
            torch.testing.assert_close(found[i, j], expected)
