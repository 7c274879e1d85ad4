"""Groups for an optimiser: deviations decay, the rest does not."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from gated_domains.layer import GatedDomainUnits, MLPExperts, StackedExperts


def ids(parameters) -> list[int]:
    return sorted(id(parameter) for parameter in parameters)


@pytest.mark.parametrize("experts", [MLPExperts, partial(StackedExperts, factory=nn.Linear)])
@pytest.mark.parametrize("shared", [True, False])
def test_groups_hold_every_parameter_once(experts, shared):
    head = GatedDomainUnits(4, 2, shared=shared, experts=experts)
    grouped = [parameter for group in head.parameter_groups() for parameter in group["params"]]
    assert ids(grouped) == ids(head.parameters())


def test_deviations_from_a_shared_expert_decay_and_nothing_else():
    head = GatedDomainUnits(4, 2)
    rest, deviations = head.parameter_groups()
    assert ids(deviations["params"]) == ids(head.experts.parameters())
    assert deviations["weight_decay"] == 0.1
    assert "weight_decay" not in rest


def test_the_decay_of_deviations_can_be_set():
    assert GatedDomainUnits(4, 2).parameter_groups(deviation_decay=0.7)[1]["weight_decay"] == 0.7


def test_without_a_shared_expert_there_are_no_deviations_to_decay():
    (group,) = GatedDomainUnits(4, 2, shared=False).parameter_groups()
    assert "weight_decay" not in group


def test_decay_shrinks_deviations_and_leaves_the_rest_under_an_optimiser():
    head = GatedDomainUnits(4, 2)
    with torch.no_grad():
        head.experts.weight.fill_(1)
    shared = head.shared.weight.clone()
    optimizer = torch.optim.SGD(head.parameter_groups(deviation_decay=0.5), lr=0.1)
    for parameter in head.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(head.experts.weight, torch.full_like(head.experts.weight, 0.95))
    assert torch.equal(head.shared.weight, shared)
