"""Activation checkpointing: the same numbers as without it, whatever stands in the part that is computed again."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gated_domains.backbones.checkpointing import checkpointed
from gated_domains.backbones.gated_norm import gate_norms, mixing


def part() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(inplace=True), nn.Conv2d(5, 4, 3))


def stepped(model: nn.Module, x: torch.Tensor, *, again: bool) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Gradients and state after one way there and back."""
    out = checkpointed(model, x) if again else model(x)
    out.square().sum().backward()
    return [parameter.grad for parameter in model.parameters()], model.state_dict()


@pytest.mark.parametrize("training", [True, False])
def test_gradients_and_running_statistics_are_those_of_a_step_without_it(training):
    model = part().train(training)
    x, statistics = torch.randn(6, 3, 8, 8), model[1].running_mean
    plain, kept = stepped(copy.deepcopy(model), x, again=False)
    found, state = stepped(model, x, again=True)
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert all(torch.equal(value, kept[name]) for name, value in state.items())
    assert int(state["1.num_batches_tracked"]) == int(training)
    assert dict(model.named_buffers())["1.running_mean"] is statistics


def test_the_part_is_run_twice_and_dropout_drops_the_same_numbers():
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Tanh(), nn.Linear(50, 1, bias=False))
    seen = []
    model[1].register_forward_hook(lambda _m, _i, output: seen.append(output.detach().clone()))
    checkpointed(model, torch.randn(3, 4)).sum().backward()
    assert len(seen) == 2
    assert torch.equal(*seen)


def test_gated_norms_have_the_mixture_of_the_first_time_when_it_is_no_longer_in_force():
    model = part()
    gate_norms(model, 2)
    nn.init.normal_(model[1].weight_deviations)
    other, x = copy.deepcopy(model), torch.randn(6, 3, 8, 8)
    mixtures = [torch.rand(6, 2, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2)]
    for network, mixture, again in ((model, mixtures[0], True), (other, mixtures[1], False)):
        with mixing(network, mixture):
            out = checkpointed(network, x) if again else network(x)
        out.square().sum().backward()
        assert network[1].mixture is None
    torch.testing.assert_close(mixtures[0].grad, mixtures[1].grad)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
