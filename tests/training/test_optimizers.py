"""The learning rate is a function of the step alone, and optimisers get what the settings and the method ask for."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from gated_domains.runs.recipe import TrainingSettings
from gated_domains.training.optimizers import lay_out_state, make_optimizer, rate_at, rates_to, set_rate
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
    method = build("gdu", vectors(30))
    settings = TrainingSettings(optimizer=name, rate=0.02, weight_decay=0.004, momentum=0.6)
    optimizer = make_optimizer(method, settings, CPU)
    assert type(optimizer) is kind
    assert {group["lr"] for group in optimizer.param_groups} == {0.02}
    assert sorted({group["weight_decay"] for group in optimizer.param_groups}) == [0.004]
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


# -- other schedules ---------------------------------------------------------------------------------------------------


def rates(steps: int, **settings) -> list[float]:
    """The rate of every step."""
    return [rate_at(step, steps, TrainingSettings(**settings)) for step in range(steps)]


def test_the_linear_schedule_falls_by_the_same_at_every_step():
    found = rates(4, rate=0.8, schedule="linear", epochs=2)
    assert found == pytest.approx([0.8, 0.6, 0.4, 0.2])


def test_the_step_schedule_multiplies_the_rate_after_every_epoch():
    found = rates(6, rate=0.8, schedule="step", decay=0.5, epochs=3)
    assert found == pytest.approx([0.8, 0.8, 0.4, 0.4, 0.2, 0.2])
    assert rates(30, rate=1.0, schedule="step", epochs=30)[-1] == pytest.approx(0.96**29)


def test_the_plateau_schedule_goes_by_how_often_it_was_lowered():
    settings = TrainingSettings(rate=0.8, schedule="plateau", decay=0.5)
    assert [rate_at(3, 10, settings, drops=drops) for drops in range(4)] == pytest.approx([0.8, 0.4, 0.2, 0.1])
    assert {rate_at(step, 10, settings, drops=1) for step in range(10)} == {0.4}


def test_only_a_plateau_is_lowered_by_drops():
    for schedule in ("cosine", "constant", "linear", "step"):
        settings = TrainingSettings(rate=0.8, schedule=schedule)
        assert rate_at(3, 10, settings, drops=5) == rate_at(3, 10, settings)


@pytest.mark.parametrize("schedule", ["cosine", "constant", "linear", "step", "plateau"])
def test_the_rate_rises_from_zero_over_the_epochs_of_warmup(schedule):
    found = rates(12, rate=0.8, schedule=schedule, epochs=4, warmup=1, decay=1.0)
    assert found[:3] == pytest.approx([0.2, 0.4, 0.6])  # at step 3 it would be 0.8
    assert found[3] == pytest.approx(0.8)
    assert max(found) == found[3]


def test_after_warmup_the_schedule_has_the_steps_that_are_left():
    assert rates(6, rate=1.0, schedule="linear", epochs=3, warmup=1)[2:] == pytest.approx([1.0, 0.75, 0.5, 0.25])
    cosine = rates(6, rate=1.0, schedule="cosine", epochs=3, warmup=1)[2:]
    assert cosine == pytest.approx([(1 + math.cos(math.pi * place / 4)) / 2 for place in range(4)])


def test_warmup_may_be_part_of_an_epoch():
    found = rates(20, rate=0.9, schedule="constant", epochs=2, warmup=0.2)
    assert found == pytest.approx([0.3, 0.6, *[0.9] * 18])


def test_without_warmup_the_first_step_has_the_whole_rate():
    for schedule in ("cosine", "constant", "linear", "step", "plateau"):
        assert rates(5, rate=0.3, schedule=schedule)[0] == 0.3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 3, "warmup": 3}, "warmup of 3 epochs leaves none of 3; choose fewer"),
        ({"batch_size": 4, "accumulate": 5}, "a batch of 4 cannot be cut into 5 parts"),
        ({"decay": 0.0}, "greater than 0"),
        ({"drop_after": 0}, "greater than or equal to 1"),
        ({"schedule": "exponential"}, "Input should be"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**settings)
