"""Batch-norm statistics by basis: weighted moments of a batch for each basis, mixed into those of each sample.

With the mean ``m_i`` and the mean square ``q_i`` of sample i over space, and its weights ``w_i`` on the simplex::

    mu_j   = (sum_i w_ij m_i + k m) / (sum_i w_ij + k)                  mean of basis j (m, q: means over the batch)
    s_j    = (sum_i w_ij q_i + k q) / (sum_i w_ij + k)                  mean square of basis j
    mean_i = sum_j w_ij mu_j,    var_i = sum_j w_ij s_j - mean_i^2      of sample i
    y_i    = scale_i (x_i - mean_i) / sqrt(var_i + eps) + shift_i

All moments are taken about the mean of the batch, so that variances stay exact where means are large. k pseudo-samples
shrink the moments of a basis towards those of the batch: one with little weight in a batch gets nearly the batch's.
After Batch Normalization Embeddings (Segu et al. 2020) and DSON (Seo et al., ECCV 2020), which have statistics by known
domain; here bases take the place of domains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from gated_domains.layer.kernels import at_least_float32, autocast_off

PSEUDO_SAMPLES = 16
"""k: the moments of the batch are added to those of each basis with the weight of this many samples."""
LEAST_WEIGHT = 0.01
"""If weights of a sample sum to less, the rest is spread evenly: far from all bases projection gates are noise."""


class Pooling(NamedTuple):
    """How a batch is pooled: moments by basis are ``matrix @ moments by sample``, summed over processes."""

    matrix: Float[Tensor, "bases batch"]
    rows: int | Float[Tensor, ""]
    """Rows of the batch, summed over processes."""


class BasisWeights:
    """The weights of a batch's samples on the bases, computed once for all norms of a model.

    Parameters
    ----------
    mixture
        Gate weights; negative ones count as 0, rows are scaled to a sum of 1, and no gradient flows through them.
    active
        Which bases are in use: a sample whose weights sum to less than ``LEAST_WEIGHT`` is spread over these.
    """

    def __init__(self, mixture: Float[Tensor, "rows bases"], active: Bool[Tensor, " bases"] | None = None) -> None:
        used = at_least_float32(mixture.detach()).clamp_min(0)
        even = used.new_ones(used.shape[-1]) if active is None else active.to(used)
        used = used * even
        total = used.sum(-1, keepdim=True)
        self.weights = (used + (LEAST_WEIGHT - total).clamp_min(0) * even / even.sum()) / total.clamp_min(LEAST_WEIGHT)
        self._pooled: tuple[tuple[object, ...], Pooling] | None = None

    def of(self, x: Tensor) -> Float[Tensor, "batch bases"]:
        """The weights of each row of x, in the precision of its moments."""
        return self.weights.to(_exact(x)).expand(x.shape[0], -1)

    def pooling(self, x: Tensor, group: dist.ProcessGroup | None) -> Pooling:
        """The pooling of a training batch, computed once for all norms of a model."""
        key = (x.shape[0], _exact(x), group)
        if self._pooled is None or self._pooled[0] != key:
            weights = self.of(x)
            totals = weights.sum(0)
            rows: int | Tensor = x.shape[0]
            if group is not None:
                both = torch.cat([totals, totals.new_full((1,), x.shape[0])])
                dist.all_reduce(both, group=group)
                totals, rows = both[:-1], both[-1]
            matrix = (weights + PSEUDO_SAMPLES / rows) / (totals + PSEUDO_SAMPLES)
            self._pooled = key, Pooling(matrix.T.contiguous(), rows)
        return self._pooled[1]


def process_group(norm: _BatchNorm) -> dist.ProcessGroup | None:
    """The processes that share a training batch; None with a single process."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    group = getattr(norm, "process_group", None) or dist.group.WORLD
    return group if dist.get_world_size(group) > 1 else None


