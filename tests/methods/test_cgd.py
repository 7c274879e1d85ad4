"""CGD: its weights and loss against a slow loop, what gradients are compared, and groups that help all others."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

import oracles
from domain_problems import (
    accuracies,
    assert_gradients_are_those_of_small_differences,
    directions,
    half_precision_step,
    some_rows,
    step,
    trained,
    whole,
)
from gated_domains.backbones.backbone import Identity
from gated_domains.backbones.bodies import MLP
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.methods import CGD, Method
from small_trainings import build, identical, vectors, weights

ROWS = (40, 90, 30, 25)


def made(body: object = None, **settings: object) -> tuple[CGD, list[DomainBatch]]:
    """CGD in doubles, on the inputs themselves or a body; and batches: of all domains, of some, of one row of one."""
    dataset = directions((0, 60, 120, 170), ROWS)
    method = build("cgd", dataset, body=body or Identity((2,)), settings=settings).double()
    assert isinstance(method, CGD)
    everything = whole(dataset, dtype=torch.float64)
    return method, [
        some_rows(everything, domains) for domains in ([0, 1, 2, 3] * 3, [2, 2, 0, 0, 2], [3, 1, 1, 1], [1, 1])
    ]


def slow_gains(method: CGD, batch: DomainBatch, eta: float, adjustment: float) -> tuple[dict, dict]:
    """Risks and gains of a linear head, by the formula."""
    weight, bias = method.head.weight.tolist(), method.head.bias.tolist()
    rows = list(zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True))
    losses = [oracles.cross_entropy(oracles.linear(x, weight, bias), target) for x, target in rows]
    risks = oracles.domain_risks(losses, batch.domains.tolist())
    gradients = {
        domain: oracles.linear_softmax_gradient([x for x, _ in part], [y for _, y in part], weight, bias)
        for domain, part in oracles.by_domain(rows, batch.domains.tolist()).items()
    }
    return risks, oracles.cgd_gains(risks, gradients, ROWS, eta, adjustment)


def separate_gradients(method: CGD, batch: DomainBatch, *, head: bool) -> dict[int, list[float]]:
    """The gradient of each domain's risk, from a pass of its rows alone: the body must not tell rows from others."""
    found = {}
    for domain in sorted(set(batch.domains.tolist())):
        own = batch.domains == domain
        method.zero_grad()
        method.task.loss(method.logits(batch.inputs[own]), batch.targets[own]).backward()
        chosen = method.head if head else method
        found[domain] = torch.cat([p.grad.flatten() for p in chosen.parameters()]).tolist()
    method.zero_grad()
    return found


# -- weights and loss ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjustment", [0.0, 2.5])
def test_weights_and_loss_are_those_of_the_formula_batch_after_batch(adjustment):
    method, batches = made(eta=0.8, adjustment=adjustment)
    slow = oracles.cgd_weights(ROWS, adjustment)
    assert method.weights.values.tolist() == pytest.approx(slow, rel=1e-6)
    for batch in batches * 2:
        risks, gains = slow_gains(method, batch, 0.8, adjustment)
        slow = oracles.grown(slow, gains)
        terms = method.objective(batch)
        assert list(terms) == ["task"]
        assert method.weights.values.tolist() == pytest.approx(slow, rel=1e-5)
        assert float(terms["task"].detach()) == pytest.approx(oracles.weighed_risk(slow, risks), rel=1e-5)


@pytest.mark.parametrize("gradients", ["all", "head"])
def test_gradients_are_compared_over_all_parameters_or_over_those_of_the_head(gradients):
    method, batches = made(MLP((2,), (5, 4), norm=False, dropout=0), eta=1.0, adjustment=0.0, gradients=gradients)
    batch = batches[0]
    with torch.no_grad():
        losses = method.task.losses(method.logits(batch.inputs), batch.targets).tolist()
    risks = oracles.domain_risks(losses, batch.domains.tolist())
    found, other = (
        oracles.grown(
            [0.25] * 4,
            oracles.cgd_gains(risks, separate_gradients(method, batch, head=head), ROWS, 1.0, 0.0),
        )
        for head in (gradients == "head", gradients != "head")
    )
    method.objective(batch)
    assert method.weights.values.tolist() == pytest.approx(found, rel=1e-5)
    assert method.weights.values.tolist() != pytest.approx(other, rel=1e-3)


def test_a_batch_in_blocks_is_weighed_alike_with_one_pass_for_each_block():
    dataset = directions((0, 60, 120, 170), ROWS)
    rows = some_rows(whole(dataset), [2] * 5 + [0] * 5)
    blocks = DomainBatch(rows.inputs, rows.targets, rows.domains, blocks=2)
    found, passes = [], []
    for batch in (rows, blocks):
        method = build("cgd", dataset, body=Identity((2,)), settings={"eta": 1.0})
        with patch("torch.autograd.grad", wraps=torch.autograd.grad) as grad:
            loss = method.objective(batch)["task"]
        passes.append(grad.call_count)
        found.append((method.weights.values, loss.detach()))
    assert passes == [4, 2]
    torch.testing.assert_close(found[0], found[1])


