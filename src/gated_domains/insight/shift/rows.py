"""Rows as they come: checked with words, and cut into blocks that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gated_domains.data.errors import DataError
from gated_domains.layer.kernels import KernelLike, PairFunction, as_kernel

BLOCK = 4_096
_BUDGET = 64 * 2**20  # numbers that a user's kernel may hold for a block


def checked_rows(rows: Tensor, name: str, *, at_least: int = 1, like: Tensor | None = None) -> None:
    """Refuse what is no table of finite numbers, has too few rows, or is not as wide as the other."""
    if not isinstance(rows, Tensor) or rows.dim() != 2 or rows.is_complex():
        shape = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise DataError(f"{name}: expected a tensor of rows and columns, got {shape}")
    if len(rows) < at_least:
        raise DataError(f"{name}: {len(rows)} rows are too few; at least {at_least} are needed")
    if like is not None and rows.shape[1] != like.shape[1]:
        raise DataError(
            f"{name}: rows have {rows.shape[1]:,} columns, those that they are compared with {like.shape[1]:,}; "
            "give both the same view"
        )
    if like is not None and rows.device != like.device:
        raise DataError(f"{name}: rows lie on {rows.device}, the others on {like.device}; move them to one device")
    for start, block in zip(range(0, len(rows), BLOCK), rows.split(BLOCK), strict=True):
        bad = ~torch.isfinite(block).all(1)
        if bool(bad.any()):
            row = start + int(bad.nonzero()[0])
            raise DataError(f"{name}: row {row} is not finite (NaN or infinity); fill in or drop such rows first")


def rows_at_once(kernel: KernelLike, others: int, width: int) -> int:
    """How many rows a block against ``others`` may have."""
    # A callable of the user's may well broadcast (rows, others, features); ours never do.
    wide = width if of_the_user(kernel) else 1
    return max(1, min(BLOCK, _BUDGET // max(1, others * wide)))


def of_the_user(kernel: KernelLike) -> bool:
    """Whether a callable that is not ours has a part in it."""
    return any(isinstance(part, PairFunction) for part in as_kernel(kernel).modules())


def kernel_blocks(kernel: KernelLike, rows: Tensor, others: Tensor) -> Iterator[Tensor]:
    """``k(rows, others)`` in blocks of rows, one after the other."""
    others = as_float(others)
    for block in rows.split(rows_at_once(kernel, len(others), rows.shape[1])):
        values = kernel(as_float(block), others)
        if not bool(torch.isfinite(values).all()):
            raise DataError(f"the kernel {kernel!r} gives values that are not finite; choose another, or a wider one")
        yield values


def fine(kernel: KernelLike, rows: Tensor) -> Tensor:
    """In float64, as near means differ in late digits; not for a user's kernel, whose weights may have a precision."""
    return as_float(rows) if of_the_user(kernel) else rows.double()


def as_float(rows: Tensor) -> Tensor:
    """In float32 or, where they are so, float64."""
    return rows.to(torch.promote_types(rows.dtype, torch.float32))
