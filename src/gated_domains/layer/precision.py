"""Full precision whatever the surroundings run in: for small products, and for scalar buffers such as sigma."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn


def at_least_float32(x: Tensor) -> Tensor:
    """The tensor itself, or in float32 if it came in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def autocast_off(like: Tensor) -> AbstractContextManager[object]:
    """No autocast on this tensor's kind of device; entered only where one is on, which keeps exported graphs clean."""
    if like.device.type != "meta" and torch.is_autocast_enabled(like.device.type):
        return torch.autocast(like.device.type, enabled=False)
    return nullcontext()


class Scalars(nn.Module):
    """A module whose scalar buffers follow the device but keep their float64 precision.

    A width of 0.7 stays 0.7 for float64 features and under ``.half()``: a scalar never decides the type of a result.
    """

    def add_scalar(self, name: str, value: float | Tensor) -> None:
        self.register_buffer(name, torch.tensor(float(value), dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Scalars:
        exact = {name: value for name, value in self._buffers.items() if value is not None and value.dim() == 0}
        for name in exact:
            del self._buffers[name]
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            self._buffers.update(exact)
        self._buffers.update({name: _moved(value, fn) for name, value in exact.items()})
        return self


def shown(value: Tensor) -> str:
    """A scalar as a person reads it."""
    return "?" if value.is_meta else f"{value.item():.4g}"


def _moved(value: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    try:
        moved = fn(value)
    except TypeError:  # a device that knows no float64
        return fn(value.float())
    return moved if moved.dtype == value.dtype else value.to(moved.device)
