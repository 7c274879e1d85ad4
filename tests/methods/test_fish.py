"""Fish against its inner loop written out by hand, and against the theory it stands on."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.distributed as dist

from gated_domains.backbones.backbone import Identity
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.methods.method import Method, total
from small_trainings import DOMAINS, Unwrapped, build, identical, vectors, weights

RATE = 0.3


def blocks(rows: int, *, regression: bool = False) -> DomainBatch:
    """As many rows of each of three domains, side by side."""
    data = vectors(3 * rows, regression=regression)
    order = np.argsort(data.domains, kind="stable")
    inputs, targets = torch.from_numpy(data.inputs.values[order]), torch.from_numpy(data.targets[order])
    return DomainBatch(inputs, targets, torch.from_numpy(data.domains[order]), blocks=DOMAINS)


def linear_fish(meta_rate: float) -> Method:
    return build("fish", vectors(), body=Identity((6,)), settings={"meta_rate": meta_rate}).double()


def slow_step(start, parts, *, rate: float, meta_rate: float):
    """theta <- theta + epsilon (theta~ - theta) under cross-entropy; the bias is the weight of a last input of 1."""
    inner = start
    for rows in parts:
        slopes = [[0.0] * len(weight) for weight in inner]
        for x, target in rows:
            exps = [math.exp(math.fsum(w * v for w, v in zip(weight, x, strict=True))) for weight in inner]
            for c, value in enumerate(exps):
                error = (value / math.fsum(exps) - (c == target)) / len(rows)
                slopes[c] = [slope + error * v for slope, v in zip(slopes[c], x, strict=True)]
        inner = combined(inner, slopes, lambda w, slope: w - rate * slope)
    return combined(start, inner, lambda w, new: w + meta_rate * (new - w))


def combined(one, other, how):
    return [[how(a, b) for a, b in zip(*rows, strict=True)] for rows in zip(one, other, strict=True)]


@pytest.mark.parametrize("meta_rate", [0.5, 0.1, 1.0])
def test_three_steps_are_those_of_the_inner_loop_written_by_hand(meta_rate):
    method, batch = linear_fish(meta_rate), blocks(20)
    batch = DomainBatch(batch.inputs.double(), batch.targets, batch.domains, blocks=DOMAINS)
    expected = with_bias(method)
    optimizer = torch.optim.SGD(method.parameter_groups(), lr=RATE)
    parts = [[([*x, 1.0], target) for x, target in rows_of(part)] for part in batch.parts()]
    for _ in range(3):
        method.step(Unwrapped(method), batch, optimizer)
        expected = slow_step(expected, parts, rate=RATE, meta_rate=meta_rate)
    np.testing.assert_allclose(with_bias(method), expected, rtol=1e-12, atol=1e-14)


def with_bias(method: Method) -> list[list[float]]:
    return torch.cat([method.head.weight, method.head.bias.unsqueeze(1)], 1).tolist()


def rows_of(part: DomainBatch):
    return zip(part.inputs.tolist(), part.targets.tolist(), strict=True)


def test_all_the_way_along_one_domain_is_a_plain_step():
    batch = blocks(20).parts()[0]
    assert batch.blocks == 1
    found = []
    for step in (lambda m, *rest: m.step(*rest), Method.step):
        method = build("fish", vectors(), settings={"meta_rate": 1.0}).train()
        optimizer = torch.optim.AdamW(method.parameter_groups(), lr=0.01)
        torch.manual_seed(2)  # of dropout
        for _ in range(3):
            step(method, Unwrapped(method), batch, optimizer)
        found.append(weights(method))
    assert identical(*found)


@pytest.mark.parametrize("regression", [False, True])
def test_the_optimisers_state_and_running_statistics_go_on_where_the_weights_go_back(regression):
    batch = blocks(16, regression=regression)
    method = build("fish", vectors(regression=regression), settings={"meta_rate": 0.25}).train()
    by_hand = copy.deepcopy(method)
    optimizers = [torch.optim.AdamW(m.parameter_groups(), lr=0.01) for m in (method, by_hand)]
    torch.manual_seed(2)
    for _ in range(2):
        terms = method.step(Unwrapped(method), batch, optimizers[0])
    torch.manual_seed(2)
    for _ in range(2):
        before = [p.detach().clone() for p in by_hand.parameters()]
        losses = []
        for part in batch.parts():
            optimizers[1].zero_grad()
            loss = by_hand.objective(part)["task"]
            loss.backward()
            optimizers[1].step()
            losses.append(float(loss.detach()))
        with torch.no_grad():
            for old, p in zip(before, by_hand.parameters(), strict=True):
                p.copy_(old + 0.25 * (p - old))
    for name, value in weights(by_hand).items():
        torch.testing.assert_close(weights(method)[name], value, rtol=1e-5, atol=1e-7)
    assert float(total(terms)) == pytest.approx(math.fsum(losses) / len(losses), rel=1e-5)
    assert int(method.backbone.body.blocks[0][1].num_batches_tracked) == 2 * DOMAINS
    assert all(int(state["step"]) == 2 * DOMAINS for state in optimizers[0].state.values())


def test_beyond_plain_steps_it_climbs_the_inner_product_of_the_domains_gradients():
    """On average over both orders, ``theta~ - theta = -a (g1 + g2) + a^2/2 grad(g1 . g2) + O(a^3)``."""
    one, other = [
        DomainBatch(part.inputs.double(), part.targets, part.domains, blocks=1) for part in blocks(30).parts()[:2]
    ]
    rate, moves = 1e-3, []
    for pair in ((one, other), (other, one)):
        method = linear_fish(1.0)
        before = flat([p.detach() for p in method.parameters()])
        fields = (torch.cat(tensors) for tensors in zip(*((p.inputs, p.targets, p.domains) for p in pair), strict=True))
        method.step(Unwrapped(method), DomainBatch(*fields, blocks=2), torch.optim.SGD(method.parameters(), lr=rate))
        moves.append(flat([p.detach() for p in method.parameters()]) - before)
    method = linear_fish(1.0)
    parameters = list(method.parameters())
    g1, g2 = (
        flat(torch.autograd.grad(total(method.objective(part)).double(), parameters, create_graph=True))
        for part in (one, other)
    )
    climbing = flat(torch.autograd.grad(g1 @ g2, parameters))
    beyond = sum(moves) / 2 + rate * (g1 + g2).detach()
    torch.testing.assert_close(beyond / rate**2, climbing / 2, rtol=0.02, atol=1e-3)
    assert climbing.norm() > 0.1


def flat(tensors) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fish", "arm-bn"])
def test_a_batch_with_a_single_row_of_each_domain_is_refused_with_the_cure(name):
    method = build(name, vectors()).train()
    with pytest.raises(DataError, match=r"two rows or more of a domain.*larger batch size.*groups_per_batch"):
        method.step(Unwrapped(method), blocks(1), torch.optim.SGD(method.parameters(), lr=0.1))


@pytest.mark.parametrize("name", ["fish", "arm-bn"])
def test_several_processes_without_blocks_are_refused_before_one_waits_for_the_other(name, monkeypatch):
    method, batch = build(name, vectors()).train(), blocks(4)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
    method.step(Unwrapped(method), batch, optimizer)
    with pytest.raises(
        DataError, match=r"2 processes .* in blocks of domains; leave sampling out, or set it to groups"
    ):
        method.step(Unwrapped(method), DomainBatch(batch.inputs, batch.targets, batch.domains), optimizer)
