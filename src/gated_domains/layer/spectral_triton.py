"""The leading eigenvector of one small float32 matrix in one Triton kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from gated_domains.layer.triton_jit import jit


@jit
def _leading_kernel(matrix, result, size, squarings, in_range, block: tl.constexpr):
    row = tl.arange(0, block)[:, None]
    column = tl.arange(0, block)[None, :]
    inside = (row < size) & (column < size)
    symmetric = tl.load(matrix + row * size + column, mask=inside, other=0.0)
    power = symmetric
    for step in range(squarings):
        if step % in_range == 0:
            largest_sum = tl.max(tl.sum(tl.abs(power), axis=0), axis=0)
            power = power / tl.maximum(largest_sum, 1e-37)
        power = tl.dot(power, power, input_precision="ieee")
    longest = tl.argmax(tl.sum(tl.abs(power), axis=0), axis=0)
    leading = tl.sum(tl.where(row == longest, power, 0.0), axis=0)  # a row, which is a column: the power is symmetric
    leading = leading / tl.maximum(tl.sqrt(tl.sum(leading * leading, axis=0)), 1e-37)
    image = tl.sum(symmetric * leading[None, :], axis=1)
    image = image / tl.maximum(tl.sqrt(tl.sum(image * image, axis=0)), 1e-37)
    place = tl.arange(0, block)
    tl.store(result + place, leading, mask=place < size)
    tl.store(result + size + place, image, mask=place < size)


def leading_pair(symmetric: Tensor, squarings: int, in_range: int) -> Tensor:
    """As ``spectral.leading_pair``."""
    size = symmetric.shape[-1]
    result = symmetric.new_empty(2, size)
    block = max(16, triton.next_power_of_2(size))
    warps = 4 if block < 64 else 8
    _leading_kernel[(1,)](symmetric.contiguous(), result, size, squarings, in_range, block, num_warps=warps)
    return result
