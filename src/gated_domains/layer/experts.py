"""The M learning machines, evaluated together: features -> one output for every basis.

An experts factory is called with ``(num_bases, in_features, out_features)``; give settings with ``functools.partial``:
``partial(LinearExperts, activation=torch.tanh, bias=False)``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

Activation = Callable[[Tensor], Tensor]


class Experts(nn.Module):
    """M learning machines on the same features."""

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch bases outputs"]:
        raise NotImplementedError

    def start_at_zero(self) -> None:
        """Make every output 0, as deviations from a shared expert begin."""
        raise NotImplementedError


ExpertsFactory = Callable[[int, int, int], Experts]


class LinearExperts(Experts):
    """``W_j x + b_j`` for all j in one matrix product."""

    def __init__(
        self,
        num_bases: int,
        in_features: int,
        out_features: int,
        *,
        activation: Activation | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(_uniform(num_bases, out_features, in_features, fan_in=in_features))
        self.bias = nn.Parameter(_uniform(num_bases, out_features, fan_in=in_features)) if bias else None
        self.activation = activation

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch bases outputs"]:
        # The bias apart: with it inside, cuBLAS takes twice as long for this shape (measured on an H200).
        outputs = F.linear(features, self.weight.flatten(0, 1)).reshape(-1, *self.weight.shape[:2])
        outputs = outputs if self.bias is None else outputs + self.bias
        return outputs if self.activation is None else self.activation(outputs)

    @torch.no_grad()
    def start_at_zero(self) -> None:
        for parameter in self.parameters():
            parameter.zero_()

    def extra_repr(self) -> str:
        bases, outputs, features = self.weight.shape
        return f"{bases} x ({features} -> {outputs}), bias={self.bias is not None}"


class MLPExperts(Experts):
    """One hidden layer for each basis: ``W_j act(U_j x + a_j) + b_j``."""

    def __init__(
        self,
        num_bases: int,
        in_features: int,
        out_features: int,
        *,
        hidden: int = 64,
        activation: Activation = F.relu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.first = LinearExperts(num_bases, in_features, hidden, activation=activation, bias=bias)
        self.weight = nn.Parameter(_uniform(num_bases, hidden, out_features, fan_in=hidden))
        self.bias = nn.Parameter(_uniform(num_bases, out_features, fan_in=hidden)) if bias else None

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch bases outputs"]:
        outputs = torch.einsum("bjh,jho->bjo", self.first(features), self.weight)
        return outputs if self.bias is None else outputs + self.bias

    @torch.no_grad()
    def start_at_zero(self) -> None:
        self.weight.zero_()
        if self.bias is not None:
            self.bias.zero_()


class StackedExperts(Experts):
    """Any module, M times: what ``factory(in_features, out_features)`` makes in M calls, stacked and vmapped."""

    def __init__(
        self, num_bases: int, in_features: int, out_features: int, *, factory: Callable[[int, int], nn.Module]
    ) -> None:
        super().__init__()
        self.num_bases = num_bases
        modules = [factory(in_features, out_features) for _ in range(num_bases)]
        parameters, buffers = stack_module_state(modules)
        self.parameter_names, self.buffer_names = list(parameters), list(buffers)
        for name, value in parameters.items():
            self.register_parameter(_key(name), nn.Parameter(value.detach()))
        for name, value in buffers.items():
            self.register_buffer(_key(name), value)
        # In a tuple, so that its own parameters, which are never used, are not registered.
        self.skeleton = (copy.deepcopy(modules[0]).to("meta"),)

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch bases outputs"]:
        def one(state: dict[str, Tensor]) -> Tensor:
            return cast(Tensor, functional_call(self.skeleton[0], state, (features,)))

        if self.skeleton[0].training != self.training:
            self.skeleton[0].train(self.training)
        state = {name: getattr(self, _key(name)) for name in self.parameter_names + self.buffer_names}
        if torch.compiler.is_compiling():  # a graph unrolls the loop; export does not get through vmap
            members = range(self.num_bases)
            return torch.stack([one({name: value[j] for name, value in state.items()}) for j in members], dim=1)
        return torch.vmap(one, out_dims=1, randomness="different")(state)

    @torch.no_grad()
    def start_at_zero(self) -> None:
        if not self.parameter_names:
            raise ValueError(f"{self.skeleton[0]} has no parameters that could start at zero; use shared=False")
        last_module = self.parameter_names[-1].rpartition(".")[0]
        for name in self.parameter_names:
            if name.rpartition(".")[0] == last_module:
                getattr(self, _key(name)).zero_()


def start_at_zero(experts: Experts, in_features: int) -> None:
    """Make experts deviations that begin as nothing, and check that they do."""
    experts.start_at_zero()
    experts.eval()  # the look below must not move running statistics
    with torch.no_grad():
        largest = experts(torch.ones(2, in_features)).abs().amax()
    experts.train()
    if not largest.is_meta and float(largest) > 0:
        raise ValueError(
            f"deviations from a shared expert must start at zero, these give {float(largest):.3g}: their last "
            "activation does not map 0 to 0, or the module registers its output layer before others; change that, "
            "or use shared=False"
        )


def _key(name: str) -> str:
    return "stacked_" + name.replace(".", "__")


def _uniform(*shape: int, fan_in: int) -> Tensor:
    """As nn.Linear starts: uniform within 1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return torch.empty(shape).uniform_(-bound, bound)
