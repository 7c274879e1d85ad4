"""The learning rate is a function of the step alone, and optimisers get what the settings and the method ask for."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from gated_domains.training.optimisers import lay_out_state, make_optimizer, rate_at, rates_to, set_rate
from gated_domains.training.settings import TrainingSettings
from small_trainings import build, vectors

CPU = torch.device("cpu")


@pytest.mark.parametrize("step", [0, 1, 37, 99])
def test_the_cosine_takes_the_rate_to_zero_over_all_steps(step):
    settings = TrainingSettings(rate=0.3, schedule="cosine")
    assert rate_at(step, 100, settings) == pytest.approx(0.3 * (1 + math.cos(math.pi * step / 100)) / 2)


def test_the_cosine_starts_at_the_rate_is_half_of_it_half_way_and_falls_throughout():
    settings = TrainingSettings(rate=0.3)
    rates = [rate_at(step, 100, settings) for step in range(101)]
    assert rates[0] == 0.3
    assert rates[50] == pytest.approx(0.15)
    assert rates[100] == pytest.approx(0)
    assert all(one > other for one, other in pairwise(rates))


def test_the_constant_schedule_is_constant():
    settings = TrainingSettings(rate=0.3, schedule="constant")
    assert {rate_at(step, 10, settings) for step in range(10)} == {0.3}


def test_the_rate_depends_on_the_step_alone_and_not_on_what_was_asked_before():
    settings = TrainingSettings(rate=0.3)
    forwards = [rate_at(step, 20, settings) for step in range(20)]
    backwards = [rate_at(step, 20, settings) for step in reversed(range(20))]
    assert forwards == backwards[::-1]


@pytest.mark.parametrize(
    ("name", "kind"), [("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)]
)
def test_each_name_stands_for_its_optimiser_with_these_settings(name, kind):
    method = build("gdu", vectors(30), settings={"deviation_decay": 0.7})
    settings = TrainingSettings(optimizer=name, rate=0.02, weight_decay=0.004, momentum=0.6)
    optimizer = make_optimizer(method, settings, CPU)
    assert type(optimizer) is kind
    assert {group["lr"] for group in optimizer.param_groups} == {0.02}
    assert sorted({group["weight_decay"] for group in optimizer.param_groups}) == [0.004, 0.7]
    if name == "sgd":
        assert {group["momentum"] for group in optimizer.param_groups} == {0.6}


def test_a_rate_is_set_for_every_group_whether_it_is_a_number_or_lies_on_a_device():
    optimizer = make_optimizer(build("gdu", vectors(30)), TrainingSettings(), CPU)
    set_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5] * len(optimizer.param_groups)
    rates_to(optimizer, CPU)
    held = [group["lr"] for group in optimizer.param_groups]
    set_rate(optimizer, 0.25)
    assert all(group["lr"] is tensor for group, tensor in zip(optimizer.param_groups, held, strict=True))
    assert [float(tensor) for tensor in held] == [0.25] * len(held)


def test_state_read_from_a_file_is_laid_out_as_its_parameters_are():
    """A fused optimiser, which goes through memory, would else take each moment for another's."""
    start = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    gradients = [torch.randn_like(start) for _ in range(2)]
    found = []
    for saved in (False, True):
        parameter = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.AdamW([parameter], lr=0.1, fused=True)
        parameter.grad = gradients[0].clone()
        optimizer.step()
        if saved:
            state = optimizer.state[parameter]
            state.update({name: state[name].contiguous() for name in ("exp_avg", "exp_avg_sq")})
            lay_out_state(optimizer)
        parameter.grad = gradients[1].clone()
        optimizer.step()
        found.append(parameter.detach())
    assert torch.equal(*found)
