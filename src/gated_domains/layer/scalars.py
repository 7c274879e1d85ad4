"""Numbers that a module keeps as buffers: sigma, kappa, the coverage quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class Scalars(nn.Module):
    """A module whose scalar buffers follow the device but keep their float64 precision.

    A width of 0.7 stays 0.7 for float64 features and under ``.half()``: a scalar never decides the type of a result.
    """

    def add_scalar(self, name: str, value: float | Tensor) -> None:
        self.register_buffer(name, torch.tensor(float(value), dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Scalars:  # type: ignore[override]
        exact = {name: value for name, value in self._buffers.items() if value is not None and value.dim() == 0}
        for name in exact:
            del self._buffers[name]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in exact.items():
            self._buffers[name] = _moved(value, fn)
        return self


def _moved(value: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    try:
        moved = fn(value)
    except TypeError:  # a device that knows no float64
        return fn(value.float())
    return moved if moved.dtype == value.dtype else value.to(moved.device)


def positive(name: str, value: float | Tensor) -> float:
    """The value as a float, refused unless it is finite and above zero."""
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite, got {number}")
    return number


def at_least_one(name: str, value: int) -> int:
    """The value, refused unless it is a whole number of one or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value