def normalise_by_batch(
    x: Float[Tensor, "batch channels *positions"],
    scale: Float[Tensor, "batch channels"],
    shift: Float[Tensor, "batch channels"],
    weights: Float[Tensor, "batch bases"],
    pooling: Pooling,
    *,
    eps: float,
    group: dist.ProcessGroup | None = None,
) -> tuple[Float[Tensor, "batch channels *positions"], Float[Tensor, "2 bases channels"]]:
    """x normalised, scaled and shifted, by the moments of its own batch; and means and variances by basis, detached."""
    if torch.compiler.is_compiling() and group is None:
        # A compiler derives and fuses the backward pass itself, with fewer passes over x than single operators can.
        exact, space = at_least_float32(x), _space(x)
        variance, mean = torch.var_mean(exact, space, correction=0) if space else (torch.zeros_like(exact), exact)
        centre = mean.mean(0).detach()
        centred = mean - centre
        pooled = _product(pooling.matrix, torch.stack([centred, variance + centred.square()], 1))
        mean, rstd = _mean_and_rstd(_product(weights, pooled), eps)
        return _scaled(x, scale, shift, centre + mean, rstd), _by_basis(pooled.detach(), centre)
    apply = cast(Callable[..., tuple[Tensor, Tensor]], _NormaliseByBatch.apply)
    return apply(x, scale, shift, weights, pooling, eps, group)


def normalise_by_running(
    x: Float[Tensor, "batch channels *positions"],
    scale: Float[Tensor, "batch channels"],
    shift: Float[Tensor, "batch channels"],
    weights: Float[Tensor, "batch bases"],
    *,
    running_mean: Float[Tensor, "bases channels"],
    running_var: Float[Tensor, "bases channels"],
    eps: float,
) -> Float[Tensor, "batch channels *positions"]:
    """x normalised, scaled and shifted, by the running moments of the bases."""
    means, variances = running_mean.to(scale.dtype), running_var.to(scale.dtype)
    centre = means.mean(0)
    means = means - centre
    mean = weights @ means
    between = (weights @ means.square() - mean.square()).clamp_min(0)
    return _scaled(x, scale, shift, centre + mean, torch.rsqrt(weights @ variances + between + eps))


@torch.no_grad()
def update_running(norm: _BatchNorm, moments: Float[Tensor, "2 bases channels"], count: int | Tensor) -> None:
    """Move running means and variances towards those of a batch with ``count`` values a channel, as torch does."""
    if norm.running_mean is None or norm.running_var is None or not norm.training:
        return
    step: float | Tensor = 0.0 if norm.momentum is None else float(norm.momentum)
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if norm.momentum is None:  # the mean over all batches; a tensor, as the host need not know the number
            step = 1 / norm.num_batches_tracked.to(moments.dtype)
    mean, variance = moments
    for running, new in ((norm.running_mean, mean), (norm.running_var, variance * (count / (count - 1)))):
        towards = new.to(running.dtype)
        running.lerp_(towards, step if isinstance(step, float) else step.to(running.dtype))


