"""``torch.export`` with a batch size of any length gives the same numbers as the layer itself."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn
from torch.export import Dim, export

from gated_domains import CosineGate, GatedDomainUnits, MMDGate, ProjectionGate, fit_head, model_head, replace_head
from gated_domains.layer import MLPExperts, StackedExperts
from gated_domains.layer.experts import ProbabilisticRegression
from gated_domains.layer.kernels import KERNELS

# A shape check that looks at a symbolic batch size would pin it.
pytestmark = pytest.mark.usefixtures("without_shape_checks")

GATES = {
    "cosine": CosineGate,
    "mmd": MMDGate,
    "projection": ProjectionGate,
    "exact": partial(ProjectionGate, ridge=0.0),
    "exact with ridge": partial(ProjectionGate, ridge=1e-3),
}
SIZES = (1, 2, 7, 64, 300)


def fitted(**settings) -> GatedDomainUnits:
    head = GatedDomainUnits(4, 2, num_bases=3, **settings).double().eval()
    head.fit_bases(torch.randn(60, 4).double())
    with torch.no_grad():
        for parameter in head.experts.parameters():
            parameter.normal_()
    return head


def assert_exports(model: nn.Module, example: torch.Tensor, make_inputs) -> None:
    program = export(model, (example,), dynamic_shapes=({0: Dim("batch")},), strict=False).module()
    for size in SIZES:
        x = make_inputs(size)
        torch.testing.assert_close(program(x), model(x), rtol=1e-9, atol=1e-9)


def rows(size: int) -> torch.Tensor:
    return torch.randn(size, 4).double()


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "not shared"])
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_every_gate_is_exported_with_a_dynamic_batch(gate, shared):
    assert_exports(fitted(gate=gate(), shared=shared), rows(5), rows)


@pytest.mark.parametrize("kernel", sorted(set(KERNELS) - {"gaussian"}))
def test_every_kernel_is_exported_with_a_dynamic_batch(kernel):
    assert_exports(fitted(kernel=KERNELS[kernel]()), rows(5), rows)


def test_mlp_experts_are_exported_with_a_dynamic_batch():
    assert_exports(fitted(experts=MLPExperts), rows(5), rows)


def test_stacked_experts_are_exported_with_a_dynamic_batch():
    assert_exports(fitted(experts=partial(StackedExperts, factory=nn.Linear)), rows(5), rows)


def test_a_layer_with_room_to_spare_is_exported():
    assert_exports(fitted(max_bases=6), rows(5), rows)


def test_a_probabilistic_head_is_exported():
    assert_exports(fitted(task=ProbabilisticRegression()), rows(5), rows)


def test_everything_that_evaluate_returns_is_exported():
    class Everything(nn.Module):
        def __init__(self, head: GatedDomainUnits) -> None:
            super().__init__()
            self.head = head

        def forward(self, x):
            out = self.head.evaluate(x)
            return out.prediction, out.beta, out.coverage, self.head.novelty(x), out.products.cross

    model = Everything(fitted())
    program = export(model, (rows(5),), dynamic_shapes=({0: Dim("batch")},), strict=False).module()
    x = rows(9)
    torch.testing.assert_close(program(x), model(x), rtol=1e-9, atol=1e-9)


def test_an_exported_layer_holds_its_numbers_in_its_state_dict():
    head = fitted()
    program = export(head, (rows(5),), dynamic_shapes=({0: Dim("batch")},), strict=False)
    assert {"bases", "kernel.sigma", "gate.kappa", "coverage.q50"} <= set(program.state_dict)


def test_an_exported_layer_is_the_same_after_saving_and_loading(tmp_path):
    head = fitted()
    program = export(head, (rows(5),), dynamic_shapes=({0: Dim("batch")},), strict=False)
    torch.export.save(program, tmp_path / "head.pt2")
    x = rows(11)
    loaded = torch.export.load(tmp_path / "head.pt2").module()
    torch.testing.assert_close(loaded(x), head(x), rtol=1e-9, atol=1e-9)


STRICT = """
import torch
from torch.export import Dim, export
from gated_domains import GatedDomainUnits

head = GatedDomainUnits(4, 2).eval()
program = export(head, (torch.randn(5, 4),), dynamic_shapes=({0: Dim("batch")},), strict=True).module()
x = torch.randn(9, 4)
torch.testing.assert_close(program(x), head(x), rtol=1e-4, atol=1e-5)
"""


@pytest.mark.slow
def test_a_layer_is_exported_by_the_strict_tracer_too():
    # In a process of its own: this tracer reads the code, and would read that of the run-time shape checks too.
    done = subprocess.run([sys.executable, "-c", STRICT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.conv(x))).mean((2, 3)))


def images(size: int) -> torch.Tensor:
    return torch.randn(size, 3, 6, 6).double()


@pytest.mark.parametrize(
    "gating", [None, lambda x: x.mean((2, 3)), ["conv", "bn"]], ids=["no view", "callable", "names"]
)
def test_a_model_with_units_in_its_head_is_exported(gating):
    head = partial(GatedDomainUnits, num_bases=3)
    model = replace_head(ConvNet().double(), head, gating=gating, example=images(4), verbose=False).eval()
    fit_head(model, images(40))
    with torch.no_grad():
        model_head(model).experts.weight.normal_()
    assert_exports(model, images(5), images)
