"""Fitting under several processes: the first rank does it, the others receive the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor


def on_first_rank(fit: Callable[[], object], state: Sequence[Tensor]) -> None:
    """Run ``fit`` on rank 0 and broadcast the tensors it wrote; a failure there is raised everywhere."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        fit()
        return
    failure: Exception | None = None
    if dist.get_rank() == 0:
        try:
            fit()
        except Exception as error:  # raised again below, once the other ranks no longer wait
            failure = error
    succeeded = torch.tensor([int(failure is None)], device=state[0].device)
    dist.broadcast(succeeded, src=0)
    if failure is not None:
        raise failure
    if not int(succeeded):
        raise RuntimeError("fitting failed on rank 0; its own error says why")
    for tensor in state:
        dist.broadcast(tensor.detach(), src=0)


def forget(optimizer: torch.optim.Optimizer, parameter: Tensor) -> None:
    """Zero what the optimiser remembers of a parameter that was just rewritten."""
    for name, value in optimizer.state.get(parameter, {}).items():
        if isinstance(value, Tensor) and name != "step_size":  # Rprop's, which would never grow again from 0
            value.zero_()


def remembered(optimizer: torch.optim.Optimizer | None, parameter: Tensor) -> list[Tensor]:
    """What the optimiser remembers of every single number of a parameter: its moments."""
    state = {} if optimizer is None else optimizer.state.get(parameter, {})
    return [value for value in state.values() if isinstance(value, Tensor) and value.shape == parameter.shape]


@torch.no_grad()
def hand_on(tensor: Shaped[Tensor, "places ..."], takes_over: Float[Tensor, "places before"]) -> None:
    """Make each row the sum of its shares of the rows before, in place; rows that take over themselves stay."""
    shares = takes_over.tolist()
    before = {old: tensor[old].clone() for row in shares for old, share in enumerate(row) if share}
    for new, row in enumerate(shares):
        parts = [share * before[old] for old, share in enumerate(row) if share]
        if row[new] != 1:
            tensor[new] = torch.stack(parts).sum(0)
