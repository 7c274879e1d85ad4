"""The layer under ``torch.func``: batches of batches, ensembles of heads, gradients sample by sample."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

from gated_domains import CosineGate, GatedDomainUnits, MMDGate, ProjectionGate
from gated_domains.layer import MLPExperts, StackedExperts, penalties
from gated_domains.layer.experts import ProbabilisticRegression
from gated_domains.layer.kernels import KERNELS

GATES = {
    "cosine": CosineGate,
    "mmd": MMDGate,
    "projection": ProjectionGate,
    "exact": partial(ProjectionGate, ridge=1e-3),
}
SETTINGS = {
    **{name: {"gate": make} for name, make in GATES.items()},
    "not shared": {"shared": False},
    "projection, not shared": {"gate": ProjectionGate, "shared": False},
    "mlp": {"experts": MLPExperts},
    "stacked": {"experts": partial(StackedExperts, factory=nn.Linear)},
    "room to spare": {"max_bases": 5},
    "probabilistic": {"task": ProbabilisticRegression()},
    "small memory": {"memory_budget": 100},
    **{name: {"kernel": make} for name, make in KERNELS.items()},
}
in_every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def head_with(settings, seed: int = 0) -> GatedDomainUnits:
    torch.manual_seed(seed)
    made = {name: value() if name in ("gate", "kernel") else value for name, value in settings.items()}
    head = GatedDomainUnits(4, 2, num_bases=3, basis_size=4, lambda_orth=0.1, **made)
    with torch.no_grad():
        for parameter in head.experts.parameters():
            parameter.normal_()
    head.fit_bases(torch.randn(60, 4))
    return head.double()


def loss_of(head: GatedDomainUnits, state, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(functional_call(head, state, (x,)), y)


@in_every_setting
def test_vmap_over_a_leading_axis_equals_a_loop(settings):
    head, x = head_with(settings), torch.randn(5, 7, 4).double()
    loop = torch.stack([head(batch) for batch in x])
    torch.testing.assert_close(vmap(head)(x), loop, rtol=1e-9, atol=1e-9)


@in_every_setting
def test_gradients_sample_by_sample_equal_a_loop(settings):
    head, x, y = head_with(settings), torch.randn(6, 4).double(), torch.randn(6, 2).double()
    parameters = {name: value.detach() for name, value in head.named_parameters()}
    buffers = dict(head.named_buffers())

    def loss(parameters, row, target):
        return loss_of(head, (parameters, buffers), row[None], target[None])

    ours = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    for i in range(len(x)):
        head.zero_grad()
        F.mse_loss(head(x[i : i + 1]), y[i : i + 1]).backward()
        for name, parameter in head.named_parameters():
            torch.testing.assert_close(ours[name][i], parameter.grad, rtol=1e-7, atol=1e-9, msg=f"{name}, row {i}")


@in_every_setting
def test_an_ensemble_of_heads_equals_a_loop_over_them(settings):
    heads = [head_with(settings, seed) for seed in range(3)]
    x = torch.randn(6, 4).double()
    state = stack_module_state(heads)
    skeleton = copy.deepcopy(heads[0]).to("meta")
    together = vmap(lambda state: functional_call(skeleton, state, (x,)))(state)
    torch.testing.assert_close(together, torch.stack([head(x) for head in heads]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_penalties_of_an_ensemble_equal_a_loop_over_its_heads(gate):
    heads = [head_with({"gate": gate}, seed) for seed in range(3)]
    x = torch.randn(6, 4).double()
    skeleton = copy.deepcopy(heads[0])

    class Penalty(nn.Module):
        def __init__(self, head: GatedDomainUnits) -> None:
            super().__init__()
            self.head = head

        def forward(self, x):
            out = self.head.evaluate(x)
            return self.head.penalty(out) + penalties.mutual_coherence(out) + penalties.soft_orthogonality(out)

    state = stack_module_state([Penalty(head) for head in heads])
    together = vmap(lambda state: functional_call(Penalty(skeleton), state, (x,)))(state)
    torch.testing.assert_close(together, torch.stack([Penalty(head)(x) for head in heads]), rtol=1e-7, atol=1e-9)


def test_vmap_reaches_the_view_of_the_gates_too():
    head = GatedDomainUnits(4, 2, gating_features=3).double()
    x, z = torch.randn(5, 7, 4).double(), torch.randn(5, 7, 3).double()
    loop = torch.stack([head(*both) for both in zip(x, z, strict=True)])
    torch.testing.assert_close(vmap(head)(x, z), loop, rtol=1e-9, atol=1e-9)


def test_the_gate_of_a_batch_is_each_batch_s_own_under_vmap():
    head, x = head_with({}), torch.randn(5, 7, 4).double()
    ours = vmap(lambda batch: head.evaluate(batch, gates="batch").beta)(x)
    loop = torch.stack([head.evaluate(batch, gates="batch").beta for batch in x])
    torch.testing.assert_close(ours, loop, rtol=1e-9, atol=1e-9)


def test_the_jacobian_is_that_of_finite_differences():
    head = head_with({})
    x, step = torch.randn(4).double(), 1e-6
    ours = jacrev(lambda row: head.evaluate(row[None]).beta[0])(x)
    columns = [
        (head.evaluate((x + d)[None]).beta[0] - head.evaluate((x - d)[None]).beta[0]) / (2 * step)
        for d in step * torch.eye(4).double()
    ]
    torch.testing.assert_close(ours, torch.stack(columns, -1).detach(), rtol=1e-5, atol=1e-8)
