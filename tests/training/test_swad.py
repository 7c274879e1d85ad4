"""The valley of recorded loss curves; the average against a hand average; what batch norms keep afterwards."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gated_domains.evaluation.metrics import validation_loss
from gated_domains.training.callbacks.checkpoint import load_checkpoint, save_checkpoint
from gated_domains.training.callbacks.ema import renew_norms
from gated_domains.training.callbacks.swad import SWAD, Valley
from gated_domains.training.training_data import sample_inputs
from small_trainings import build, identical, material, pictures, train, vectors, weights

#: As a small network's loss on the sources' validation rows goes: down, along, and up again as it over-fits.
RECORDED = [2.1, 1.4, 1.02, 0.81, 0.7, 0.66, 0.68, 0.67, 0.69, 0.71, 0.75, 0.84, 0.9, 0.93, 0.97, 1.0, 1.04, 1.1, 1.2]


def slow_interval(losses: list[float], converged: int = 3, tolerated: int = 6, ratio: float = 1.3):
    """The first and last epoch of the valley, and whether it is over, from the definition."""
    for start in range(len(losses) - converged + 1):
        if all(losses[start] <= losses[start + ahead] for ahead in range(converged)):
            break
    else:
        return max(0, len(losses) - converged), len(losses) - 1, False
    rim = ratio * sum(losses[start : start + converged]) / converged
    for epoch in range(start + 1, len(losses) - tolerated + 1):
        if all(losses[epoch + ahead] > rim for ahead in range(tolerated)):
            return start, epoch - 1, True
    return start, len(losses) - 1, False


def fed(losses: list[float]) -> Valley:
    valley = Valley()
    for loss in losses:
        valley.see(loss)
    return valley


# -- the valley ------------------------------------------------------------------------------------------------------


def test_the_interval_of_a_recorded_curve():
    valley = fed(RECORDED)
    assert valley.start == 5  # 0.66, which 0.68 and 0.67 do not undercut
    assert valley.rim == pytest.approx(1.3 * (0.66 + 0.68 + 0.67) / 3)  # 0.871
    assert valley.over
    assert valley.interval == (5, 11)  # 0.84 is the last within; 0.9 to 1.1 are six above
    assert len(valley.losses) == 18  # what came after the sixth was not looked at


def test_it_is_over_with_the_sixth_epoch_above_the_rim_and_not_before():
    assert not fed(RECORDED[:17]).over
    assert fed(RECORDED[:17]).interval == (5, 16)  # five above: they may yet be part of it
    assert fed(RECORDED[:18]).over


def test_losses_that_only_fall_have_no_valley_and_the_last_three_epochs_stand_for_it():
    valley = fed([5.0, 4.0, 3.0, 2.0, 1.0])
    assert valley.start is None
    assert valley.rim is None
    assert not valley.over
    assert valley.interval == (2, 4)


@pytest.mark.parametrize(("losses", "interval"), [([1.0], (0, 0)), ([1.0, 0.5], (0, 1)), ([1.0, 2.0], (0, 1))])
def test_fewer_epochs_than_it_takes_to_settle_are_all_of_it(losses, interval):
    assert fed(losses).start is None
    assert fed(losses).interval == interval


def test_among_equals_the_first_is_the_start():
    assert fed([1.0, 1.0, 1.0]).start == 0
    assert fed([2.0, 1.0, 1.0, 1.0]).start == 1


def test_a_loss_of_nothing_is_a_valley_that_any_loss_leaves():
    valley = fed([0.0] * 3 + [1e-9] * 6)
    assert valley.over
    assert valley.interval == (0, 2)


def test_a_way_out_that_turns_back_is_part_of_the_valley():
    valley = fed([1.0] * 3 + [9.0] * 5 + [1.0] + [9.0] * 6)
    assert valley.interval == (0, 8)


def test_a_peak_among_the_first_three_epochs_does_not_keep_it_from_starting():
    valley = fed([1.0, 1.0, 50.0, 1.0])
    assert valley.start == 0
    assert valley.interval == (0, 3)


def test_any_curve_has_the_interval_of_the_definition_at_every_epoch():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(300):
        trend = np.concatenate([np.linspace(2, 0.5, rng.integers(1, 8)), np.linspace(0.5, 1.5, rng.integers(1, 20))])
        losses = (trend * rng.uniform(0.8, 1.2, len(trend))).tolist()
        for epochs in range(1, len(losses) + 1):
            *interval, over = slow_interval(losses[:epochs])
            valley = fed(losses[:epochs])
            assert (list(valley.interval), valley.over) == (interval, over)
            seen.add(over)
            if over:
                break  # what follows is not looked at
    assert seen == {False, True}


def test_the_validation_loss_is_that_of_a_loop():
    output = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], np.float32)
    expected = -(math.log(0.7) + math.log(0.1) + math.log(0.4)) / 3
    assert validation_loss(output, np.array([0, 2, 2])) == pytest.approx(expected, rel=1e-6)
    assert validation_loss(np.array([[1.0], [5.0]], np.float32), np.array([2.0, 2.0])) == pytest.approx(5.0)


def test_a_row_that_is_wrong_for_certain_does_not_make_the_loss_infinite():
    assert math.isfinite(validation_loss(np.array([[1.0, 0.0]], np.float32), np.array([1])))


# -- the average -----------------------------------------------------------------------------------------------------


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 2))


def walk(losses: list[float], steps: int = 3, *, seed: int = 0) -> tuple[SWAD, nn.Module, list[dict[str, Any]]]:
    """Weights that go about, and their copies after every step."""
    torch.manual_seed(seed)
    model, swad, visited = network(), SWAD(), []
    for loss in losses:
        for _ in range(steps):
            step(model)
            swad.update(model)
            visited.append({name: p.detach().double().clone() for name, p in model.named_parameters()})
        swad.segment_ended(loss)
    return swad, model, visited


def step(model: nn.Module) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p))


@pytest.mark.parametrize("epochs", [1, 2, 3, 6, 8, 12, 15, 18, 19])
def test_it_is_the_hand_average_over_every_step_of_the_interval(epochs):
    swad, model, visited = walk(RECORDED[:epochs])
    first, last = swad.interval
    inside = visited[first : last + 1]
    swad.apply(model)
    for name, parameter in model.named_parameters():
        expected = sum(weights[name] for weights in inside) / len(inside)
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-5, atol=1e-5)


def test_steps_after_the_valley_count_for_nothing():
    swad, model, _ = walk(RECORDED)
    assert swad.over
    before = swad.average()
    step(model)
    swad.update(model)
    swad.segment_ended(0.1)
    assert identical(swad.average(), before)
    assert swad.interval == (3 * 5, 3 * 12 - 1)


def test_no_more_than_a_few_means_are_kept():
    for epochs in range(1, len(RECORDED)):
        swad, _, _ = walk(RECORDED[:epochs])
        assert sum(1 for _, values in swad.state_dict()["means"] if values) <= 3


def test_buffers_and_frozen_parameters_stay_the_modules_own():
    model = network()
    model[2].weight.requires_grad_(False)
    swad = SWAD()
    for _ in range(3):
        model[1].running_mean.add_(1)
        model[2].weight.add_(1)
        swad.update(model)
    swad.segment_ended(1.0)
    swad.apply(model)
    assert model[1].running_mean.eq(3).all()
    assert "2.weight" not in swad.average()


def test_half_precision_is_averaged_in_full():
    model = nn.Linear(1, 1, bias=False).bfloat16()
    swad = SWAD()
    for value in (1.0, 1.0078125, 1.0):
        nn.init.constant_(model.weight, value)
        swad.update(model)
    swad.segment_ended(1.0)
    assert swad.average()["weight"].item() == pytest.approx(1 + 0.0078125 / 3, abs=1e-6)
    swad.apply(model)
    assert model.weight.dtype == torch.bfloat16


def test_what_is_rewritten_has_its_average_start_anew():
    swad, model, visited = walk([1.0, 1.0])
    with swad.restarting(model), torch.no_grad():
        model[0].weight.fill_(7.0)
    found = swad.average()
    assert found["0.weight"].eq(7).all()
    expected = sum(weights["2.weight"] for weights in visited) / len(visited)
    torch.testing.assert_close(found["2.weight"].double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("epochs", [1, 4, 7, 13, 18])
def test_a_state_goes_on_exactly_through_a_checkpoint(epochs, tmp_path):
    swad, model, _ = walk(RECORDED[:epochs])
    step(model)
    swad.update(model)  # in the middle of an epoch
    path = save_checkpoint(tmp_path, 1, {"swad": swad.state_dict()})
    resumed, other = SWAD(), copy.deepcopy(model)
    resumed.load_state_dict(load_checkpoint(path)["swad"])
    for one, its in ((swad, model), (resumed, other)):
        torch.manual_seed(9)
        for loss in RECORDED[epochs:]:
            step(its)
            one.update(its)
            one.segment_ended(loss)
    assert resumed.interval == swad.interval
    assert identical(resumed.average(), swad.average())


def test_it_says_which_steps_were_averaged():
    found = walk(RECORDED)[0]
    assert found.note == "the weights are the average over the flat valley of the validation loss (SWAD)"
    assert found.interval == (3 * 5, 3 * 12 - 1)
    note = walk([1.0])[0].note
    assert note.endswith("the last steps (SWAD): the validation loss had not settled")


# -- batch norms -----------------------------------------------------------------------------------------------------


def test_running_statistics_are_the_mean_over_batches_of_training_inputs():
    data = material(vectors(600), train=560, validation=20)
    method = build("erm", data.dataset).train()
    method.backbone.body.blocks[0][1].running_mean.fill_(99.0)
    before = weights(method)
    renew_norms(method, lambda: torch.cat(list(sample_inputs(data, 0))).split(100))
    assert method.training
    first = method.backbone.body.blocks[0]
    with torch.no_grad():
        every = torch.cat(list(sample_inputs(data, 0))).split(100)
        batches = [first[0](inputs).double() for inputs in every[:5]]  # of six
    torch.testing.assert_close(
        first[1].running_mean.double(), sum(b.mean(0) for b in batches) / 5, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(first[1].running_var.double(), sum(b.var(0) for b in batches) / 5, rtol=1e-4, atol=1e-5)
    assert first[1].momentum == 0.1
    changed = {name for name, value in weights(method).items() if not torch.equal(value, before[name])}
    assert changed
    assert all("running" in name or "num_batches" in name for name in changed)


@pytest.mark.parametrize(
    ("name", "dataset", "settings"),
    [
        ("gdu", pictures, {}),
        ("gdu", pictures, {"norm_statistics": "batch"}),
        ("gdu", vectors, {}),
        ("arm-bn", vectors, {}),
    ],
)
def test_statistics_of_gated_norms_and_of_a_method_that_adapts_are_renewed_too(name, dataset, settings):
    data = material(dataset(120), train=100, validation=20)
    method = build(name, data.dataset, settings=settings)
    train(method, data, epochs=1)
    norms = [module for module in method.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert norms
    for norm in norms:
        norm.running_mean.fill_(99.0)
    renew_norms(method.eval(), lambda: sample_inputs(data, 0))
    assert all(0 < norm.running_mean.abs().max() < 50 for norm in norms)
    assert all(norm.num_batches_tracked == 1 for norm in norms)
    assert not any(module.training for module in method.modules())


def test_a_frozen_body_keeps_its_statistics():
    data = material(vectors(60), train=40, validation=20)
    method = build("erm", data.dataset, mode="fine_tune").train()
    before = weights(method)
    renew_norms(method, lambda: sample_inputs(data, 0))
    assert identical(weights(method), before)
