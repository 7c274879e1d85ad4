"""``torch.compile`` in one graph gives the numbers and gradients of eager mode.

Each case runs in a process of its own, without the run-time shape checks of the tests, which no compiler sees through.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import torch
from functools import partial
from torch import nn
from gated_domains import *
from gated_domains.layer import MLPExperts, StackedExperts
from gated_domains.layer.kernels import *
from gated_domains.layer.experts import ProbabilisticRegression

torch.set_num_threads(1)
torch.manual_seed(0)


def head_with(**settings):
    settings = {"num_bases": 3, "lambda_entropy": 0.1, "lambda_orth": 0.1, **settings}
    head = GatedDomainUnits(8, 3, **settings).double()
    with torch.no_grad():
        for parameter in head.experts.parameters():
            parameter.normal_()
    return head.fit_bases(torch.randn(60, 8).double())


def assert_compiles(head, *, sizes=(20,), call=None, **options):
    def loss(x):
        out = head.evaluate(x)
        return out.prediction.square().mean() + head.penalty(out)

    compiled = torch.compile(head, fullgraph=True, **options)
    compiled_loss = torch.compile(loss, fullgraph=True, **options)
    for size in sizes:
        x = torch.randn(size, 8).double()
        torch.testing.assert_close(compiled(x), head(x), rtol=1e-9, atol=1e-9)
        head.zero_grad()
        compiled_loss(x).backward()
        ours = {name: parameter.grad.clone() for name, parameter in head.named_parameters()}
        head.zero_grad()
        loss(x).backward()
        for name, parameter in head.named_parameters():
            assert parameter.grad.abs().max() > 0, name
            torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-7, atol=1e-9)
"""


def assert_runs(case: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT + case], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]


GATES = ["CosineGate()", "MMDGate()", "ProjectionGate()", "ProjectionGate(ridge=1e-3)"]


@pytest.mark.parametrize("gate", [GATES[0], GATES[3]])
def test_forward_and_gradients_equal_eager_ones_with_the_full_compiler(gate):
    assert_runs(f"assert_compiles(head_with(gate={gate}))")


SETTINGS = [
    *(f"gate={gate}" for gate in GATES[1:3]),
    "shared=False",
    "coverage=False",
    "experts=MLPExperts",
    "experts=partial(StackedExperts, factory=nn.Linear)",
    "max_bases=5",
    "task=ProbabilisticRegression()",
    "memory_budget=2000",
    "kernel=Average([Gaussian(2.0), Laplacian(3.0)])",
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_is_captured_in_one_graph(settings):
    assert_runs(f"assert_compiles(head_with({settings}), backend='aot_eager')")


def test_a_batch_of_another_size_is_compiled_too():
    assert_runs("assert_compiles(head_with(), sizes=(20, 7, 33, 1), backend='aot_eager')")


def test_a_dynamic_batch_is_compiled_from_the_start():
    assert_runs("assert_compiles(head_with(), sizes=(20, 7), backend='aot_eager', dynamic=True)")


def test_a_refit_is_seen_by_what_was_compiled_before():
    assert_runs(
        """
head = head_with()
compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
x = torch.randn(20, 8).double()
before = compiled(x)
head.fit_bases(3 + torch.randn(60, 8).double())
torch.testing.assert_close(compiled(x), head(x), rtol=1e-9, atol=1e-9)
assert not torch.allclose(compiled(x), before)
"""
    )


def test_a_split_is_seen_by_what_was_compiled_before_and_compiles_nothing_anew():
    assert_runs(
        """
from torch._dynamo.testing import CompileCounterWithBackend
head = GatedDomainUnits(8, 3, num_bases="adaptive").double()
rows = torch.randn(200, 8).double()
rows[::2, 0] += 20
head.fit_bases(rows)
counter = CompileCounterWithBackend("aot_eager")
compiled = torch.compile(head, fullgraph=True, backend=counter)
x = rows[:20]
with torch.no_grad():
    compiled(x)
    graphs = counter.frame_count
    head.adapt_bases(rows)
    assert head.num_bases == 2
    head.experts.bias.normal_()
    torch.testing.assert_close(compiled(x), head(x), rtol=1e-9, atol=1e-9)
assert counter.frame_count == graphs
"""
    )


@pytest.mark.parametrize("gating", ["None", "lambda x: x.mean((2, 3))", "['0']"])
def test_a_model_with_units_in_its_head_is_compiled(gating):
    assert_runs(
        f"""
images = torch.randn(40, 3, 6, 6)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
model = replace_head(model, gating={gating}, example=images[:4], verbose=False).eval()
fit_head(model, images)
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
for _ in range(2):
    torch.testing.assert_close(compiled(images), model(images))
"""
    )


def test_recording_works_inside_a_compiled_model():
    assert_runs(
        """
head = head_with()
model = nn.Sequential(nn.Linear(8, 8), head).double()
compiled = torch.compile(model, backend="aot_eager")
x = torch.randn(20, 8).double()
with head.record() as outs:
    prediction = compiled(x)
assert len(outs) == 1
torch.testing.assert_close(outs[0].prediction, prediction)
torch.testing.assert_close(head.penalty(outs[0]), head.penalty(head.evaluate(model[0](x))))
with head.record() as outs:
    compiled(x), compiled(x)
assert len(outs) == 2
"""
    )
