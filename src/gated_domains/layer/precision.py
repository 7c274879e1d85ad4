"""Full precision for the small products that everything else stands on, whatever the surroundings run in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """The tensor itself, or in float32 if it came in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def autocast_off(like: Tensor) -> AbstractContextManager[object]:
    """No autocast on this tensor's kind of device; entered only where one is on, which keeps exported graphs clean."""
    if like.device.type != "meta" and torch.is_autocast_enabled(like.device.type):
        return torch.autocast(like.device.type, enabled=False)
    return nullcontext()
