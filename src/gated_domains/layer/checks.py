"""Tensors that the layer refuses, each with the shape or the value and the cure."""

from __future__ import annotations

import torch
from torch import Tensor


def check_input(name: str, x: Tensor, width: int) -> None:
    """Refuse what is no batch of that width, by shape and type: reading values would stall a GPU and break export."""
    check_tensor(name, x)
    if not x.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {x.dtype}; convert them with .float()")
    if x.dim() < 1 or x.shape[-1] != width:
        another = f"; for such a view build GatedDomainUnits(..., gating_features={x.shape[-1]})" if x.dim() else ""
        raise ValueError(
            f"{name} must have width {width} in the last dimension, got shape {tuple(x.shape)}"
            + (another if name == "gating" else "")
        )
    if any(size == 0 for size in x.shape[:-1]):
        raise ValueError(f"{name} hold an empty batch, shape {tuple(x.shape)}: pass at least one row")


def check_tensor(name: str, x: object) -> None:
    """Refuse what is no tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}; convert with torch.as_tensor(...)")


def check_rows(x: Tensor, *, at_least: int = 1, purpose: str = "fitting") -> Tensor:
    """The rows, refused unless they are a floating-point matrix, finite, and enough."""
    if x.dim() != 2:
        raise ValueError(f"expected rows of features with shape (rows, features), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"features must be floating point, got {x.dtype}; convert them with .float()")
    if len(x) < at_least:
        raise ValueError(f"{purpose} needs at least {at_least} rows, got {len(x)}; pass more rows")
    finite = torch.isfinite(x)
    if not bool(finite.all()):
        rows = int((~finite).any(-1).sum())
        raise ValueError(f"features hold NaN or infinity in {rows} of {len(x)} rows; clean or drop those rows first")
    return x
