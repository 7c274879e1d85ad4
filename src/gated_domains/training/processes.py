"""What several processes tell each other, beside gradients. One process alone hears itself."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor

_NEVER = torch.iinfo(torch.int64).max


def from_all(fabric: Fabric, value: Tensor) -> Tensor:
    """``(processes, ...)``: what each of them has, of one shape. Not Fabric's own, which warns that it is outdated."""
    if fabric.world_size == 1:
        return value.unsqueeze(0)
    own = value.to(fabric.device).contiguous()
    parts = [torch.empty_like(own) for _ in range(fabric.world_size)]
    dist.all_gather(parts, own)
    return torch.stack(parts)


def from_first(fabric: Fabric, tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors with what the first process has in them."""
    if fabric.world_size > 1:
        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)


def earliest(fabric: Fabric, step: int | None) -> int | None:
    """The process with the earliest step; None where none has one."""
    if fabric.world_size == 1:
        return None if step is None else 0
    steps = from_all(fabric, torch.tensor(_NEVER if step is None else step))
    rank = int(steps.argmin())
    return None if int(steps[rank]) == _NEVER else rank
