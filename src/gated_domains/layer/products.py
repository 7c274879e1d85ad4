"""The three inner products that everything else reads, computed once a batch.

self_product[i] = k(x_i, x_i)
cross[i, j]     = <phi(x_i), mu_j>  = mean_n k(x_i, v_jn)
gram[j, l]      = <mu_j, mu_l>      = mean_nm k(v_jn, v_lm)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gated_domains.layer.kernels import KernelLike, PairFunction, as_kernel
from gated_domains.layer.precision import autocast_off

# How much memory one block of kernel values may take before the work is cut into chunks of bases.
MEMORY_BUDGET = 256 * 2**20


class InnerProducts(NamedTuple):
    """self_product, cross and gram of one batch; ``active`` marks the bases in use (None: all of them)."""

    self_product: Float[Tensor, "*batch"]
    cross: Float[Tensor, "*batch bases"]
    gram: Float[Tensor, "bases bases"]
    active: Bool[Tensor, " bases"] | None = None

    @property
    def norms(self) -> Float[Tensor, " bases"]:
        """``||mu_j||^2``, the diagonal of the Gram matrix."""
        return self.gram.diagonal()


def inner_products(
    kernel: KernelLike,
    x: Float[Tensor, "batch features"],
    bases: Float[Tensor, "bases size features"],
    *,
    active: Bool[Tensor, " bases"] | None = None,
    budget: int = MEMORY_BUDGET,
) -> InnerProducts:
    """The inner products of every row of x with every basis."""
    vectors = bases.flatten(0, 1)
    if bases.requires_grad and not x.requires_grad:
        # Apart, so that no gradient of frozen features is computed only to be thrown away.
        cross, gram = mean_kernel(kernel, x, bases, budget=budget), mean_gram(kernel, bases, vectors, budget=budget)
    else:
        both = mean_kernel(kernel, torch.cat([x, vectors]), bases, budget=budget)
        cross, gram = both[: x.shape[0]], _mean_of_rows(both[x.shape[0] :], bases)
    return InnerProducts(
        self_product=as_kernel(kernel).diagonal(x),
        cross=cross,
        gram=gram,
        active=active,
    )


def pooled(
    products: InnerProducts,
    kernel: KernelLike,
    x: Float[Tensor, "rows features"],
    weights: Float[Tensor, " rows"] | None = None,
    *,
    budget: int = MEMORY_BUDGET,
) -> InnerProducts:
    """The products of one mean embedding, ``sum_i w_i phi(x_i)``, in place of each row's own: a leading size of 1.

    ``weights`` default to the plain mean; they are normalised to sum to one.
    """
    w = products.cross.new_ones(x.shape[0]) if weights is None else weights.to(products.cross.dtype)
    w = w / w.sum()
    to_all = mean_kernel(kernel, x, x.unsqueeze(1), budget=budget)
    with autocast_off(w):
        return products._replace(self_product=(w @ to_all @ w)[None], cross=(w @ products.cross)[None])


def pooled_by_block(
    products: InnerProducts,
    kernel: KernelLike,
    x: Float[Tensor, "rows features"],
    blocks: Int64[Tensor, " rows"],
    *,
    budget: int = MEMORY_BUDGET,
) -> InnerProducts:
    """The products of the mean embedding of each block, ``1/|b| sum_{i in b} phi(x_i)``, repeated for its rows.

    Rows with the same number in ``blocks`` are one block, and each row gets the products of its own block. Shapes do
    not depend on how many blocks there are, so a graph can capture it, and means over rows weight blocks by their size.
    """
    same = (blocks.unsqueeze(1) == blocks).to(products.cross.dtype)
    weights = same / same.sum(1, keepdim=True)
    to_all = mean_kernel(kernel, x, x.unsqueeze(1), budget=budget)
    with autocast_off(weights):
        to_own_block = (weights * to_all).sum(1)
        return products._replace(self_product=weights @ to_own_block, cross=weights @ products.cross)


def mean_kernel(
    kernel: KernelLike,
    x: Float[Tensor, "rows features"],
    bases: Float[Tensor, "bases size features"],
    *,
    budget: int = MEMORY_BUDGET,
) -> Float[Tensor, "rows bases"]:
    """``mean_n k(x_i, v_jn)``; over the budget in chunks of bases, whose kernel values are recomputed for gradients."""

    def block(rows: Tensor, some: Tensor) -> Tensor:
        values = kernel(rows, some.flatten(0, 1))
        return values.reshape(-1, *some.shape[:2]).mean(-1)

    size = _bases_a_chunk(kernel, x, bases, budget)
    if size >= bases.shape[0]:
        return block(x, bases)
    return torch.cat([_recomputed(block, x, some) for some in torch.split(bases, size)], dim=-1)


def mean_gram(
    kernel: KernelLike,
    bases: Float[Tensor, "bases size features"],
    vectors: Float[Tensor, "all features"] | None = None,
    *,
    budget: int = MEMORY_BUDGET,
) -> Float[Tensor, "bases bases"]:
    """``mean_nm k(v_jn, v_lm)``, as ``mean_kernel`` of the ``vectors`` of all bases, one after the other."""
    vectors = bases.flatten(0, 1) if vectors is None else vectors
    return _mean_of_rows(mean_kernel(kernel, vectors, bases, budget=budget), bases)


def residual(products: InnerProducts, beta: Float[Tensor, "*batch bases"]) -> Float[Tensor, "*batch"]:
    """``||phi(x_i) - sum_j beta_ij mu_j||^2``: what the bases cannot express of a sample."""
    explained = (beta * products.cross).sum(-1)
    with autocast_off(beta):
        spread = _QuadraticForm.apply(beta, products.gram)  # type: ignore[no-untyped-call]
    return products.self_product - 2 * explained + spread


class _QuadraticForm(torch.autograd.Function):
    """``beta_i' gram beta_i`` for every i.

    Compiled, the small products with gram become loops inside neighbouring kernels; only the sum over the batch in the
    gradient of gram stays a matrix product. Eager code keeps matrix products, which write (batch, bases) and no more.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(beta: Tensor, gram: Tensor) -> Tensor:
        return (_times(beta, gram) * beta).sum(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        beta, gram = ctx.saved_tensors
        weighted = gradient.unsqueeze(-1) * beta
        with autocast_off(beta):
            return _times(weighted, gram + gram.mT), _rows(weighted).mT @ _rows(beta)


def _mean_of_rows(to_vectors: Tensor, bases: Tensor) -> Tensor:
    return to_vectors.reshape(*bases.shape[:2], -1).mean(1)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _times(beta: Tensor, symmetric: Tensor) -> Tensor:
    return (beta.unsqueeze(-2) * symmetric).sum(-1) if torch.compiler.is_compiling() else beta @ symmetric


def _bases_a_chunk(kernel: KernelLike, x: Tensor, bases: Tensor, budget: int) -> int:
    if _exporting():
        return bases.shape[0]
    # A callable of the user's may well broadcast (rows, size, features); ours never do.
    width = bases.shape[-1] if isinstance(as_kernel(kernel), PairFunction) else 1
    bytes_a_basis = x.shape[0] * bases.shape[1] * width * max(x.element_size(), 4)
    return max(1, budget // max(1, bytes_a_basis))


def _recomputed(block: Callable[[Tensor, Tensor], Tensor], x: Tensor, some: Tensor) -> Tensor:
    if _inside_transform() or not torch.is_grad_enabled():
        return block(x, some)
    return cast(Tensor, checkpoint(block, x, some, use_reentrant=False))


def _exporting() -> bool:
    """True while a graph is traced for export, where a decision on the batch size would fix it."""
    told = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
    return bool(told())


def _inside_transform() -> bool:
    """True inside vmap, grad and their kin; while a graph is being compiled, False."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None
