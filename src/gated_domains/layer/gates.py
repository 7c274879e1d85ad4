"""Inner products and gates: what a sample shares with each basis, and the weight of each basis for it.

self_product[i] = k(x_i, x_i)
cross[i, j]     = <phi(x_i), mu_j>  = mean_n k(x_i, v_jn)
gram[j, l]      = <mu_j, mu_l>      = mean_nm k(v_jn, v_lm)

The three products are computed once a batch; gates, penalties and familiarity read nothing else. Also here:
``Weighed`` and ``GatedOutput``, what an evaluation returns, and ``gate_health``, whether gates do anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gated_domains.common.validation import DEAD_WEIGHT, DOUBLED, GateHealth, known_name, not_negative, positive
from gated_domains.layer.kernels import KernelLike, PairFunction, Scalars, as_kernel, autocast_off, shown

# How much memory one block of kernel values may take before the work is cut into chunks of bases.
MEMORY_BUDGET = 256 * 2**20
EXPLAINING_RIDGE = 1e-6
"""Of the exact projection that a ProjectionGate without a ridge explains a sample by."""


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


class Gate(Scalars):
    """A map from inner products to beta. Inactive bases get weight 0."""

    def forward(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        raise NotImplementedError

    def explaining(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        """The beta whose residual says how unfamiliar a sample is; the gate's own unless that is no approximation."""
        return self(products)


