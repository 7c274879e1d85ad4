"""The average against a loop over numbers; swapping puts everything back; a state goes on exactly."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from gated_domains.layer import GatedDomainUnits
from gated_domains.training.callbacks.checkpoint import load_checkpoint, save_checkpoint
from gated_domains.training.callbacks.ema import EMA


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Flatten(), GatedDomainUnits(8, 2, num_bases=2)
    )


def train(model: nn.Module, ema: EMA, steps: int) -> torch.optim.Optimizer:
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        model(torch.randn(6, 1, 4, 4)).square().mean().backward()
        optimiser.step()
        ema.update(model)
    return optimiser


def snapshot(model: nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def identical(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("decay", [0.05, 0.5, 0.999])
def test_the_average_is_that_of_a_loop_over_numbers(decay):
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, 3.0)
    ema, expected = EMA(model, decay), 3.0
    for step in range(30):
        value = float((-1) ** step * step)
        nn.init.constant_(model.weight, value)
        ema.update(model)
        kept = min(decay, (1 + step) / (10 + step))
        expected = kept * expected + (1 - kept) * value
    assert ema.averages["weight"].item() == pytest.approx(expected, rel=1e-12)
    assert ema.count == 30


def test_early_averages_forget_the_random_start():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 100.0)
    ema = EMA(model, 0.999)
    nn.init.constant_(model.weight, 1.0)
    ema.update(model)
    assert ema.averages["weight"].item() == pytest.approx(0.1 * 100 + 0.9 * 1)


def test_the_module_carries_the_averages_inside_and_its_own_after():
    model = network()
    ema = EMA(model)
    optimiser = train(model, ema, 5)
    before, parameters = snapshot(model), list(model.parameters())
    with ema.swapped(model):
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, ema.averages[name])
            assert not torch.equal(parameter, before[name])
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, before[name])  # statistics, sigma, kappa, coverage
    assert identical(snapshot(model), before)
    assert all(p is q for p, q in zip(model.parameters(), parameters, strict=True))
    assert all(p is q for p, q in zip(optimiser.param_groups[0]["params"], parameters, strict=True))


def test_swapping_in_the_middle_does_not_disturb_the_training():
    def trained(look: bool) -> dict[str, Any]:
        torch.manual_seed(0)
        model = network()
        ema = EMA(model)
        train(model, ema, 3)
        if look:
            with ema.swapped(model), torch.no_grad():
                model.eval()(torch.ones(2, 1, 4, 4))
            model.train()
        train(model, ema, 3)
        return snapshot(model) | ema.averages

    assert identical(trained(False), trained(True))


@pytest.mark.parametrize("accident", [RuntimeError, KeyboardInterrupt])
def test_its_own_parameters_come_back_after_an_accident(accident):
    model = network()
    ema = EMA(model)
    train(model, ema, 2)
    before = snapshot(model)
    with pytest.raises(accident), ema.swapped(model):
        raise accident(nn.init.zeros_(model[0].weight))
    assert identical(snapshot(model), before)


def test_its_own_parameters_come_back_where_swapping_itself_fails(monkeypatch):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    ema = EMA(model)
    train_on = torch.randn(3, 2)
    torch.optim.SGD(model.parameters(), lr=0.1).step(lambda: model(train_on).sum().backward())
    ema.update(model)
    before = snapshot(model)
    ema.averages["1.weight"].resize_(5)  # something is wrong half way through
    monkeypatch.setattr("gated_domains.training.callbacks.ema._same_parameters", lambda *sides: None)
    with pytest.raises(RuntimeError), ema.swapped(model):
        pass
    assert identical(snapshot(model), before)


def test_gradients_and_random_numbers_are_left_alone():
    model = nn.Linear(2, 2)
    ema = EMA(model)
    model(torch.randn(3, 2)).sum().backward()
    gradient, random = model.weight.grad.clone(), torch.get_rng_state()
    ema.update(model)
    with ema.swapped(model):
        pass
    assert torch.equal(model.weight.grad, gradient)
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(average.requires_grad for average in ema.averages.values())


def test_frozen_parameters_and_buffers_are_not_kept():
    model = network()
    model[0].requires_grad_(False)
    names = {name for name, _ in model[1:].named_parameters(prefix="")}
    assert len(EMA(model).averages) == len(names)
    frozen = nn.Linear(2, 2).requires_grad_(False)
    ema = EMA(frozen)
    ema.update(frozen)
    with ema.swapped(frozen):
        pass
    assert ema.averages == {}


def test_tied_parameters_are_averaged_once():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    ema = EMA(model)
    nn.init.zeros_(model[0].weight)
    ema.update(model)
    assert list(ema.averages) == ["0.weight"]
    with ema.swapped(model):
        assert torch.equal(model[1].weight, ema.averages["0.weight"])


def test_small_steps_are_not_lost_in_half_precision():
    model = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    nn.init.constant_(model.weight, 1.0)
    ema = EMA(model, 0.999)
    ema.count = 100_000
    nn.init.constant_(model.weight, 1.5)
    for _ in range(100):
        ema.update(model)
    assert ema.averages["weight"].item() == pytest.approx(1.5 - 0.5 * 0.999**100, abs=1e-4)
    with ema.swapped(model):
        assert model.weight.dtype == torch.bfloat16


def test_the_averages_go_where_the_module_goes():
    model = nn.Linear(2, 2)
    ema = EMA(model)
    ema.update(model.to("meta"))
    assert {average.device.type for average in ema.averages.values()} == {"meta"}


def test_a_state_goes_on_exactly_through_a_checkpoint(tmp_path):
    model = network()
    ema = EMA(model, 0.9)
    train(model, ema, 4)
    path = save_checkpoint(tmp_path, 4, {"model": model.state_dict(), "ema": ema.state_dict()})
    again = network()
    state = load_checkpoint(path)
    again.load_state_dict(state["model"])
    resumed = EMA(again, 0.9)
    resumed.load_state_dict(state["ema"])
    for one, average in ((model, ema), (again, resumed)):
        torch.manual_seed(5)
        train(one, average, 3)
    assert resumed.count == ema.count == 7
    assert identical(resumed.averages, ema.averages)


def test_a_loaded_state_is_a_copy():
    model = nn.Linear(2, 2)
    one, other = EMA(model), EMA(model)
    other.load_state_dict(one.state_dict())
    nn.init.zeros_(model.weight)
    other.update(model)
    assert not torch.equal(one.averages["weight"], other.averages["weight"])


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_decay_outside_0_to_1_is_refused(decay):
    with pytest.raises(ValueError, match=rf"decay must lie between 0 and 1, got {decay}"):
        EMA(nn.Linear(1, 1), decay)


def test_another_model_is_refused():
    model = nn.Sequential(nn.Linear(2, 2))
    ema = EMA(model)
    with pytest.raises(ValueError, match=r"module\.0\.bias"):
        ema.update(nn.ModuleDict({"module": copy.deepcopy(model)}))
    with pytest.raises(ValueError, match=r"0\.weight .* another shape"):
        ema.update(nn.Sequential(nn.Linear(3, 2)))
    with pytest.raises(ValueError, match=r"0\.bias"), ema.swapped(nn.Sequential(nn.Linear(2, 2, bias=False))):
        pass
    model[0].weight.requires_grad_(False)
    with pytest.raises(ValueError, match=r"0\.weight .* make a new EMA"):
        ema.update(model)
    with pytest.raises(ValueError, match=r"0\.weight"):
        ema.load_state_dict({"count": 1, "averages": {}})
