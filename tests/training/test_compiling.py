"""A compiled objective is the objective; networks of one architecture share what was compiled.

In a process of its own, without the run-time shape checks of the tests, which no compiler sees through; as graphs
alone, for kernels take half a minute to make.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import torch
from gated_domains.backbones import mixstyle
from gated_domains.backbones.bodies import SmallCNN
from gated_domains.experiments.recipe_checks import parse_methods
from gated_domains.methods import Classes, Problem
from gated_domains.training import engine
from gated_domains.training.engine import compiled_objective
from torch._dynamo.backends.debugging import aot_eager

SHAPE, made = (3, 16, 16), []


def counting(module, example):
    made.append(module)
    return aot_eager(module, example)


def method_of(written, seed=0):
    torch.manual_seed(seed)
    (choice,) = parse_methods(written)
    problem = Problem(
        kind="images", shape=SHAPE, outputs=3, task=Classes(), make_body=lambda: SmallCNN(SHAPE), domains=()
    )
    method = choice.kind.build(choice.settings, problem, mode="end_to_end").train()
    method.prepare(lambda: [batch()[0]])
    return method


def batch(seed=0):
    chance = torch.Generator().manual_seed(seed)
    return torch.rand((32, *SHAPE), generator=chance), torch.randint(3, (32,), generator=chance), None, None


torch.set_num_threads(1)
engine.BACKEND = counting

for written in ("erm", "gdu-paper[gate=mmd]", "gdu"):
    for seed in range(2):
        method = method_of(written, seed)
        ours, plain = compiled_objective(method, *batch(seed)), method(*batch(seed))
        assert list(ours) == list(plain), written
        torch.testing.assert_close(ours, plain)
        trained = [parameter for parameter in method.parameters() if parameter.requires_grad]
        found = [torch.autograd.grad(sum(terms.values()), trained, allow_unused=True) for terms in (ours, plain)]
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
        assert seed == 0 or len(made) == graphs, written  # the second network finds it compiled
        graphs = len(made)

compiled_objective(method_of("erm[activation=tanh]"), *batch())
assert len(made) > graphs  # another head is another graph

mixstyle.MapMixer.mixed = lambda self, x: x + x.flip(0)  # without chance, so as to compare
plain, mixed = method_of("erm"), method_of("erm")
mixer = mixstyle.mix_styles(mixed.backbone, 1.0)
with mixer.told(None):
    ours, expected = compiled_objective(mixed, *batch()), mixed(*batch())
torch.testing.assert_close(ours, expected)
assert not torch.isclose(ours["task"], plain(*batch())["task"])  # not that of the network without, compiled before
"""


@pytest.mark.slow
def test_a_compiled_objective_is_the_objective_and_is_compiled_once_an_architecture():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
