"""The Triton kernels of ``fused_tiles``: kernel values that exist in registers only.

Tensor cores multiply in bfloat16. A float32 number is the sum of three bfloat16 ones, so three parts of each factor and
the six largest of their products give float32 accuracy (two parts and three products: 16 bits, between TF32 and
float32). The products of one step along the features are summed apart, smallest first, and then added to the rest:
tensor cores cut off what does not fit where an ordinary addition rounds.

All parts are stored with rows and features filled up with zeros to whole tiles, so that no load needs a mask.
"""

# A kernel is not Python, whatever it looks like.
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

from functools import partial

import triton.language as tl

from gated_domains.layer.triton_jit import jit

_jit = partial(
    jit, counts=["rows", "columns", "row_tiles", "column_tiles", "first_tile", "steps", "bases", "size", "slots"]
)


@_jit
def split_kernel(
    x, centre, parts, norms, rows, features, stride, width, part, count: tl.constexpr, block: tl.constexpr
):
    """Rows less the centre, as sums of bfloat16 parts, and their squared norms; beyond the rows and features: zeros."""
    row = tl.program_id(0).to(tl.int64)
    norm = tl.zeros([block], tl.float32)
    for start in range(0, width, block):
        column = start + tl.arange(0, block)
        inside = (column < features) & (row < rows)
        stored = column < width
        target = parts + row * width + column
        value = tl.load(x + row * stride + column, mask=inside, other=0.0).to(tl.float32)
        value = value - tl.load(centre + column, mask=inside, other=0.0)
        first = value.to(tl.bfloat16)
        rest = value - first.to(tl.float32)
        second = rest.to(tl.bfloat16)
        tl.store(target, first, mask=stored)
        tl.store(target + part, second, mask=stored)
        if count == 3:
            third = (rest - second.to(tl.float32)).to(tl.bfloat16)
            tl.store(target + part + part, third, mask=stored)
            norm += value * value
        else:  # as two parts multiply: without the square of the second, or a row would lie apart from itself
            norm += first.to(tl.float32) * (first.to(tl.float32) + 2 * second.to(tl.float32))
    tl.store(norms + row, tl.sum(norm, axis=0))


@_jit
def _dots(a, b, a_part, b_part, a_step, b_step, steps, count: tl.constexpr, height: tl.constexpr, across: tl.constexpr):
    """The products of two blocks of pointers, ``steps`` steps along their common side."""
    total = tl.zeros([height, across], tl.float32)
    for _ in range(0, steps):
        a1 = tl.load(a)
        a2 = tl.load(a + a_part)
        b1 = tl.load(b)
        b2 = tl.load(b + b_part)
        if count == 3:
            a3 = tl.load(a + a_part + a_part)
            b3 = tl.load(b + b_part + b_part)
            some = tl.dot(a3, b1)
            some = tl.dot(a1, b3, some)
            some = tl.dot(a2, b2, some)
            some = tl.dot(a2, b1, some)
        else:
            some = tl.dot(a2, b1)
        some = tl.dot(a1, b2, some)
        some = tl.dot(a1, b1, some)
        total += some
        a += a_step
        b += b_step
    return total


