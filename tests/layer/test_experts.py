"""Experts evaluated together equal a loop over them one by one."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gated_domains.layer import GatedDomainUnits, LinearExperts, MLPExperts, StackedExperts

BASES, WIDTH, OUTPUTS = 3, 5, 2


def mlp(width: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 7), nn.LayerNorm(7), nn.GELU(), nn.Dropout(0.5), nn.Linear(7, outputs))


def stacked_and_its_modules(factory) -> tuple[StackedExperts, list[nn.Module]]:
    made: list[nn.Module] = []

    def remembered(width: int, outputs: int) -> nn.Module:
        made.append(factory(width, outputs))
        return made[-1]

    experts = StackedExperts(BASES, WIDTH, OUTPUTS, factory=remembered)
    return experts, made


FACTORIES = {
    "linear": LinearExperts,
    "linear, tanh, no bias": partial(LinearExperts, activation=torch.tanh, bias=False),
    "mlp": MLPExperts,
    "mlp, no bias": partial(MLPExperts, hidden=6, activation=torch.tanh, bias=False),
    "stacked": partial(StackedExperts, factory=mlp),
    "stacked linear": partial(StackedExperts, factory=nn.Linear),
}


def test_linear_experts_equal_a_loop():
    experts, x = LinearExperts(BASES, WIDTH, OUTPUTS, activation=torch.tanh).double(), torch.randn(4, WIDTH).double()
    loop = [torch.tanh(F.linear(x, experts.weight[j], experts.bias[j])) for j in range(BASES)]
    torch.testing.assert_close(experts(x), torch.stack(loop, 1), rtol=1e-12, atol=1e-12)


def test_mlp_experts_equal_a_loop():
    experts, x = MLPExperts(BASES, WIDTH, OUTPUTS, hidden=6).double(), torch.randn(4, WIDTH).double()
    loop = []
    for j in range(BASES):
        hidden = torch.relu(x @ experts.first.weight[j].T + experts.first.bias[j])
        loop.append(hidden @ experts.weight[j] + experts.bias[j])
    torch.testing.assert_close(experts(x), torch.stack(loop, 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "factory", [mlp, nn.Linear, lambda i, o: nn.Sequential(nn.Linear(i, o, bias=False), nn.Tanh())]
)
def test_stacked_experts_equal_a_loop_over_the_modules(factory):
    experts, modules = stacked_and_its_modules(factory)
    x = torch.randn(4, WIDTH)
    experts.eval()
    loop = [module.eval()(x) for module in modules]
    torch.testing.assert_close(experts(x), torch.stack(loop, 1))


def test_stacked_experts_have_the_gradients_of_the_loop():
    experts, modules = stacked_and_its_modules(mlp)
    x = torch.randn(4, WIDTH)
    experts.eval()(x).square().sum().backward()
    torch.stack([module.eval()(x) for module in modules], 1).square().sum().backward()
    for name, stacked in experts.named_parameters():
        inner = name.removeprefix("stacked_").replace("__", ".")
        loop = torch.stack([module.get_parameter(inner).grad for module in modules])
        torch.testing.assert_close(stacked.grad, loop, msg=name)


def test_stacked_experts_carry_buffers_along():
    def standardised(width: int, outputs: int) -> nn.Module:
        norm = nn.BatchNorm1d(width)
        norm.running_mean.normal_()
        return nn.Sequential(norm, nn.Linear(width, outputs))

    experts, modules = stacked_and_its_modules(standardised)
    x = torch.randn(4, WIDTH)
    torch.testing.assert_close(experts.eval()(x), torch.stack([module.eval()(x) for module in modules], 1))
    assert "stacked_0__running_mean" in experts.state_dict()


def test_stacked_experts_register_each_parameter_once():
    experts, modules = stacked_and_its_modules(mlp)
    ours = sum(parameter.numel() for parameter in experts.parameters())
    assert ours == sum(parameter.numel() for module in modules for parameter in module.parameters())


def test_training_mode_reaches_the_modules_inside():
    experts, _ = stacked_and_its_modules(mlp)
    head = nn.Sequential(experts)
    x = torch.randn(200, WIDTH)
    head.train()
    assert not torch.equal(head(x), head(x))
    head.eval()
    assert torch.equal(head(x), head(x))
    head.train()
    assert not torch.equal(head(x), head(x))


def test_dropout_differs_from_one_expert_to_the_next():
    experts = StackedExperts(BASES, WIDTH, WIDTH, factory=lambda i, o: nn.Sequential(nn.Linear(i, o), nn.Dropout(0.5)))
    with torch.no_grad():
        for parameter in experts.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter).clone())
    dropped = experts.train()(torch.randn(50, WIDTH)) == 0
    assert not torch.equal(dropped[:, 0], dropped[:, 1])


def test_a_copy_of_stacked_experts_is_independent():
    experts, _ = stacked_and_its_modules(mlp)
    twin = copy.deepcopy(experts).eval()
    assert experts.skeleton[0].training
    x = torch.randn(4, WIDTH)
    before = experts.eval()(x)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(experts(x), before)


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_experts_start_different_from_each_other(factory):
    outputs = factory(BASES, WIDTH, OUTPUTS).eval()(torch.randn(4, WIDTH))
    assert outputs.shape == (4, BASES, OUTPUTS)
    assert not torch.allclose(outputs[:, 0], outputs[:, 1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_experts_follow_the_precision_of_the_features(factory, dtype):
    experts = factory(BASES, WIDTH, OUTPUTS).to(dtype)
    assert experts(torch.randn(4, WIDTH, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_experts_started_at_zero_give_zeros_and_train_all_the_same(factory):
    experts = factory(BASES, WIDTH, OUTPUTS).eval()
    experts.start_at_zero()
    x, y = torch.randn(64, WIDTH), torch.randn(64, BASES, OUTPUTS)
    assert (experts(x) == 0).all()
    optimizer = torch.optim.Adam(experts.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = F.mse_loss(experts(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.97 * losses[0]
    assert (experts(x) != 0).any()


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_units_of_any_experts_begin_as_their_shared_expert(factory):
    head = GatedDomainUnits(WIDTH, OUTPUTS, experts=factory).eval()
    x = torch.randn(4, WIDTH)
    torch.testing.assert_close(head(x), head.shared(x).squeeze(1), rtol=0, atol=0)
