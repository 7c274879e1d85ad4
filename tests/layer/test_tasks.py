"""Losses and readings of the tasks, against numpy."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gated_domains.layer import GatedDomainUnits, GatedOutput, InnerProducts, ProjectionGate
from gated_domains.layer.experts import (
    TASKS,
    Binary,
    MultiClass,
    MultiLabel,
    ProbabilisticRegression,
    Regression,
    match_moments,
)

LOGITS = np.array([[2.0, -1.0, 0.5], [0.1, 0.2, -3.0], [-1.0, 4.0, 1.0], [0.0, 0.0, 0.0]])


def output(prediction: np.ndarray, variance: np.ndarray | None = None) -> GatedOutput:
    rows = prediction.reshape(-1, prediction.shape[-1])
    products = InnerProducts(torch.ones(len(rows)), torch.ones(len(rows), 1), torch.ones(1, 1))
    return GatedOutput(
        torch.tensor(prediction),
        torch.ones(len(rows), 1),
        products,
        None if variance is None else torch.tensor(variance),
    )


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def logistic_terms(logits: np.ndarray, target: np.ndarray) -> np.ndarray:
    p = 1 / (1 + np.exp(-logits))
    return -(target * np.log(p) + (1 - target) * np.log(1 - p))


def test_multi_class_loss_is_the_cross_entropy():
    classes = np.array([0, 2, 1, 1])
    expected = -log_softmax(LOGITS)[range(4), classes].mean()
    assert MultiClass().loss(output(LOGITS), torch.tensor(classes)).item() == pytest.approx(expected)


def test_multi_class_loss_reads_any_leading_shape():
    classes = np.array([0, 2, 1, 1])
    flat = MultiClass().loss(output(LOGITS), torch.tensor(classes))
    folded = MultiClass().loss(output(LOGITS.reshape(2, 2, 3)), torch.tensor(classes.reshape(2, 2)))
    assert folded.item() == pytest.approx(flat.item())


def test_class_weights_weigh_the_terms_of_their_class():
    classes, weight = np.array([0, 2, 1, 1]), np.array([1.0, 5.0, 0.5])
    own = weight[classes]
    expected = -(own * log_softmax(LOGITS)[range(4), classes]).sum() / own.sum()
    task = MultiClass(class_weight=torch.tensor(weight, dtype=torch.float32))
    assert task.loss(output(LOGITS), torch.tensor(classes)).item() == pytest.approx(expected)


def test_multi_class_reads_probabilities():
    np.testing.assert_allclose(MultiClass().read(output(LOGITS)), np.exp(log_softmax(LOGITS)))


def test_multi_label_loss_is_the_mean_logistic_loss():
    target = np.array([[1.0, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0]])
    expected = logistic_terms(LOGITS, target).mean()
    assert MultiLabel().loss(output(LOGITS), torch.tensor(target)).item() == pytest.approx(expected)


def test_multi_label_loss_ignores_answers_that_are_not_known():
    target = np.array([[1.0, np.nan, 1], [np.nan, np.nan, np.nan], [1, 1, 1], [0, np.nan, 0]])
    known = ~np.isnan(target)
    expected = logistic_terms(LOGITS, target)[known].mean()
    assert MultiLabel().loss(output(LOGITS), torch.tensor(target)).item() == pytest.approx(expected)


def test_unknown_answers_have_no_gradient():
    logits = torch.tensor(LOGITS, requires_grad=True)
    target = torch.ones(4, 3).masked_fill(torch.eye(4, 3, dtype=torch.bool), torch.nan)
    MultiLabel().loss(SimpleNamespace(prediction=logits, variance=None), target).backward()
    assert torch.equal(logits.grad == 0, torch.eye(4, 3, dtype=torch.bool))


def test_multi_label_loss_of_nothing_known_is_zero():
    assert MultiLabel().loss(output(LOGITS), torch.full((4, 3), torch.nan)).item() == 0


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.long, torch.bool])
def test_binary_loss_takes_targets_of_either_shape_and_any_type(shape, dtype):
    target = np.array([1.0, 0, 0, 1])
    expected = logistic_terms(LOGITS[:, 0], target).mean()
    loss = Binary().loss(output(LOGITS[:, :1]), torch.tensor(target).to(dtype).reshape(shape))
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("task", [Binary(), MultiLabel()])
def test_yes_or_no_answers_are_read_as_probabilities(task):
    np.testing.assert_allclose(task.read(output(LOGITS)), 1 / (1 + np.exp(-LOGITS)))


def test_regression_loss_is_the_mean_squared_error():
    y = np.array([1.0, -1, 0, 2])
    loss = Regression().loss(output(LOGITS[:, :1]), torch.tensor(y, dtype=torch.float32))
    assert loss.item() == pytest.approx(((LOGITS[:, 0] - y) ** 2).mean())


def test_regression_reads_the_prediction_itself():
    np.testing.assert_array_equal(Regression().read(output(LOGITS)), LOGITS)


def test_probabilistic_loss_is_the_negative_log_likelihood_of_a_gaussian():
    y, variance = np.array([[1.0], [0], [2], [-1]]), np.array([[0.5], [2], [1], [0.1]])
    mean = LOGITS[:, :1]
    expected = (0.5 * np.log(2 * math.pi * variance) + (y - mean) ** 2 / (2 * variance)).mean()
    loss = ProbabilisticRegression().loss(output(mean, variance), torch.tensor(y))
    assert loss.item() == pytest.approx(expected)


def test_probabilistic_loss_of_an_output_without_variance_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"no variance: build the head with task=ProbabilisticRegression\(\)"):
        ProbabilisticRegression().loss(output(LOGITS), torch.zeros(4, 3))


def test_moments_are_those_of_the_mixture():
    weights, means, scales = np.array([0.2, 0.5, 0.3]), np.array([1.0, -2.0, 0.5]), np.array([0.1, 1.0, 2.0])
    mean = (weights * means).sum()
    variance = (weights * (scales**2 + means**2)).sum() - mean**2
    ours = match_moments(
        *(
            torch.tensor(value).reshape(shape)
            for value, shape in ((weights, (1, 3)), (means, (1, 3, 1)), (scales, (1, 3, 1)))
        )
    )
    assert [value.item() for value in ours] == pytest.approx([mean, variance])


def test_variance_stays_positive_where_the_plain_formula_cancels():
    means = torch.full((1, 2, 1), 1e4)
    _, variance = match_moments(torch.tensor([[0.5, 0.5]]), means, torch.full((1, 2, 1), 1e-2))
    assert variance.item() == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("shared", [True, False])
def test_a_probabilistic_head_predicts_the_moments_of_its_experts(shared):
    head = GatedDomainUnits(3, 2, task=ProbabilisticRegression(), shared=shared, coverage=False, gate=ProjectionGate())
    with torch.no_grad():
        head.experts.weight.normal_()
    x = torch.randn(5, 3)
    out = head.evaluate(x)
    raw = head.experts(x) + (head.shared(x) if shared else 0)
    weights = out.beta / out.beta.sum(-1, keepdim=True)
    scale = torch.nn.functional.softplus(raw[..., 2:]) + 1e-3
    mean = (weights[..., None] * raw[..., :2]).sum(1)
    second = (weights[..., None] * (scale**2 + raw[..., :2] ** 2)).sum(1)
    torch.testing.assert_close(out.prediction, mean)
    torch.testing.assert_close(out.variance, second - mean**2, rtol=1e-4, atol=1e-5)


def heteroscedastic(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A line whose noise grows from 0.1 on the left to 1.1 on the right."""
    x = 2 * torch.rand(rows, 1) - 1
    return x, 2 * x + (0.6 + 0.5 * x) * torch.randn(rows, 1)


