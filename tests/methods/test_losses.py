"""What ERM and its kin minimise, against slow loops written from the formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gated_domains.backbones.backbone import Identity
from gated_domains.data.batches import DomainBatch
from gated_domains.data.dataset import DomainDataset
from gated_domains.experiments.model import class_weights
from gated_domains.layer.experts import Logits
from gated_domains.methods import Classes, Numbers
from small_trainings import build, vectors


def cross_entropy(logits: list[float], target: int) -> float:
    return math.log(math.fsum(math.exp(value) for value in logits)) - logits[target]


def linear(weight: torch.Tensor, bias: torch.Tensor, x: list[float]) -> list[float]:
    rows = zip(weight.tolist(), bias.tolist(), strict=True)
    return [math.fsum(a * b for a, b in zip(row, x, strict=True)) + shift for row, shift in rows]


def batch_of(dataset: DomainDataset, rows: int = 40) -> DomainBatch:
    return DomainBatch(torch.from_numpy(dataset.inputs.values[:rows]), torch.from_numpy(dataset.targets[:rows]), None)


@pytest.mark.parametrize("activation", ["none", "tanh"])
def test_erm_is_the_mean_loss_of_a_linear_head(activation):
    dataset = vectors()
    method = build("erm", dataset, body=Identity((6,)), settings={"activation": activation})
    batch = batch_of(dataset)
    bend = math.tanh if activation == "tanh" else (lambda value: value)
    losses = []
    for x, target in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        logits = [bend(value) for value in linear(method.head.weight, method.head.bias, x)]
        losses.append(cross_entropy(logits, target))
    (found,) = method.objective(batch).values()
    assert float(found.detach()) == pytest.approx(math.fsum(losses) / 40, rel=1e-5)


@pytest.mark.parametrize("activation", ["none", "tanh"])
def test_the_erm_ensemble_is_the_mean_of_its_heads(activation):
    dataset = vectors()
    method = build("erm-ensemble", dataset, body=Identity((6,)), settings={"heads": 4, "activation": activation})
    batch = batch_of(dataset)
    bend = math.tanh if activation == "tanh" else (lambda value: value)
    weight, bias = (value.detach() for value in (method.heads.weight, method.heads.bias))
    losses = []
    for x, target in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        said = [[bend(value) for value in linear(weight[j], bias[j], x)] for j in range(4)]
        losses.append(cross_entropy([math.fsum(head[c] for head in said) / 4 for c in range(3)], target))
    (found,) = method.objective(batch).values()
    assert float(found.detach()) == pytest.approx(math.fsum(losses) / 40, rel=1e-5)


def test_logits_of_the_erm_ensemble_are_unbounded_like_those_of_erm_unless_asked_otherwise():
    inputs = 100 * batch_of(vectors()).inputs
    found = [build(name, vectors(), body=Identity((6,))).logits(inputs).prediction for name in ("erm", "erm-ensemble")]
    assert all(float(logits.detach().abs().max()) > 1 for logits in found)  # unbounded: no tanh


def test_class_weights_average_one_over_the_training_rows_and_give_every_class_the_same_say():
    targets = np.array([0] * 30 + [1] * 8 + [2] * 2 + [3] * 5)
    dataset = DomainDataset.from_arrays(np.random.default_rng(0).normal(size=(45, 2)), targets, task="classification")
    train = np.arange(40)  # none of class 3
    weight = class_weights(dataset, train)
    assert weight.tolist() == pytest.approx([40 / (3 * 30), 40 / (3 * 8), 40 / (3 * 2), 0])
    assert float(weight[targets[train]].mean()) == pytest.approx(1)
    say = [float(weight[c]) * int((targets[train] == c).sum()) for c in range(3)]
    assert say == pytest.approx([40 / 3] * 3)


def test_weighted_losses_are_summed_by_weight_and_divided_by_the_rows_of_the_batch():
    logits, targets = torch.randn(9, 3), torch.tensor([0, 0, 0, 1, 2, 1, 0, 0, 2])
    weight = torch.tensor([0.5, 2.0, 1.25])
    found = Classes(weight).loss(Logits(logits), targets)
    slow = [
        float(weight[target]) * cross_entropy(row, target)
        for row, target in zip(logits.tolist(), targets.tolist(), strict=True)
    ]
    assert float(found) == pytest.approx(math.fsum(slow) / 9, rel=1e-5)
    assert float(found) != pytest.approx(float(Classes().loss(Logits(logits), targets)))


def test_the_weighted_loss_of_two_halves_averages_to_that_of_the_whole():
    """As two processes compute it: weights divided by their sum over a batch would not."""
    logits, targets = torch.randn(8, 3), torch.tensor([0, 0, 0, 0, 1, 1, 1, 2])
    task = Classes(torch.tensor([0.2, 3.0, 1.0]))
    halves = [task.loss(Logits(logits[half]), targets[half]) for half in (slice(0, 4), slice(4, 8))]
    torch.testing.assert_close(sum(halves) / 2, task.loss(Logits(logits), targets))


def test_class_weights_keep_their_precision_beside_logits_in_half_precision():
    logits, targets = torch.randn(64, 3).bfloat16(), torch.randint(3, (64,))
    task = Classes(torch.tensor([0.333333, 1.777777, 0.123456]))
    assert float(task.loss(Logits(logits), targets)) == pytest.approx(
        float(task.loss(Logits(logits.float()), targets)), rel=1e-6
    )
    assert task.class_weight.dtype == torch.float32


def test_a_number_is_learned_standardised_and_read_in_its_own_unit():
    task, prediction = Numbers(mean=100.0, scale=4.0), torch.randn(7, 1)
    targets = 100 + 4 * torch.randn(7)
    slow = [((t - 100) / 4 - p) ** 2 for t, (p,) in zip(targets.tolist(), prediction.tolist(), strict=True)]
    assert float(task.loss(Logits(prediction), targets)) == pytest.approx(math.fsum(slow) / 7, rel=1e-4)
    torch.testing.assert_close(task.read(Logits(prediction)), 100 + 4 * prediction)


def test_a_number_far_from_zero_is_read_to_its_last_digits_from_half_precision():
    said = torch.tensor([[0.25], [-0.5]], dtype=torch.bfloat16)
    assert Numbers(mean=1000.0, scale=1.0).read(Logits(said)).tolist() == [[1000.25], [999.5]]


def test_what_is_computed_by_each_process_alone_is_named():
    dataset = vectors()
    assert list(build("erm", dataset).per_rank()) == ["batch-norm statistics", "dropout masks"]
    assert list(build("erm", dataset, body=Identity((6,))).per_rank()) == []