class _NormaliseByBatch(torch.autograd.Function):
    """``normalise_by_batch`` as one operator: it reads x as few times as torch allows and saves no other feature map.

    A training step of GDU on an H200 (digits network) takes 4.8 ms with it, and 7.4 ms where autograd derives the
    backward pass (benchmarks/results/recipe_steps_h200.txt).

    Of the gradient g at the output, ``G = sum g`` and ``D = sum g (x - mean)`` over space are all that the small
    algebra needs. With ``a = scale * rstd`` the variance of a sample gets ``-e / 2`` for ``e = a rstd^2 D``, its second
    moment about c the same, and its mean ``(mean - c) e - a G``. Through the pooling these become ``dm`` and
    ``-de / 2`` for the moments of each sample, and x gets ``a g + (dm - (x - c) de) / positions``. c, the mean of the
    batch, cancels and has no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        weights: Tensor,
        pooling: Pooling,
        eps: float,
        group: dist.ProcessGroup | None,
    ) -> tuple[Tensor, Tensor]:
        moments, centre = _moments(x, pooling, group)
        pooled = _product(pooling.matrix, moments)
        if group is not None:
            dist.all_reduce(pooled, group=group)
        mean, rstd = _mean_and_rstd(_product(weights, pooled), eps)
        a = scale * rstd
        b = torch.addcmul(shift, centre + mean, a, value=-1)
        ctx.save_for_backward(x, centre, mean, rstd, a, weights, pooling.matrix)
        ctx.group = group
        ctx.set_materialize_grads(False)
        by_basis = _by_basis(pooled, centre)
        ctx.mark_non_differentiable(by_basis)
        return _affine(_over_space(b, x), x, _over_space(a, x), like=x), by_basis

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        g, _ = gradients
        if g is None:
            return (None,) * 7
        x, centre, mean, rstd, a, weights, pooling = ctx.saved_tensors
        with autocast_off(x):
            total, product = _sums_of_products(g, x)
            centred = torch.addcmul(product, centre + mean, total, value=-1)
            d_scale = centred * rstd
            if not ctx.needs_input_grad[0]:
                return None, d_scale, total, None, None, None, None
            found = total.new_empty((total.shape[0], 2, total.shape[1]))
            d_mean, e = found.unbind(1)
            torch.mul(d_scale, a * rstd, out=e)
            torch.mul(mean, e, out=d_mean).addcmul_(a, total, value=-1)
            pooled = _product(weights.T, found)
            if ctx.group is not None:
                dist.all_reduce(pooled, group=ctx.group)
            d_first, d_e = _product(pooling.T, pooled, 1 / _positions(x)).unbind(1)
            d_first = torch.addcmul(d_first, centre, d_e)
            d_x = _affine(_over_space(d_first, x), g, _over_space(a, x), like=x)
            torch.addcmul(d_x, x, _over_space(d_e, x), value=-1, out=d_x)
        return d_x, d_scale, total, None, None, None, None


def _mean_and_rstd(moments: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    mean, second = moments.unbind(1)
    variance = torch.addcmul(second, mean, mean, value=-1).clamp_min(0)
    return mean, torch.rsqrt(variance + eps)


def _moments(
    x: Tensor, pooling: Pooling, group: dist.ProcessGroup | None
) -> tuple[Float[Tensor, "batch 2 channels"], Float[Tensor, " channels"]]:
    """Mean and mean square of each sample over space about the mean of the batch, in float32 or better; that mean."""
    space, dtype = _space(x), _exact(x)
    mean = x.mean(space, dtype=dtype) if space else x.to(dtype)
    centre = mean.sum(0)
    if group is not None:
        dist.all_reduce(centre, group=group)
    centre = centre / pooling.rows
    moments = x.new_empty((x.shape[0], 2, x.shape[1]), dtype=dtype)
    first, second = moments.unbind(1)
    torch.sub(mean, centre, out=first)
    torch.square(first, out=second)
    if space:
        second.add_(_variance(x, mean))
    return moments, centre


def _variance(x: Tensor, mean: Tensor) -> Tensor:
    """Of each sample over space, in the precision of its mean."""
    space = _space(x)
    if x.dtype == torch.bfloat16:
        # It rounds x more coarsely than float32 rounds mean squares, which are summed here without being stored.
        squares = torch.linalg.vector_norm(x, 2, space, dtype=mean.dtype).square_().div_(_positions(x))
        return squares.addcmul_(mean, mean, value=-1).clamp_min_(0)
    return (x - _over_space(mean, x)).square_().mean(space)


def _by_basis(pooled: Float[Tensor, "bases 2 channels"], centre: Tensor) -> Float[Tensor, "2 bases channels"]:
    """Means and variances from pooled moments about a centre."""
    mean, second = pooled.unbind(1)
    return torch.stack([centre + mean, torch.addcmul(second, mean, mean, value=-1).clamp_min_(0)])


def _sums_of_products(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """``sum g`` and ``sum g x`` over space, in float32 or better; single products have the precision of x."""
    space, dtype = _space(x), _exact(x)
    if not space:
        exact = g.to(dtype)
        return exact, exact * x
    wide = g.to(dtype) if x.dtype == torch.float16 else g  # whose products could overflow
    return g.sum(space, dtype=dtype), (wide * x).sum(space, dtype=dtype)


def _scaled(x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    a = scale * rstd
    b = shift - mean * a
    return (x * _over_space(a, x) + _over_space(b, x)).to(x.dtype)


def _affine(b: Tensor, x: Tensor, a: Tensor, *, like: Tensor) -> Tensor:
    """``a x + b`` in one pass, computed in the precision of a, rounded as it is written; laid out as ``like``."""
    return torch.addcmul(b, x, a, out=torch.empty_like(like, dtype=x.dtype))


def _product(matrix: Tensor, pairs: Tensor, factor: float = 1.0) -> Tensor:
    """A matrix over samples or bases times pairs of moments, times a factor."""
    flat = pairs.flatten(1)
    found = matrix @ flat if factor == 1 else torch.addmm(flat.new_empty(()), matrix, flat, beta=0, alpha=factor)
    return found.unflatten(1, pairs.shape[1:])


def _exact(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _space(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.dim()))


def _positions(x: Tensor) -> int:
    return x.shape[2:].numel()


def _over_space(part: Tensor, x: Tensor) -> Tensor:
    return part.reshape(*part.shape, *(1,) * (x.dim() - 2))
