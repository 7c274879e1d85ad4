"""What is frozen stays bit by bit as it was, through training of everything around it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gated_domains.backbones.backbone import View
from gated_domains.training.training_data import Frozen, freeze


def body() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def snapshot(module: nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def identical(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


OPTIMISERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9, weight_decay=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.5),
}


@pytest.mark.parametrize("everything", [True, False], ids=["over all parameters", "over those that require grad"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_ten_steps_of_training_leave_it_bit_by_bit_as_it_was(name, everything):
    model = nn.Sequential(freeze(body()), nn.Linear(3, 2))
    frozen, head = snapshot(model[0]), snapshot(model[1])
    optimiser = OPTIMISERS[name]([p for p in model.parameters() if everything or p.requires_grad])
    x = torch.randn(16, 4)
    expected = model[0](x)
    for _ in range(10):
        model.train()
        optimiser.zero_grad(set_to_none=False)
        output = model[0](10 * torch.randn(16, 4) + 5)
        model[1](output).square().sum().backward()
        optimiser.step()
        assert torch.equal(model[0](x), expected)  # through dropout
    assert identical(snapshot(model[0]), frozen)
    assert not identical(snapshot(model[1]), head)


def test_the_same_training_moves_what_is_not_frozen():
    """The test above can fail: without freezing everything moves."""
    model = body().train()
    before = snapshot(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(16, 4)).square().sum().backward()
    optimiser.step()
    assert all(not torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_no_train_puts_it_into_training_mode():
    frozen = freeze(body().train())
    assert not any(part.training for part in frozen.modules())
    outer = nn.Sequential(nn.Sequential(frozen), nn.Dropout())
    for call in (frozen.train, frozen.eval, outer.train, outer.eval, lambda: frozen.train(True)):
        call()
        assert not any(part.training for part in frozen.modules())
    outer.train()
    assert outer.training
    assert outer[1].training
    assert frozen.train() is frozen


@pytest.mark.parametrize("reach", [lambda f: f.module.train(), lambda f: f.module[3].train()], ids=["whole", "part"])
def test_it_runs_in_evaluation_mode_even_where_somebody_reaches_in(reach):
    frozen = freeze(body())
    before, x = snapshot(frozen), torch.randn(16, 4)
    expected = frozen(x)
    reach(frozen)
    assert torch.equal(frozen(x), expected)
    assert identical(snapshot(frozen), before)


def test_no_graph_is_built_even_where_gradients_were_asked_for_again():
    frozen = freeze(body())
    assert not any(p.requires_grad for p in frozen.parameters())
    nn.Sequential(frozen).requires_grad_(True)
    assert not frozen(torch.randn(2, 4, requires_grad=True)).requires_grad
    torch.ones(1, requires_grad=True).mul(2).backward()  # gradients are on again outside


def test_what_it_gives_can_be_trained_on():
    frozen, head = freeze(body()), nn.Linear(3, 2)
    head(frozen(torch.randn(2, 4))).sum().backward()  # tensors of inference mode could not be
    assert head.weight.grad is not None


def test_the_wrapped_module_is_reached_by_name_alone():
    inner = body()
    frozen = freeze(inner)
    assert frozen.module is inner
    assert not hasattr(frozen, "in_features")
    assert freeze(frozen) is frozen
    assert isinstance(frozen, Frozen)


def test_outputs_of_any_kind_pass_through():
    class Both(nn.Module):
        def forward(self, one: torch.Tensor, other: torch.Tensor) -> View:
            return View(one, other)

    view = freeze(Both())(torch.ones(2, 1), torch.zeros(2, 3))
    assert isinstance(view, View)
    assert view.gating.shape == (2, 3)


def test_it_saves_and_loads_like_any_module():
    one, other = freeze(body()), freeze(body())
    other.load_state_dict(one.state_dict())
    x = torch.randn(5, 4)
    assert torch.equal(one(x), other(x))
