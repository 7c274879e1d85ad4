"""Frozen units say what the units say, and solve nothing."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from gated_domains.data.errors import DataError
from gated_domains.export.frozen import FrozenProjection, FrozenUnits, freeze, inverse_gram
from gated_domains.layer import CosineGate, GatedDomainUnits, MMDGate, ProjectionGate
from gated_domains.layer.gates import exact_projection

GATES = {
    "cosine": CosineGate,
    "mmd": MMDGate,
    "projection": ProjectionGate,
    "exact": partial(ProjectionGate, ridge=0.0),
    "exact with ridge": partial(ProjectionGate, ridge=1e-3),
}


def fitted(**settings) -> GatedDomainUnits:
    torch.manual_seed(0)
    units = GatedDomainUnits(4, 2, num_bases=3, **settings).eval()
    units.fit_bases(torch.randn(60, 4))
    with torch.no_grad():
        for parameter in units.experts.parameters():
            parameter.normal_()
    return units


@pytest.mark.parametrize("gates", ["sample", "batch"])
@pytest.mark.parametrize("room", [None, 6], ids=["all in use", "room to spare"])
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_frozen_units_say_the_same(gate, room, gates):
    units = fitted(gate=gate(), max_bases=room)
    frozen = FrozenUnits.of(units)
    x = torch.randn(9, 4)
    with torch.no_grad():
        expected, found = units.evaluate(x, gates=gates), frozen.evaluate(x, gates=gates)
        torch.testing.assert_close(found.prediction, expected.prediction, rtol=0, atol=1e-5, check_dtype=False)
        torch.testing.assert_close(found.beta, expected.beta, rtol=0, atol=1e-5, check_dtype=False)
        torch.testing.assert_close(found.coverage, expected.coverage, rtol=0, atol=1e-5, check_dtype=False)
        torch.testing.assert_close(frozen.novelty(x), units.novelty(x), rtol=0, atol=1e-5, check_dtype=False)


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_a_product_with_the_inverse_is_the_exact_projection(ridge):
    units = fitted(gate=ProjectionGate(ridge=ridge), max_bases=5).double()
    products = units._products(torch.randn(7, 4).double())
    gate = FrozenProjection(units.gate, products.gram, units.active)
    torch.testing.assert_close(gate(products), exact_projection(products, ridge), rtol=1e-10, atol=1e-12)
    assert (gate(products)[:, 3:] == 0).all()


def test_the_papers_projection_stays_its_own_and_is_explained_by_the_exact_one():
    units = fitted(gate=ProjectionGate())
    products = units._products(torch.randn(7, 4))
    gate = FrozenProjection(units.gate, products.gram, units.active)
    torch.testing.assert_close(gate(products), units.gate(products), rtol=0, atol=0)
    torch.testing.assert_close(gate.explaining(products), units.gate.explaining(products), rtol=0, atol=1e-5)


def test_no_equation_is_left_in_the_graph():
    frozen = FrozenUnits.of(fitted(gate=ProjectionGate(ridge=1e-3)))
    batch = torch.export.Dim("batch")
    program = torch.export.export(frozen, (torch.randn(5, 4),), dynamic_shapes=({0: batch},), strict=False)
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert "aten.matmul.default" in called
    assert not [name for name in called if "solve" in name or "inv" in name or "linalg" in name]


def test_the_bases_are_compared_with_samples_alone():
    frozen = FrozenUnits.of(fitted())
    batch = torch.export.Dim("batch")
    program = torch.export.export(frozen, (torch.randn(5, 4),), dynamic_shapes=({0: batch},), strict=False)
    assert sum("exp." in str(node.target) for node in program.graph.nodes) == 1


def test_gates_are_found_in_float64_and_experts_stay_as_they_are():
    frozen = FrozenUnits.of(fitted())
    out = frozen.evaluate(torch.randn(9, 4))
    assert out.coverage.dtype == out.beta.dtype == torch.float64
    assert out.prediction.dtype == torch.float32


def test_equal_bases_without_ridge_have_no_inverse():
    with pytest.raises(DataError, match="has no inverse"):
        inverse_gram(torch.ones(2, 2), 0.0, active=torch.tensor([True, True]))


def test_freezing_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), fitted(gate=ProjectionGate())).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    frozen = freeze(model)
    assert isinstance(frozen[1], FrozenUnits)
    assert not frozen.training
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert type(model[1]) is GatedDomainUnits
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