@pytest.mark.slow
def test_a_probabilistic_head_learns_where_data_are_noisy_and_how_much():
    x, y = heteroscedastic(600)
    head = GatedDomainUnits(1, 1, num_bases=3, task=ProbabilisticRegression(), coverage=False).fit_bases(x)
    optimizer = torch.optim.Adam(head.parameters(), lr=2e-2)
    losses = []
    for _ in range(250):
        out = head.evaluate(x)
        loss = head.task.loss(out, y) + head.penalty(out)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.2

    x, y = heteroscedastic(4000)
    with torch.no_grad():
        out = head.evaluate(x)
    scale = out.variance.sqrt()
    z = (y - out.prediction) / scale
    assert z.std().item() == pytest.approx(1, abs=0.1)
    assert (z.abs() < 1.645).float().mean().item() == pytest.approx(0.9, abs=0.03)
    assert scale[x > 0.5].mean().item() == pytest.approx(0.975, abs=0.15)
    assert scale[x < -0.5].mean().item() == pytest.approx(0.225, abs=0.1)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_gives_a_head_a_loss_it_can_be_trained_with(name):
    task = TASKS[name]()
    head = GatedDomainUnits(3, 1 if name == "binary" else 2, task=task)
    out = head.evaluate(torch.randn(6, 3))
    target = torch.randint(2, (6,)) if name == "multi_class" else torch.randint(2, out.prediction.shape).float()
    task.loss(out, target).backward()
    assert head.shared.weight.grad.abs().max() > 0
    assert task.read(out).shape == out.prediction.shape
    assert type(task).__name__ in repr(head)
