"""The tiles of ``fused`` on a GPU: how the Triton kernels are launched, and on what."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from gated_domains.layer import fused_triton

BLOCK = 128
_SPLIT_BLOCK = 1024

# By the number of parts: features a step, and how many steps are loaded ahead. Both fill the shared memory of a Hopper
# multiprocessor with three or four steps.
STEPS = {2: (64, 3), 3: (32, 4)}


class Split(NamedTuple):
    """Centred rows as sums of bfloat16 parts (count, padded rows, padded features), and their squared norms."""

    parts: Tensor
    norms: Tensor
    rows: int
    features: int

    @property
    def tiles(self) -> int:
        return self.norms.shape[0] // BLOCK


class Weights(NamedTuple):
    """Gradients with respect to the squared distances of some columns, in parts, with their sums."""

    parts: Tensor
    row_sums: Tensor
    column_sums: Tensor


class TritonTiles:
    """The steps of ``fused.mean_values`` and ``fused.gradients`` on a GPU; ``count`` is the number of parts."""

    block = BLOCK

    def __init__(self, count: int) -> None:
        self.count = count
        self.step, stages = STEPS[count]
        self.launch = {"num_warps": 8, "num_stages": stages}

    @property
    def bytes_a_weight(self) -> int:
        return 2 * self.count

    def split(self, x: Tensor, centre: Tensor) -> Split:
        x = x if x.stride(-1) == 1 else x.contiguous()
        rows, features = x.shape
        padded, width = _filled(rows), _filled(features)
        parts = torch.empty(self.count, padded, width, dtype=torch.bfloat16, device=x.device)
        norms = torch.empty(padded, dtype=torch.float32, device=x.device)
        fused_triton.split_kernel[(padded,)](
            x, centre, parts, norms, rows, features, x.stride(0), width, parts.stride(0), self.count, _SPLIT_BLOCK
        )
        return Split(parts, norms, rows, features)

    def means(
        self, x: Split, z: Split, sigma: Tensor, alpha: Tensor, *, kind: int, size: int, rounding: float
    ) -> Tensor:
        slots, bases = (BLOCK + size - 2) // size + 1, z.rows // size
        sums = torch.empty(z.tiles, slots, x.norms.shape[0], dtype=torch.float32, device=x.norms.device)
        fused_triton.means_kernel[(x.tiles * z.tiles,)](
            x.parts, z.parts, x.norms, z.norms, sigma, alpha, sums, x.parts.stride(0), z.parts.stride(0),
            x.parts.shape[-1], x.tiles, z.tiles, triton.cdiv(x.features, self.step), size, z.rows, slots, rounding,
            kind, self.count, BLOCK, self.step, size == 1, **self.launch,
        )  # fmt: skip
        cross = torch.empty(x.rows, bases, dtype=torch.float32, device=x.norms.device)
        fused_triton.gather_kernel[(bases, x.tiles)](sums, cross, x.rows, x.norms.shape[0], bases, size, slots, BLOCK)
        return cross

    def weights(
        self, x: Split, z: Split, sigma: Tensor, alpha: Tensor, gradient: Tensor, *,
        kind: int, size: int, rounding: float, start: int, stop: int,
    ) -> Weights:  # fmt: skip
        tiles, padded = triton.cdiv(stop - start, BLOCK), x.norms.shape[0]
        parts = torch.empty(self.count, padded, tiles * BLOCK, dtype=torch.bfloat16, device=x.norms.device)
        row_sums = torch.empty(tiles, padded, dtype=torch.float32, device=x.norms.device)
        column_sums = torch.empty(x.tiles, tiles * BLOCK, dtype=torch.float32, device=x.norms.device)
        fused_triton.weights_kernel[(x.tiles * tiles,)](
            x.parts, z.parts, x.norms, z.norms, sigma, alpha, gradient, parts, row_sums, column_sums,
            x.parts.stride(0), z.parts.stride(0), parts.stride(0), x.parts.shape[-1],
            x.tiles, tiles, start // BLOCK, triton.cdiv(x.features, self.step), x.rows, z.rows,
            gradient.shape[-1], size, rounding,
            kind, self.count, BLOCK, self.step, **self.launch,
        )  # fmt: skip
        return Weights(parts, row_sums.sum(0)[: x.rows], column_sums.sum(0)[: stop - start])

    def to_rows(self, out: Tensor, weights: Weights, z: Split, *, start: int, add: bool) -> None:
        """``out = W z`` over the columns from ``start`` on, or out + that."""
        some = z.parts[:, start:]
        fused_triton.product_kernel[(triton.cdiv(out.shape[0], BLOCK) * triton.cdiv(z.features, BLOCK),)](
            weights.parts, some, out, weights.parts.stride(0), some.stride(0), weights.parts.shape[-1],
            z.parts.shape[-1], triton.cdiv(out.shape[0], BLOCK), triton.cdiv(z.features, BLOCK),
            weights.parts.shape[-1] // self.step, out.shape[0], z.features,
            False, add, self.count, BLOCK, self.step, **self.launch,
        )  # fmt: skip

    def to_columns(self, out: Tensor, weights: Weights, x: Split) -> None:
        """``out = W' x``."""
        fused_triton.product_kernel[(triton.cdiv(out.shape[0], BLOCK) * triton.cdiv(x.features, BLOCK),)](
            weights.parts, x.parts, out, weights.parts.stride(0), x.parts.stride(0), weights.parts.shape[-1],
            x.parts.shape[-1], triton.cdiv(out.shape[0], BLOCK), triton.cdiv(x.features, BLOCK),
            x.norms.shape[0] // self.step, out.shape[0], x.features,
            True, False, self.count, BLOCK, self.step, **self.launch,
        )  # fmt: skip

    def finish(self, out: Tensor, own: Tensor, centre: Tensor, sums: Tensor) -> None:
        """``out = 2 (sums own - out)``, in place."""
        own = own if own.stride(-1) == 1 else own.contiguous()
        fused_triton.finish_kernel[(out.shape[0],)](out, own, centre, sums, out.shape[1], own.stride(0), _SPLIT_BLOCK)


def _filled(count: int) -> int:
    return triton.cdiv(count, BLOCK) * BLOCK
