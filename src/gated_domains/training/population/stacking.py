"""Stacked storage: what members hold under one name becomes rows of one tensor, and each keeps its row as a view.

Whatever a member then does in place (load a state, fit its bases, swap in averages) it does to its row of the stack,
and a step on the stack moves all members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gated_domains.training.ema import trained_parameters
from gated_domains.training.loop import Training


class Stack:
    """The weights of members, their averages and all else that their methods hold: ``(members, ...)`` by name."""

    def __init__(self, members: Sequence[Training]) -> None:
        methods = [member.method for member in members]
        trained = trained_parameters(methods[0])
        own = [{**dict(method.named_parameters()), **dict(method.named_buffers())} for method in methods]
        self.weights = {name: joined([tensors[name] for tensors in own]) for name in trained}
        self.rest = {name: joined([tensors[name] for tensors in own]) for name in own[0] if name not in trained}
        self.averages: dict[str, Tensor] = {}
        averaged = [member.ema for member in members]
        for name in trained if averaged[0] is not None else ():
            whole = torch.stack([ema.averages[name] for ema in averaged if ema is not None])
            self.averages[name] = whole
            for ema, row in zip(averaged, whole, strict=True):
                assert ema is not None
                ema.averages[name] = row

    def finite(self) -> Tensor:
        """Of every member, whether all its weights are numbers."""
        return torch.stack([torch.isfinite(whole).flatten(1).all(1) for whole in self.weights.values()]).all(0)


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors as rows of one, where they lie from now on."""
    whole = torch.stack([tensor.detach() for tensor in tensors])
    for tensor, row in zip(tensors, whole, strict=True):
        tensor.data = row
    return whole


def let_go(member: Training) -> None:
    """Give a member storage of its own again: its row of the stack may go on without it."""
    for tensor in [*member.method.parameters(), *member.method.buffers()]:
        tensor.data = tensor.detach().clone()
    for state in member.optimizer.state.values():
        state.update({name: value.clone() for name, value in state.items() if isinstance(value, Tensor)})
    if member.ema is not None:
        member.ema.averages.update({name: value.clone() for name, value in member.ema.averages.items()})


def rows_of(stack: Mapping[str, Tensor], rows: Sequence[int]) -> dict[str, Tensor]:
    """Some rows of every stack; all of them, in order, are no copy."""
    count = len(next(iter(stack.values()))) if stack else 0
    if list(rows) == list(range(count)):
        return dict(stack)
    return {name: whole[list(rows)] for name, whole in stack.items()}