@_jit
def _place(row_tiles, column_tiles, group: tl.constexpr):
    """The tile of this program: ``group`` rows of tiles are walked together, which keeps their data in the cache."""
    program = tl.program_id(0)
    in_group = group * column_tiles
    first = (program // in_group) * group
    high = tl.minimum(row_tiles - first, group)
    return first + (program % in_group) % high, (program % in_group) // high


@_jit
def _squared(
    x, z, x_norms, z_norms, x_part, z_part, row, column, width, steps, rounding,
    count: tl.constexpr, block: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    """The squared distances of the tile that starts at (row, column)."""
    side, along = tl.arange(0, block), tl.arange(0, step)
    a = x + row.to(tl.int64) * width + side[:, None] * width + along[None, :]
    b = z + column.to(tl.int64) * width + side[None, :] * width + along[:, None]
    dots = _dots(a, b, x_part, z_part, step, step, steps, count, block, block)
    norms = tl.load(x_norms + row + side)[:, None] + tl.load(z_norms + column + side)[None, :]
    squared = norms - 2 * dots
    return tl.where(squared <= rounding * norms, 0.0, squared)


@_jit
def _value(squared, sigma, alpha, kind: tl.constexpr):
    """k as a function of the squared distance; the kinds are numbered as in ``fused.KINDS``."""
    if kind == 0:
        value = tl.exp(squared * (-0.5 / (sigma * sigma)))
    elif kind == 1:
        value = tl.exp(-tl.sqrt(squared) / sigma)
    elif kind == 2:
        value = tl.exp(-alpha * tl.log(1 + squared / (2 * alpha * sigma * sigma)))
    elif kind == 3:
        s = tl.sqrt(3 * squared) / sigma
        value = (1 + s) * tl.exp(-s)
    elif kind == 4:
        s = tl.sqrt(5 * squared) / sigma
        value = (1 + s + s * s / 3) * tl.exp(-s)
    else:
        value = tl.rsqrt(1 + squared / (sigma * sigma))
    return value


@_jit
def _slope(squared, sigma, alpha, kind: tl.constexpr):
    """dk / d(squared distance)."""
    scale = 1 / (sigma * sigma)
    if kind == 0:
        slope = -0.5 * scale * tl.exp(squared * (-0.5 * scale))
    elif kind == 1:
        apart = squared > 0
        distance = tl.sqrt(tl.where(apart, squared, 1.0))
        slope = tl.where(apart, -0.5 * tl.exp(-distance / sigma) / (sigma * distance), 0.0)
    elif kind == 2:
        base = 1 + squared * (0.5 * scale) / alpha
        slope = -0.5 * scale * tl.exp(-alpha * tl.log(base)) / base
    elif kind == 3:
        slope = -1.5 * scale * tl.exp(-tl.sqrt(3 * squared) / sigma)
    elif kind == 4:
        s = tl.sqrt(5 * squared) / sigma
        slope = (-5.0 / 6) * scale * (1 + s) * tl.exp(-s)
    else:
        value = tl.rsqrt(1 + squared * scale)
        slope = -0.5 * scale * value * value * value
    return slope


@_jit
def means_kernel(
    x, z, x_norms, z_norms, sigma, alpha, sums, x_part, z_part, width, row_tiles, column_tiles, steps,
    size, columns, slots, rounding,
    kind: tl.constexpr, count: tl.constexpr, block: tl.constexpr, step: tl.constexpr, single: tl.constexpr,
):  # fmt: skip
    """Sums of kernel values over the columns of one basis within one tile: sums[tile, basis in the tile, row]."""
    r, c = _place(row_tiles, column_tiles, 8)
    squared = _squared(
        x, z, x_norms, z_norms, x_part, z_part, r * block, c * block, width, steps, rounding, count, block, step
    )
    value = _value(squared, tl.load(sigma).to(tl.float32), tl.load(alpha).to(tl.float32), kind)
    side = tl.arange(0, block)
    rows = row_tiles * block
    target = sums + c.to(tl.int64) * slots * rows + r * block + side
    if single:
        tl.store(target[:, None] + side[None, :] * rows, value)
    else:
        column = c * block + side
        basis = column // size - (c * block) // size
        for slot in range(0, slots):
            mine = (basis == slot) & (column < columns)
            tl.store(target + slot * rows, tl.sum(tl.where(mine[None, :], value, 0.0), axis=1))


@_jit
def gather_kernel(sums, cross, rows, padded, bases, size, slots, block: tl.constexpr):
    """cross[row, basis]: the sums of the tiles that a basis reaches into, always in the same order."""
    basis = tl.program_id(0)
    row = tl.program_id(1) * block + tl.arange(0, block)
    total = tl.zeros([block], tl.float32)
    for tile in range((basis * size) // block, (basis * size + size - 1) // block + 1):
        place = tile * slots + basis - (tile * block) // size
        total += tl.load(sums + place.to(tl.int64) * padded + row)
    mean = tl.div_rn(total, tl.zeros([block], tl.float32) + size)
    tl.store(cross + row.to(tl.int64) * bases + basis, mean, mask=row < rows)


@_jit
def weights_kernel(
    x, z, x_norms, z_norms, sigma, alpha, gradient, weights, row_sums, column_sums, x_part, z_part, weights_part, width,
    row_tiles, column_tiles, first_tile, steps, rows, columns, bases, size, rounding,
    kind: tl.constexpr, count: tl.constexpr, block: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    """The gradient with respect to every squared distance of a tile, in parts, and its sums over rows and columns."""
    r, c = _place(row_tiles, column_tiles, 8)
    start = (first_tile + c) * block
    squared = _squared(
        x, z, x_norms, z_norms, x_part, z_part, r * block, start, width, steps, rounding, count, block, step
    )
    side = tl.arange(0, block)
    row, column = r * block + side, start + side
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    source = gradient + row.to(tl.int64)[:, None] * bases + (column // size)[None, :]
    slope = _slope(squared, tl.load(sigma).to(tl.float32), tl.load(alpha).to(tl.float32), kind)
    value = tl.where(inside, tl.load(source, mask=inside, other=0.0) * slope / size, 0.0)
    tl.store(row_sums + c * (row_tiles * block) + row, tl.sum(value, axis=1))
    tl.store(column_sums + r * (column_tiles * block) + c * block + side, tl.sum(value, axis=0))
    target = weights + row.to(tl.int64)[:, None] * (column_tiles * block) + (c * block + side)[None, :]
    first = value.to(tl.bfloat16)
    rest = value - first.to(tl.float32)
    second = rest.to(tl.bfloat16)
    tl.store(target, first)
    tl.store(target + weights_part, second)
    if count == 3:
        tl.store(target + weights_part + weights_part, (rest - second.to(tl.float32)).to(tl.bfloat16))


@_jit
def product_kernel(
    a, b, out, a_part, b_part, a_stride, b_stride, row_tiles, column_tiles, steps, rows, features,
    transposed: tl.constexpr, add: tl.constexpr, count: tl.constexpr, block: tl.constexpr, step: tl.constexpr,
):  # fmt: skip
    """out = a b (or a' b), or out + that."""
    r, c = _place(row_tiles, column_tiles, 8)
    side, along = tl.arange(0, block), tl.arange(0, step)
    if transposed:
        a_tile = a + r * block + side[:, None] + along[None, :] * a_stride
        a_step = step * a_stride
    else:
        a_tile = a + (r * block).to(tl.int64) * a_stride + side[:, None] * a_stride + along[None, :]
        a_step = step
    b_tile = b + c * block + side[None, :] + along[:, None] * b_stride
    value = _dots(a_tile, b_tile, a_part, b_part, a_step, step * b_stride, steps, count, block, block)
    row, column = r * block + side, c * block + side
    target = out + row.to(tl.int64)[:, None] * features + column[None, :]
    inside = (row < rows)[:, None] & (column < features)[None, :]
    if add:
        value += tl.load(target, mask=inside, other=0.0)
    tl.store(target, value, mask=inside)


@_jit
def finish_kernel(out, own, centre, sums, features, stride, block: tl.constexpr):
    """out = 2 (sums own - out), ``own`` centred."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.load(sums + row)
    for start in range(0, features, block):
        column = start + tl.arange(0, block)
        inside = column < features
        value = tl.load(own + row * stride + column, mask=inside, other=0.0).to(tl.float32)
        value = value - tl.load(centre + column, mask=inside, other=0.0)
        target = out + row * features + column
        tl.store(target, 2 * (total * value - tl.load(target, mask=inside, other=0.0)), mask=inside)
