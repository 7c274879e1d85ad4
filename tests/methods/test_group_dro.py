"""Group DRO: its weights and loss against a slow loop, and a made imbalance whose smaller group it lifts."""

from __future__ import annotations

import copy

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
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.methods import GroupDRO
from small_trainings import build, identical, vectors, weights

ROWS = (40, 90, 30, 25)


def made(**settings: float) -> tuple[GroupDRO, list[DomainBatch]]:
    """Group DRO on the inputs themselves, in doubles, and batches: of all domains, of some, of one row of one."""
    dataset = directions((0, 30, 60, 90), ROWS)
    method = build("group-dro", dataset, body=Identity((2,)), settings=settings).double()
    assert isinstance(method, GroupDRO)
    everything = whole(dataset, dtype=torch.float64)
    return method, [
        some_rows(everything, domains) for domains in ([0, 1, 2, 3] * 3, [2, 2, 0, 0, 2], [3, 1, 1, 1], [1, 1])
    ]


def slow_risks(method: GroupDRO, batch: DomainBatch) -> dict[int, float]:
    losses = []
    for x, target in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        said = oracles.linear(x, method.head.weight.tolist(), method.head.bias.tolist())
        losses.append(oracles.cross_entropy(said, target))
    return oracles.domain_risks(losses, batch.domains.tolist())


# -- weights and loss ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjustment", [0.0, 2.5])
def test_weights_and_loss_are_those_of_the_formula_batch_after_batch(adjustment):
    method, batches = made(eta=0.4, adjustment=adjustment)
    slow = [0.25] * 4
    for batch in batches * 2:
        risks = slow_risks(method, batch)
        slow = oracles.grown(slow, oracles.group_dro_gains(risks, ROWS, 0.4, adjustment))
        terms = method.objective(batch)
        assert list(terms) == ["task"]
        assert float(terms["task"].detach()) == pytest.approx(oracles.weighed_risk(slow, risks), rel=1e-6)
        assert method.weights.values.tolist() == pytest.approx(slow, rel=1e-6)


def test_a_domain_that_a_batch_does_not_have_keeps_its_weight_beside_the_others_that_it_has_not():
    method, batches = made(eta=0.4)
    method.objective(batches[0])
    before = method.weights.values
    method.objective(batches[1])  # of 0 and 2
    after = method.weights.values
    torch.testing.assert_close(after[1] / after[3], before[1] / before[3])
    assert not torch.isclose(after[0] / after[3], before[0] / before[3])


def test_of_two_domains_with_the_same_loss_the_smaller_gets_the_larger_weight():
    one = whole(directions((0,), (30,)))
    alike = DomainBatch(one.inputs.repeat(2, 1), one.targets.repeat(2), torch.arange(2).repeat_interleave(30))
    found = {}
    for adjustment in (0.0, 3.0):
        method = build("group-dro", directions((0, 0), (20, 500)), settings={"adjustment": adjustment, "eta": 0.1})
        method.eval()  # batch norm and dropout would tell the halves apart
        method.training = True
        for _ in range(20):
            method.objective(alike)
        found[adjustment] = method.weights.values.tolist()
    assert found[0.0] == pytest.approx([0.5, 0.5])
    assert found[3.0][0] > 0.6


def test_weights_move_in_training_alone():
    method, batches = made(eta=0.4)
    method.eval().objective(batches[0])
    assert method.weights.values.tolist() == pytest.approx([0.25] * 4)
    method.train().objective(batches[0])
    assert method.weights.values.tolist() != pytest.approx([0.25] * 4)


def test_gradients_are_those_of_small_differences_with_the_weights_as_they_are():
    method, batches = made(eta=0.4)
    method.objective(batches[0])
    assert_gradients_are_those_of_small_differences(method.eval(), batches[2])


def test_the_weights_are_saved_so_that_a_cut_training_goes_on_as_if_never_cut():
    method, batches = made(eta=0.4)
    for batch in batches:
        step(method, batch, torch.optim.SGD(method.parameters(), lr=0.1))
    other = copy.deepcopy(made(eta=0.4)[0])
    other.load_state_dict(method.state_dict())
    for each in (method, other):
        step(each, batches[0], torch.optim.SGD(each.parameters(), lr=0.1))
    assert identical(weights(method), weights(other))
    assert "weights.logarithms" in weights(method)


# -- surroundings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regression", [False, True], ids=["classes", "numbers"])
def test_half_precision_leaves_every_gradient_a_number(regression):
    dataset = vectors(60, regression=regression)
    half_precision_step(build("group-dro", dataset), whole(dataset))


def test_without_domains_it_says_what_it_needs():
    clean = vectors()
    with pytest.raises(DataError, match="Group DRO compares source domains in training, and none is known"):
        build("group-dro", type(clean).from_arrays(clean.inputs.values, clean.targets, task="classification"))


# -- a known answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_it_lifts_the_worst_group_of_a_made_imbalance(seed):
    """Nine rows of ten are of one group, and what is right for these is wrong for the others."""
    train, test = directions((0, 100), (900, 100), seed=seed), directions((0, 100), (2000, 2000), seed=100 + seed)
    worst = {}
    for name, settings in (("erm", {}), ("group-dro", {"eta": 0.1})):
        method = build(name, train, seed=seed, body=Identity((2,)), settings=settings)
        worst[name] = min(accuracies(trained(method, whole(train)), test))
    assert worst["erm"] < 0.55
    assert worst["group-dro"] > worst["erm"] + 0.1
