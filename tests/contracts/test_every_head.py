"""What holds for every head, whatever kernel, gate, experts and task it is made of."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gated_domains.layer import GatedDomainUnits, GateStream

LEADS = [(), (6,), (1,), (2, 3, 4)]


def wake(head):
    """Move deviations and shared expert off their start, so that no part of the prediction is zero."""
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            if name != "bases":
                parameter.normal_(std=0.5)
    return head


def target_for(head, lead):
    """Targets that the head's task understands; without a task, those of a regression."""
    if type(head.task).__name__ == "MultiClass":
        return torch.randint(head.out_features, lead)
    if type(head.task).__name__ in ("Binary", "MultiLabel"):
        return torch.randint(2, (*lead, head.out_features)).float()
    return torch.randn(*lead, head.out_features)


def loss_of(head, out, target):
    task_loss = (out.prediction - target).square().mean() if head.task is None else head.task.loss(out, target)
    return task_loss + head.penalty(out)


@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_every_output_keeps_the_leading_dimensions(build_head, lead):
    head = build_head()
    out = head.evaluate(torch.randn(*lead, 4))
    assert out.prediction.shape == (*lead, head.out_features)
    assert out.beta.shape == (*lead, 3)
    assert out.products.self_product.shape == lead
    assert out.products.cross.shape == (*lead, 3)
    assert out.products.gram.shape == (3, 3)
    assert out.coverage.shape == lead if head.shared is not None else out.coverage is None
    if out.variance is not None:
        assert out.variance.shape == out.prediction.shape
    penalty = head.penalty(out)
    assert penalty.shape == ()
    (out.prediction.sum() + penalty).backward()
    assert torch.isfinite(head.bases.grad).all()


def test_leading_dimensions_change_no_number(build_head):
    head, x = wake(build_head()).double(), torch.randn(2, 3, 4).double()
    out, flat = head.evaluate(x), head.evaluate(x.reshape(6, 4))
    torch.testing.assert_close(out.prediction.reshape(6, -1), flat.prediction)
    torch.testing.assert_close(out.beta.reshape(6, 3), flat.beta)
    torch.testing.assert_close(head.penalty(out), head.penalty(flat))
    one = head.evaluate(x[1, 2])
    torch.testing.assert_close(one.prediction, out.prediction[1, 2])


def test_a_sample_is_predicted_alone_as_in_company(build_head):
    head, x = wake(build_head()).double(), torch.randn(5, 4).double()
    together = head(x)
    alone = torch.cat([head(row[None]) for row in x])
    torch.testing.assert_close(alone, together, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gates", ["batch", "stream"])
def test_pooled_gates_give_one_row_of_beta_and_a_prediction_each(build_head, gates):
    head = wake(build_head())
    out = head.evaluate(torch.randn(2, 3, 4), gates=GateStream(4) if gates == "stream" else gates)
    assert out.beta.shape == (1, 3)
    assert out.products.self_product.shape == (1,)
    assert out.prediction.shape == (2, 3, head.out_features)
    assert torch.isfinite(head.penalty(out))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_input(build_head, dtype):
    head = wake(build_head()).to(dtype)
    out = head.evaluate(torch.randn(5, 4, dtype=dtype))
    found = [out.prediction, out.beta, *out.products[:3], out.variance, out.coverage, head.penalty(out)]
    assert {value.dtype for value in found if value is not None} == {dtype}


def test_half_precision_heads_predict_in_half_precision(build_head):
    head = wake(build_head()).bfloat16()
    out = head.evaluate(torch.randn(5, 4).bfloat16())
    assert out.prediction.dtype == torch.bfloat16
    assert torch.isfinite(out.prediction).all()


def test_the_same_input_gives_the_same_output(build_head):
    head, x = wake(build_head()), torch.randn(5, 4)
    assert torch.equal(head(x), head(x))
    assert torch.equal(head(x), head.evaluate(x).prediction)


def test_a_state_dict_carries_everything(build_head):
    head, x = wake(build_head()), torch.randn(40, 4)
    head.fit_bases(x)
    other = build_head()
    assert not torch.equal(other(x), head(x))
    other.load_state_dict(head.state_dict())
    one, two = head.evaluate(x), other.evaluate(x)
    assert torch.equal(two.prediction, one.prediction)
    assert torch.equal(two.beta, one.beta)
    assert torch.equal(other.penalty(two), head.penalty(one))
    assert one.coverage is None or torch.equal(two.coverage, one.coverage)


def test_a_deep_copy_predicts_the_same_and_shares_nothing(build_head):
    head, x = wake(build_head()), torch.randn(5, 4)
    before = head(x)
    twin = copy.deepcopy(head)
    assert torch.equal(twin(x), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
        for buffer in twin.buffers():
            buffer.fill_(1)
    assert torch.equal(head(x), before)
    assert not torch.allclose(twin(x), before)


def test_gradients_reach_every_parameter_after_one_step(build_head):
    head = build_head()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    x, target = torch.randn(16, 4), target_for(head, (16,))
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(head, head.evaluate(x), target).backward()
        optimizer.step()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_gradients_reach_the_features(build_head):
    head, x = wake(build_head()), torch.randn(5, 4, requires_grad=True)
    head(x).sum().backward()
    assert (x.grad.abs().sum(-1) > 0).all()


def test_training_lowers_the_loss(build_head):
    head = build_head()
    x, target = torch.randn(32, 4), target_for(head, (32,))
    head.fit_bases(x)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = loss_of(head, head.evaluate(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("budget", [0, 200])
def test_products_in_chunks_equal_products_at_once(build_head, budget):
    x = torch.randn(5, 4).double()
    results = []
    for settings in ({}, {"memory_budget": budget}):
        head = wake(build_head(**settings)).double()
        features = x.clone().requires_grad_()
        out = head.evaluate(features)
        (out.prediction.square().sum() + head.penalty(out)).backward()
        results.append(
            [out.prediction.detach(), out.beta.detach(), features.grad, *(p.grad for p in head.parameters())]
        )
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(chunked, whole, rtol=1e-9, atol=1e-9)


def test_record_keeps_what_forward_found_and_only_inside_the_block(build_head):
    head, x = wake(build_head()), torch.randn(5, 4)
    with head.record() as outs:
        prediction = nn.Sequential(head)(x)
    head(x)
    assert len(outs) == 1
    assert torch.equal(outs[0].prediction, prediction)
    assert torch.isfinite(head.penalty(outs[0]))


def test_gates_and_experts_may_see_two_views(build_head):
    head = wake(build_head(gating_features=7)).double()
    x, view = torch.randn(2, 3, 4).double(), torch.randn(2, 3, 7).double()
    out = head.evaluate(x, view)
    assert out.prediction.shape == (2, 3, head.out_features)
    torch.testing.assert_close(head.evaluate(x + 1, view).beta, out.beta)
    assert not torch.allclose(head.evaluate(x, view + 1).beta, out.beta)


def test_a_head_of_one_basis_is_its_expert():
    head = GatedDomainUnits(4, 2, num_bases=1, shared=False).double()
    x = torch.randn(5, 4).double()
    torch.testing.assert_close(head(x), head.experts(x).squeeze(1))
