"""The forward and backward pass of ``fused``, in steps that a GPU (``fused_tiles``) or plain torch takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gated_domains.layer.kernels import rounding

# How much memory the weights of one chunk of columns may take in the backward pass.
CHUNK_BYTES = 48 * 2**20


def mean_values(tiles: Any, x: Tensor, bases: Tensor, sigma: Tensor, alpha: Tensor, *, kind: int) -> Tensor:
    """The forward pass in steps of ``tiles``."""
    own, other, centre = _split(tiles, x, bases)
    return tiles.means(own, other, sigma, alpha, kind=kind, size=bases.shape[1], rounding=rounding(centre))


def gradients(
    tiles: Any, gradient: Tensor, x: Tensor, bases: Tensor, sigma: Tensor, alpha: Tensor,
    *, kind: int, to_x: bool, to_bases: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The backward pass in steps of ``tiles``: dL/dx and dL/dbases, empty where not asked for."""
    own, other, centre = _split(tiles, x, bases)
    vectors, dtype = bases.flatten(0, 1), centre.dtype
    x_out = torch.empty(x.shape if to_x else (0,), dtype=dtype, device=x.device)
    bases_out = torch.empty(vectors.shape if to_bases else (0,), dtype=dtype, device=x.device)
    row_sums = torch.zeros(x.shape[0], dtype=dtype, device=x.device)
    column_sums = torch.empty(vectors.shape[0], dtype=dtype, device=x.device)
    gradient, share = gradient.to(dtype).contiguous(), rounding(centre)
    for start, stop in _chunks(tiles, x.shape[0], vectors.shape[0]):
        weights = tiles.weights(
            own, other, sigma, alpha, gradient,
            kind=kind, size=bases.shape[1], rounding=share, start=start, stop=stop,
        )  # fmt: skip
        row_sums += weights.row_sums
        column_sums[start:stop] = weights.column_sums
        if to_x:
            tiles.to_rows(x_out, weights, other, start=start, add=start > 0)
        if to_bases:
            tiles.to_columns(bases_out[start:stop], weights, own)
        del weights  # before the next ones are made: one chunk is held at a time
    if to_x:
        tiles.finish(x_out, x, centre, row_sums)
    if to_bases:
        tiles.finish(bases_out, vectors, centre, column_sums)
    return x_out.to(x.dtype), bases_out.reshape(bases.shape if to_bases else (0,)).to(bases.dtype)


def _split(tiles: Any, x: Tensor, bases: Tensor) -> tuple[Any, Any, Tensor]:
    vectors = bases.flatten(0, 1)
    centre = vectors.mean(0, dtype=precision(x, bases))
    other = tiles.split(vectors, centre)
    same = (x.data_ptr(), x.shape, x.stride(), x.dtype) == (
        vectors.data_ptr(), vectors.shape, vectors.stride(), vectors.dtype,
    )  # fmt: skip
    return other if same else tiles.split(x, centre), other, centre


def _chunks(tiles: Any, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    whole = CHUNK_BYTES // (max(rows, tiles.block) * tiles.bytes_a_weight) // tiles.block * tiles.block
    step = max(tiles.block, whole)
    return ((start, min(start + step, columns)) for start in range(0, columns, step))


def precision(x: Tensor, bases: Tensor) -> torch.dtype:
    """In which distances, sums and results are kept: float32 or better."""
    return torch.promote_types(torch.promote_types(x.dtype, bases.dtype), torch.float32)
