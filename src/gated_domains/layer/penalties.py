"""Penalties: pure functions of the inner products and beta of one evaluation.

The loss is the task's plus ``sum of lambda * penalty``. Inactive bases count nowhere.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.layer.gates import simplex
from gated_domains.layer.products import InnerProducts, residual

Target = Literal["diagonal", "identity"]

# A matrix scaled by its largest row sum stays inside the range of float32 for this many squarings.
_SQUARINGS_IN_RANGE = 4


class Gated(Protocol):
    """What a penalty reads: a ``GatedOutput``, or anything that carries beta and products."""

    @property
    def beta(self) -> Tensor: ...
    @property
    def products(self) -> InnerProducts: ...


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


def srip(out: Gated, target: Target = "diagonal", *, squarings: int = 16) -> Float[Tensor, ""]:
    """The largest singular value of ``K - T``, by power iteration (no SVD, so that a graph can capture it)."""
    return spectral_norm(_overlap(out.products, target), squarings=squarings)


def mutual_coherence(out: Gated) -> Float[Tensor, ""]:
    """``max_{i != j} |K_ij| / sqrt(K_ii K_jj)``, 0 for one basis."""
    norms = out.products.norms.clamp_min(torch.finfo(out.products.gram.dtype).tiny)
    return (_overlap(out.products, "diagonal").abs() * torch.rsqrt(norms.unsqueeze(-1) * norms)).max()


def distributional_variance(out: Gated) -> Float[Tensor, ""]:
    """``mean(diag K) - mean(K)``: how far apart the bases lie."""
    gram, active = out.products.gram, out.products.active
    used = torch.ones_like(gram[0]) if active is None else active.to(gram.dtype)
    count = used.sum()
    return (out.products.norms * used).sum() / count - used @ gram @ used / count.square()


def spectral_norm(symmetric: Float[Tensor, "size size"], *, squarings: int = 16) -> Float[Tensor, ""]:
    """Largest ``|eigenvalue|`` of a symmetric matrix; its gradient is that of the leading eigenvector.

    Squaring the matrix k times is 2^k steps of power iteration: 16 squarings leave a relative error below 1e-5
    however close the second eigenvalue lies.
    """
    with torch.no_grad():
        tiny = torch.finfo(symmetric.dtype).tiny
        power = symmetric.detach()
        for step in range(squarings):
            if step % _SQUARINGS_IN_RANGE == 0:
                power = power / power.abs().sum(0).max().clamp_min(tiny)  # at least the spectral norm, so <= 1 after
            power = power @ power
        column = power.abs().sum(0).argmax(keepdim=True)
        leading = power.index_select(1, column)
        leading = leading / torch.linalg.vector_norm(leading).clamp_min(tiny)
        image = symmetric.detach() @ leading
        image = image / torch.linalg.vector_norm(image).clamp_min(tiny)
    return (image * (symmetric @ leading)).sum()


def _overlap(products: InnerProducts, target: Target) -> Tensor:
    if target not in ("diagonal", "identity"):
        raise ValueError(f"target must be 'diagonal' or 'identity', got {target!r}")
    gram = products.gram
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    overlap = gram * (1 - identity) if target == "diagonal" else gram - identity
    if products.active is not None:
        overlap = overlap * (products.active.unsqueeze(-1) & products.active)
    return overlap
