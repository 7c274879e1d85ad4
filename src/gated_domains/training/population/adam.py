"""Adam and AdamW over stacks: torch's own fused kernel, called once for all members that move alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gated_domains.training.ema import trained_parameters
from gated_domains.training.loop import Training
from gated_domains.training.optimisers import rate_at

Pace = tuple[object, ...]


def pace(member: Training) -> Pace:
    """What decides the learning rate of every step to come, weight decay and step counts: equal paces move alike."""
    settings = member.settings
    schedule = (settings.schedule, settings.rate, settings.decay, settings.warmup, settings.epochs, member.steps)
    own = id(member) if settings.schedule == "plateau" else 0  # whose rate goes by its own scores
    return (*schedule, own, member.place.step, _steps(member), tuple(_decays(member).values()))


@dataclass(frozen=True, eq=False)
class _Block:
    """Neighbouring rows that move alike."""

    range: range
    step: Tensor
    by_decay: dict[float, list[str]]

    @property
    def rows(self) -> slice:
        return slice(self.range.start, self.range.stop)


class StackedAdam:
    """The optimisers of members whose weights are stacked; those of equal pace must be neighbours.

    Moments are stacked as the weights are, and the state of every member's own optimiser is its row of them.
    """

    def __init__(self, members: Sequence[Training], weights: Mapping[str, Tensor]) -> None:
        self.members, self.weights = members, weights
        group = members[0].optimizer.param_groups[0]
        self.beta1, self.beta2 = group["betas"]
        self.eps = group["eps"]
        self.kernel: Any = torch._fused_adamw_ if members[0].settings.optimizer == "adamw" else torch._fused_adam_
        self.first, self.second = (
            {name: _moments(members, name, whole, kind) for name, whole in weights.items()}
            for kind in ("exp_avg", "exp_avg_sq")
        )
        self.blocks = _blocks(members)
        for block in self.blocks:
            for row in block.range:
                for name, parameter in trained_parameters(members[row].method).items():
                    moments = {"exp_avg": self.first[name][row], "exp_avg_sq": self.second[name][row]}
                    members[row].optimizer.state[parameter] = {"step": block.step, **moments}

    def rates(self, count: int, there: Collection[int]) -> list[list[float]]:
        """The learning rates of the next ``count`` steps, block by block; 0 where nobody of a block is ``there``."""
        leads = [next((self.members[row] for row in block.range if row in there), None) for block in self.blocks]
        return [[0.0 if lead is None else _rate_of(lead, ahead) for lead in leads] for ahead in range(count)]

    def step(self, gradients: Mapping[str, Tensor], rates: Tensor) -> None:
        """One update of all members; ``rates`` has one for each block."""
        for number, block in enumerate(self.blocks):
            block.step.add_(1)
            for decay, names in block.by_decay.items():
                self.kernel(
                    *([whole[name][block.rows] for name in names] for whole in (self.weights, gradients)),
                    *([whole[name][block.rows] for name in names] for whole in (self.first, self.second)),
                    [],
                    [block.step] * len(names),
                    lr=rates[number],
                    beta1=self.beta1,
                    beta2=self.beta2,
                    weight_decay=decay,
                    eps=self.eps,
                    amsgrad=False,
                    maximize=False,
                    grad_scale=None,
                    found_inf=None,
                )


def _blocks(members: Sequence[Training]) -> list[_Block]:
    paces = [pace(member) for member in members]
    starts = [0, *(row for row in range(1, len(paces)) if paces[row] != paces[row - 1])]
    blocks = []
    for start, end in zip(starts, [*starts[1:], len(members)], strict=True):
        first = members[start]
        by_decay: dict[float, list[str]] = {}
        for name, decay in _decays(first).items():
            by_decay.setdefault(decay, []).append(name)
        step = torch.tensor(_steps(first), dtype=torch.float32, device=first.device)
        blocks.append(_Block(range(start, end), step, by_decay))
    return blocks


def _rate_of(member: Training, ahead: int) -> float:
    return rate_at(member.place.step + ahead, member.steps, member.settings, drops=member.place.drops)


def _moments(members: Sequence[Training], name: str, weights: Tensor, kind: str) -> Tensor:
    whole = torch.zeros_like(weights)
    for member, row in zip(members, whole, strict=True):
        state = member.optimizer.state.get(trained_parameters(member.method)[name], {})
        if kind in state:
            row.copy_(state[kind])
    return whole


def _steps(member: Training) -> float:
    """Updates that its optimiser has made."""
    counts = {float(state["step"]) for state in member.optimizer.state.values()}
    return counts.pop() if counts else 0.0


def _decays(member: Training) -> dict[str, float]:
    decays = {id(p): float(group["weight_decay"]) for group in member.optimizer.param_groups for p in group["params"]}
    return {name: decays[id(parameter)] for name, parameter in trained_parameters(member.method).items()}