class SoftmaxGate(Gate):
    """``beta = softmax_j(kappa * H_ij)`` for a similarity H."""

    kappa: Tensor

    def __init__(self, kappa: float | Tensor = 2.0) -> None:
        super().__init__()
        self.add_scalar("kappa", positive("kappa", kappa))

    def similarity(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        """H, the similarity of each sample to each basis."""
        raise NotImplementedError

    def forward(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        similarity = self.similarity(products)
        logits = similarity * self.kappa.to(similarity.dtype)
        if products.active is not None:
            logits = logits.masked_fill(~products.active, -torch.inf)
        return logits.softmax(-1)

    def set_kappa(self, kappa: float | Tensor) -> None:
        """Write a new sharpness, in place."""
        self.kappa.fill_(positive("kappa", kappa))

    def extra_repr(self) -> str:
        return f"kappa={shown(self.kappa)}"


class CosineGate(SoftmaxGate):
    """``H = cross / sqrt(self_product * ||mu_j||^2)``: the cosine of the angle between a sample and a basis.

    A sample far from every basis gets uniform weights.
    """

    def similarity(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        lengths = products.self_product.unsqueeze(-1) * products.norms
        return products.cross * torch.rsqrt(_off_zero(lengths))


class MMDGate(SoftmaxGate):
    """``H = -(self_product - 2 cross + ||mu_j||^2)``: minus the squared distance, so the nearer basis weighs more.

    Where unfamiliar samples go: far from every basis cross is 0 and ``H = -1 - ||mu_j||^2`` for a Gaussian kernel, so
    that ``beta = softmax_j(-kappa ||mu_j||^2)``. That is not neutral: most weight goes to the basis with the smallest
    ``||mu_j||^2``, the one whose vectors are spread out most, whatever the sample is. A ``CosineGate`` gives such a
    sample uniform weights.
    """

    def similarity(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        return 2 * products.cross - products.self_product.unsqueeze(-1) - products.norms


class ProjectionGate(Gate):
    """Coefficients of the projection on the span of the bases.

    ``ridge=None`` is the paper's ``cross / ||mu_j||^2``, right for orthogonal bases only. Any float, 0 included, solves
    ``(gram + ridge I) beta = cross``, which needs no orthogonality; beta may be negative and need not sum to one.
    """

    def __init__(self, ridge: float | None = None) -> None:
        super().__init__()
        self.ridge = None if ridge is None else not_negative("ridge", ridge)

    def forward(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        if self.ridge is not None:
            return exact_projection(products, self.ridge)
        beta = products.cross / _off_zero(products.norms)
        return beta if products.active is None else beta * products.active

    def explaining(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        # The paper's coefficients overshoot when bases overlap: their residual can exceed that of beta = 0.
        return exact_projection(products, EXPLAINING_RIDGE) if self.ridge is None else self(products)

    def extra_repr(self) -> str:
        return f"ridge={self.ridge}"


def exact_projection(products: InnerProducts, ridge: float = 0.0) -> Float[Tensor, "*batch bases"]:
    """``(gram + ridge I)^-1 cross``: the minimiser of ``||phi(x) - sum_j beta_j mu_j||^2 + ridge ||beta||^2``."""
    gram, cross = products.gram, products.cross
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    if products.active is not None:
        used = products.active
        gram = torch.where(used.unsqueeze(-1) & used, gram, identity)
        cross = cross * used
    # All samples as right-hand sides of one factorisation; solve_ex does not wait for the device to report success.
    sides = cross.reshape(-1, cross.shape[-1]).mT
    return torch.linalg.solve_ex(gram + ridge * identity, sides)[0].mT.reshape(cross.shape)


def simplex(
    beta: Float[Tensor, "*batch bases"], active: Bool[Tensor, " bases"] | None = None
) -> Float[Tensor, "*batch bases"]:
    """``max(beta, 0) / sum``: weights that a mixture can be built of; uniform where no weight is positive."""
    tiny = torch.finfo(beta.dtype).tiny ** 0.5
    weights = beta.clamp_min(0) + tiny
    if active is not None:
        weights = weights * active
    return weights / weights.sum(-1, keepdim=True)


def _off_zero(squared: Tensor) -> Tensor:
    return squared.clamp_min(torch.finfo(squared.dtype).tiny)


GATES: dict[str, type[Gate]] = {"cosine": CosineGate, "mmd": MMDGate, "projection": ProjectionGate}


def as_gate(gate: str | Gate) -> Gate:
    """The gate of that name, or the one given."""
    if isinstance(gate, str):
        return GATES[known_name("gate", gate, GATES)]()
    if not isinstance(gate, Gate):
        raise TypeError(f"gate must be a gate or its name, got {gate!r}; try CosineGate(kappa) or 'mmd'")
    return gate


class Weighed(NamedTuple):
    """What gates found of a batch. With batch or stream gates, beta and products have a leading size of 1."""

    products: InnerProducts
    beta: Float[Tensor, "*gated bases"]
    coverage: Float[Tensor, "*batch"] | None = None
    """Familiarity of each sample, from 1 (like the training data) to 0; None without a shared expert."""
    applies_coverage: bool = False
    """Whether coverage scales the deviations from the shared expert."""

    @property
    def mixture(self) -> Float[Tensor, "*gated bases"]:
        """How much of each basis' deviation a sample gets: beta, times coverage where that is applied."""
        if self.coverage is None or not self.applies_coverage:
            return self.beta
        return self.coverage.unsqueeze(-1) * self.beta


class GatedOutput(NamedTuple):
    """All that one evaluation found. With batch or stream gates, beta and products have a leading size of 1."""

    prediction: Float[Tensor, "*batch outputs"]
    beta: Float[Tensor, "*gated bases"]
    products: InnerProducts
    variance: Float[Tensor, "*batch outputs"] | None = None
    """Of the prediction, for a probabilistic task."""
    coverage: Float[Tensor, "*batch"] | None = None
    """Familiarity of each sample, from 1 (like the training data) to 0; it scales nothing unless units apply it."""


@torch.no_grad()
def gate_health(products: InnerProducts, beta: Float[Tensor, "rows bases"]) -> GateHealth:
    """Measure the gates on a sample, from what one evaluation returned."""
    used = torch.arange(beta.shape[-1], device=beta.device)
    if products.active is not None:
        used = used[products.active]
    alone = len(used) < 2  # one basis has weight 1 everywhere, and nothing is wrong with that
    relative = products.cross[:, used] / products.self_product.unsqueeze(-1)
    norms = products.norms[used]
    cosine = products.gram[used][:, used] * torch.rsqrt(norms.unsqueeze(-1) * norms)
    same = torch.nonzero(torch.triu(cosine > DOUBLED, diagonal=1)).tolist()
    weight = beta[:, used].abs()
    varied = len(beta) > 1 and not alone
    return GateHealth(
        beta_std=float(beta[:, used].std(0).max()) if varied else float("inf"),
        kernel_low=float(relative.amin(1).float().quantile(0.1)),
        kernel_high=float(relative.amax(1).float().quantile(0.9)),
        dead=tuple(int(used[j]) for j in torch.nonzero(weight.amax(0) < DEAD_WEIGHT).flatten()),
        doubled=tuple((int(used[i]), int(used[j])) for i, j in same),
    )
