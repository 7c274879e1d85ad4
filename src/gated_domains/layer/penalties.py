"""Penalties: pure functions of the inner products and beta of one evaluation.

The loss is the task's plus ``sum of lambda * penalty``. Inactive bases count nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gated_domains.common.validation import known_name
from gated_domains.layer.gates import InnerProducts, residual, simplex
from gated_domains.layer.kernels import autocast_off

SQUARINGS = 16
# A matrix scaled by its largest row sum stays inside the range of float32 for this many squarings.
_SQUARINGS_IN_RANGE = 4

Target = Literal["diagonal", "identity"]


@runtime_checkable
class Gated(Protocol):
    """What a penalty reads: a ``GatedOutput``, or anything that carries beta and products."""

    @property
    def beta(self) -> Tensor: ...
    @property
    def products(self) -> InnerProducts: ...


Penalty = Callable[[Gated], Tensor]


def reconstruction(out: Gated) -> Float[Tensor, ""]:
    """OLS: ``mean_i ||phi(x_i) - sum_j beta_ij mu_j||^2``."""
    return residual(out.products, out.beta).mean()


def sparsity(out: Gated) -> Float[Tensor, ""]:
    """L1: ``mean_i sum_j |beta_ij|``.

    The paper's term. For softmax gates it is the constant 1 and trains nothing; ``entropy`` is the one that works.
    """
    return out.beta.abs().sum(-1).mean()


def entropy(out: Gated) -> Float[Tensor, ""]:
    """``mean_i -sum_j beta_ij log beta_ij``, of beta on the simplex: 0 for one basis a sample, log M for all alike."""
    weights = simplex(out.beta, out.products.active)
    return -(weights * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum(-1).mean()


def soft_orthogonality(out: Gated, target: Target = "diagonal") -> Float[Tensor, ""]:
    """``||K - T||_F^2`` of the Gram matrix K.

    The paper's target T is the identity, which rewards bases that collapse to a point (only then is K_jj = 1);
    the recommended one is the diagonal of K.
    """
    return _overlap(out.products, target).square().sum()


def srip(out: Gated, target: Target = "diagonal") -> Float[Tensor, ""]:
    """The largest singular value of ``K - T``, by power iteration (no SVD, so that a graph can capture it)."""
    return spectral_norm(_overlap(out.products, target))


def spectral_norm(symmetric: Float[Tensor, "size size"], *, squarings: int = SQUARINGS) -> Float[Tensor, ""]:
    """Largest ``|eigenvalue|``; its gradient is that of the leading eigenvector.

    Squaring a matrix k times is 2^k steps of power iteration. With the default 16 squarings the relative error stays
    near 1e-5, however close the second eigenvalue lies.
    """
    with autocast_off(symmetric):
        leading, image = _leading_pair(symmetric.detach(), squarings)
    return (symmetric * image.unsqueeze(-1) * leading).sum()


@torch.no_grad()
def _leading_pair(symmetric: Float[Tensor, "size size"], squarings: int) -> Float[Tensor, "2 size"]:
    """The leading eigenvector and its image under the matrix, each of length 1 (or 0, for a matrix of zeros)."""
    tiny = torch.finfo(symmetric.dtype).tiny
    power = symmetric
    for step in range(squarings):
        if step % _SQUARINGS_IN_RANGE == 0:
            # The largest row sum is at least the spectral norm, which is then at most 1.
            power = power / power.abs().sum(0).max().clamp_min(tiny)
        power = power @ power
    leading = power.index_select(1, power.abs().sum(0).argmax(keepdim=True)).squeeze(1)
    leading = leading / torch.linalg.vector_norm(leading).clamp_min(tiny)
    image = symmetric @ leading
    return torch.stack([leading, image / torch.linalg.vector_norm(image).clamp_min(tiny)])


def mutual_coherence(out: Gated) -> Float[Tensor, ""]:
    """``max_{i != j} |K_ij| / sqrt(K_ii K_jj)``, 0 for one basis."""
    norms = out.products.norms.clamp_min(torch.finfo(out.products.gram.dtype).tiny)
    return (_overlap(out.products, "diagonal").abs() * torch.rsqrt(norms.unsqueeze(-1) * norms)).max()


def distributional_variance(out: Gated) -> Float[Tensor, ""]:
    """``mean(diag K) - mean(K)``: how far apart the bases lie."""
    gram, active = out.products.gram, out.products.active
    used = torch.ones_like(gram[0]) if active is None else active.to(gram.dtype)
    count = used.sum()
    everywhere = (gram * used * used.unsqueeze(-1)).sum() / count.square()
    return (out.products.norms * used).sum() / count - everywhere


def mean_square_by_basis(parameters: Iterable[Tensor], active: Bool[Tensor, " bases"]) -> Float[Tensor, ""]:
    """``mean_j ||w_j||^2`` over the active bases, of parameters whose first dimension is the basis.

    A parameter of another shape belongs to every basis and counts in full.
    """
    by_basis: list[Tensor] = []
    shared: list[Tensor] = []
    for parameter in parameters:
        (by_basis if parameter.dim() > 0 and len(parameter) == len(active) else shared).append(parameter)
    used = active.to(torch.get_default_dtype())
    total = used.new_zeros(())
    # All of them at once: gated norms have dozens of small parameters, and small operators are a share of a step.
    if by_basis:
        squares = torch.cat([parameter.reshape(len(active), -1) for parameter in by_basis], 1).square().sum(1)
        total = total + (squares * used).sum() / used.sum()
    if shared:
        total = total + torch.cat([parameter.flatten() for parameter in shared]).square().sum()
    return total


ORTHOGONALITY: dict[str, Callable[..., Tensor]] = {
    "srip": srip,
    "soft_orthogonality": soft_orthogonality,
    "mutual_coherence": mutual_coherence,
}


def as_orthogonality(penalty: str | Penalty, target: Target) -> Penalty:
    """The penalty of that name towards this target, or the function given, which knows its own."""
    _check_target(target)
    if not isinstance(penalty, str):
        return penalty
    named = ORTHOGONALITY[known_name("orthogonality", penalty, ORTHOGONALITY)]
    # Coherence is a ratio of entries, with no target to subtract.
    return named if target == "diagonal" or named is mutual_coherence else partial(named, target=target)


def _check_target(target: Target) -> None:
    if target not in ("diagonal", "identity"):
        raise ValueError(f"target must be 'diagonal' or 'identity', got {target!r}")


def _overlap(products: InnerProducts, target: Target) -> Tensor:
    _check_target(target)
    gram = products.gram
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    overlap = gram * (1 - identity) if target == "diagonal" else gram - identity
    if products.active is not None:
        overlap = overlap * (products.active.unsqueeze(-1) & products.active)
    return overlap
