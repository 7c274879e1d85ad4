"""IRM: risks and penalty against slow loops, when its weight jumps, and the two bits of its paper."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch

import oracles
from domain_problems import (
    accuracies,
    assert_gradients_are_those_of_small_differences,
    half_precision_step,
    some_rows,
    step,
    two_bits,
    whole,
)
from gated_domains.backbones.backbone import Identity
from gated_domains.backbones.bodies import MLP
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.layer.experts import Logits
from gated_domains.methods import IRM
from small_trainings import build, vectors

UNEVEN = [0, 2, 2, 0, 2, 0, 0, 2, 1]  # one row of a domain, and none of another where there are four


def linear(*, regression: bool = False, **settings: float) -> tuple[IRM, DomainBatch]:
    """IRM on the inputs themselves, in doubles, and a batch of it."""
    dataset = vectors(60, regression=regression)
    method = build("irm", dataset, body=Identity((6,)), settings=settings).double()
    assert isinstance(method, IRM)
    return method, some_rows(whole(dataset, dtype=torch.float64), UNEVEN)


def slow_terms(method: IRM, batch: DomainBatch) -> tuple[float, float]:
    """The mean risk of the domains, and the penalty."""
    losses, slopes = [], []
    for x, target in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        said = oracles.linear(x, method.head.weight.tolist(), method.head.bias.tolist())
        if isinstance(target, int):
            losses.append(oracles.cross_entropy(said, target))
            slopes.append(oracles.cross_entropy_slope(said, target))
        else:
            losses.append((said[0] - (target - 100) / 4) ** 2)
            slopes.append(oracles.squared_error_slope(said[0], (target - 100) / 4))
    risks = oracles.domain_risks(losses, batch.domains.tolist())
    return math.fsum(risks.values()) / len(risks), oracles.irm_penalty(slopes, batch.domains.tolist())


def values(terms: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: float(term.detach()) for name, term in terms.items()}


# -- risk and penalty ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regression", [False, True], ids=["classes", "numbers"])
def test_the_terms_are_the_mean_risk_of_domains_and_their_mean_squared_slope(regression):
    method, batch = linear(regression=regression)
    risk, penalty = slow_terms(method, batch)
    assert values(method.objective(batch)) == pytest.approx({"task": risk, "irm": penalty}, rel=1e-9)


def test_a_row_s_slope_is_the_change_of_its_loss_by_a_factor_on_its_outputs():
    method, batch = linear()
    outputs = method.logits(batch.inputs).prediction.detach()
    _, slopes = method.with_slopes(Logits(outputs), batch.targets)
    ends = [method.task.losses(Logits(outputs * factor), batch.targets) for factor in (1 + 1e-6, 1 - 1e-6)]
    torch.testing.assert_close(slopes.detach(), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8)


def test_the_penalty_of_parts_of_a_batch_is_on_average_that_of_the_batch():
    """As no square of a mean is: on three rows of ten that would be too large by the variance of a third of it."""
    method, _ = linear(anneal_epochs=0, weight=1.0)
    batch = some_rows(whole(vectors(60), dtype=torch.float64), [1] * 7)
    parts = [torch.tensor(pick) for pick in combinations(range(7), 3)]
    found = [
        float(method.objective(DomainBatch(batch.inputs[p], batch.targets[p], batch.domains[p]))["irm"].detach())
        for p in parts
    ]
    assert math.fsum(found) / len(found) == pytest.approx(float(method.objective(batch)["irm"].detach()), rel=1e-9)


def test_domains_of_one_row_each_have_a_risk_and_no_penalty():
    method, _ = linear()
    batch = some_rows(whole(vectors(60), dtype=torch.float64), [0, 1, 2])
    found = values(method.objective(batch))
    assert found["irm"] == 0
    assert found["task"] == pytest.approx(slow_terms(method, batch)[0], rel=1e-9)


def test_two_views_of_a_sample_count_as_one_row():
    """Their slopes are not independent, so a pair of them would bring the square of a mean back."""
    method, batch = linear(anneal_epochs=0, weight=1.0)
    shifted = batch.inputs + 0.1 * torch.randn_like(batch.inputs)
    losses, slopes = zip(
        *(method.with_slopes(method.logits(view), batch.targets) for view in (batch.inputs, shifted)), strict=True
    )
    twice = batch.select(torch.arange(2 * len(batch)) // 2)
    soft = method.task.read(method.logits(twice.inputs)).detach()
    views = torch.stack([batch.inputs, shifted], 1).flatten(0, 1)
    found = values(method.objective(replace(twice, inputs=views, soft_targets=soft, soft_weight=torch.tensor(0.0))))
    domains = batch.domains.tolist()
    risks = oracles.domain_risks((sum(losses) / 2).tolist(), domains)
    assert found["task"] == pytest.approx(math.fsum(risks.values()) / len(risks), rel=1e-9)
    assert found["irm"] == pytest.approx(oracles.irm_penalty((sum(slopes) / 2).tolist(), domains), rel=1e-9)


@pytest.mark.parametrize("regression", [False, True], ids=["classes", "numbers"])
def test_gradients_are_those_of_small_differences(regression):
    method, batch = linear(regression=regression, anneal_epochs=0, weight=64.0)
    assert_gradients_are_those_of_small_differences(method.eval(), batch)


def begin(method, epoch: int) -> None:
    """An epoch of training begins."""
    method.renew(lambda: [], epoch=epoch, optimizer=torch.optim.SGD(method.parameters(), lr=0.1))


# -- the weight of the penalty ---------------------------------------------------------------------------------------


def test_the_weight_is_one_until_the_annealing_ends_and_then_divides_the_loss():
    method, batch = linear(anneal_epochs=2, weight=50.0)
    risk, penalty = slow_terms(method, batch)
    found = []
    for epoch in range(4):
        begin(method, epoch)
        found.append(values(method.objective(batch)))
    before, after = {"task": risk, "irm": penalty}, {"task": risk / 50, "irm": penalty}
    assert found == [pytest.approx(terms, rel=1e-6) for terms in (before, before, after, after)]


def test_a_weight_below_one_divides_nothing():
    method, batch = linear(anneal_epochs=0, weight=0.25)
    risk, penalty = slow_terms(method, batch)
    assert values(method.objective(batch)) == pytest.approx({"task": risk, "irm": 0.25 * penalty}, rel=1e-9)


def test_an_evaluation_does_not_move_the_weight():
    method, batch = linear(anneal_epochs=1, weight=50.0)
    begin(method, 0)
    before = values(method.objective(batch))
    method.renew(lambda: [], epoch=1, optimizer=None)
    assert values(method.objective(batch)) == before


def test_how_far_annealing_is_is_saved_with_the_method():
    batch = whole(vectors(60))
    first, second = (build("irm", vectors(), seed=0, settings={"anneal_epochs": 2}) for _ in range(2))
    begin(first, 2)
    second.load_state_dict(first.state_dict())
    assert values(second.eval().objective(batch)) == values(first.eval().objective(batch))


# -- surroundings ----------------------------------------------------------------------------------------------------


def test_half_precision_leaves_every_gradient_a_number():
    half_precision_step(build("irm", vectors(), settings={"anneal_epochs": 0}), whole(vectors(60)))


def test_its_terms_can_be_had_without_gradients():
    method, batch = linear()
    with torch.no_grad():
        found = values(method.objective(batch))
    assert found == values(method.objective(batch))


def test_without_domains_it_says_what_it_needs():
    clean = vectors()
    with pytest.raises(DataError, match="IRM compares source domains in training, and none is known"):
        build("irm", type(clean).from_arrays(clean.inputs.values, clean.targets, task="classification"))


# -- a known answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_on_the_two_bits_of_its_paper_it_ignores_the_colour_that_erm_goes_by(seed):
    """Colour says more than shape in training, though not as much in each domain; in the test it says the opposite."""
    train, test = two_bits([0.1, 0.2]), two_bits([0.9])
    found = {}
    for name, settings in (("erm", {}), ("irm", {"weight": 1e4, "anneal_epochs": 1})):
        body = MLP((2,), (8,), norm=False, dropout=0)
        method = build(name, train, seed=seed, body=body, settings=settings)
        optimizer = torch.optim.Adam(method.parameter_groups(), lr=0.05)
        for epoch, steps in enumerate((60, 190)):
            begin(method, epoch)
            for _ in range(steps):
                step(method.train(), whole(train), optimizer)
        (found[name],) = accuracies(method.eval(), test)
    assert found["erm"] == pytest.approx(0.1)  # by colour
    assert found["irm"] == pytest.approx(0.75)  # by shape