def test_one_domain_in_two_blocks_is_one_domain():
    dataset = directions((0, 60), (40, 40))
    rows = some_rows(whole(dataset), [0] * 10 + [1] * 5)
    found = []
    for blocks in (None, 3):
        method = build("cgd", dataset, body=Identity((2,)), settings={"eta": 1.0})
        method.objective(DomainBatch(rows.inputs, rows.targets, rows.domains, blocks))
        found.append(method.weights.values)
    torch.testing.assert_close(*found)


def test_the_loss_alone_is_back_propagated():
    method, batches = made(eta=1.0)
    terms = method.objective(batches[0])
    assert all(parameter.grad is None for parameter in method.parameters())
    terms["task"].backward()
    slow = [0.0] * 6
    gradients = separate_gradients(made(eta=1.0)[0], batches[0], head=False)
    for weight, gradient in zip(method.weights.values.tolist(), gradients.values(), strict=True):
        slow = [total + weight * value for total, value in zip(slow, gradient, strict=True)]
    assert torch.cat([p.grad.flatten() for p in method.parameters()]).tolist() == pytest.approx(slow, rel=1e-6)


def test_gradients_are_those_of_small_differences_with_the_weights_as_they_are():
    method, batches = made(eta=0.8)
    method.objective(batches[0])
    assert_gradients_are_those_of_small_differences(method.eval(), batches[2])


def test_weights_move_in_training_alone_and_where_there_are_gradients():
    method, batches = made(eta=1.0)
    before = method.weights.values
    method.eval().objective(batches[0])
    with torch.no_grad():
        method.train().objective(batches[0])
    torch.testing.assert_close(method.weights.values, before, rtol=0, atol=0)
    method.objective(batches[0])
    assert not torch.allclose(method.weights.values, before)


def test_no_weight_falls_below_the_least():
    method, batches = made(eta=1e4)
    method.objective(batches[0])
    assert float(method.weights.values.min()) == pytest.approx(1e-5, rel=1e-5)


def test_a_body_that_is_frozen_is_left_out_of_the_comparison():
    dataset, found = vectors(), []
    for gradients in ("all", "head"):
        method = build("cgd", dataset, mode="fine_tune", settings={"eta": 1.0, "gradients": gradients})
        torch.manual_seed(0)
        method.objective(whole(dataset))
        found.append(method.weights.values)
    torch.testing.assert_close(*found, rtol=0, atol=0)
    assert not torch.allclose(found[0], torch.full((3,), 1 / 3))


def test_the_weights_are_saved_so_that_a_cut_training_goes_on_as_if_never_cut():
    method, batches = made(eta=0.8)
    for batch in batches:
        step(method, batch, torch.optim.SGD(method.parameters(), lr=0.1))
    other = made(eta=0.8)[0]
    other.load_state_dict(method.state_dict())
    for each in (method, other):
        step(each, batches[0], torch.optim.SGD(each.parameters(), lr=0.1))
    assert identical(weights(method), weights(other))
    assert "weights.logarithms" in weights(method)


# -- surroundings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regression", [False, True], ids=["classes", "numbers"])
def test_half_precision_leaves_every_gradient_a_number(regression):
    dataset = vectors(60, regression=regression)
    half_precision_step(build("cgd", dataset), whole(dataset))


def test_without_domains_it_says_what_it_needs():
    clean = vectors()
    with pytest.raises(DataError, match="CGD compares source domains in training, and none is known"):
        build("cgd", type(clean).from_arrays(clean.inputs.values, clean.targets, task="classification"))


# -- known answers ---------------------------------------------------------------------------------------------------


def after_training(name: str, train, seed: int, **settings: float) -> Method:
    method = build(name, train, seed=seed, body=Identity((2,)), settings=settings)
    return trained(method, whole(train))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_group_that_helps_all_gets_the_weight_and_lifts_the_worst(seed):
    """Of three directions the middle one is the compromise, and few rows have it."""
    degrees = (0, 50, 100)
    train, test = directions(degrees, (800, 100, 100), seed=seed), directions(degrees, (2000,) * 3, seed=100 + seed)
    method = after_training("cgd", train, seed, eta=0.1)
    assert int(method.weights.values.argmax()) == 1
    assert float(method.weights.values[1]) > 0.45
    assert min(accuracies(method, test)) > min(accuracies(after_training("erm", train, seed), test)) + 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_a_group_with_labels_by_chance_gets_least_from_it_and_most_from_group_dro(seed):
    train = directions((0, 0, 0), (300, 300, 300), noisy=(2,), seed=seed)
    found = {name: after_training(name, train, seed, eta=0.1).weights.values for name in ("cgd", "group-dro")}
    assert int(found["cgd"].argmin()) == 2
    assert int(found["group-dro"].argmax()) == 2
    assert float(found["group-dro"][2]) > 0.8
