"""Penalties: pure functions of the inner products and beta of one evaluation.

The loss is the task's plus ``sum of lambda * penalty``. Inactive bases count nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from gated_domains.keras_layer.arrays import Array, at_least, float_info, full_precision, mean_of, ops
from gated_domains.keras_layer.gates import simplex
from gated_domains.keras_layer.output import GatedOutput
from gated_domains.keras_layer.products import InnerProducts, residual

Target = Literal["diagonal", "identity"]
Scalar = Annotated[Array, ""]

# Squaring a matrix k times is 2^k steps of power iteration; scaled to norm 1 it survives four squarings in float32.
_SQUARINGS = 16
_SQUARINGS_IN_RANGE = 4


def reconstruction(out: GatedOutput) -> Scalar:
    """OLS: ``mean_i ||phi(x_i) - sum_j beta_ij mu_j||^2``."""
    return mean_of(residual(out.products, out.beta))


def sparsity(out: GatedOutput) -> Scalar:
    """L1: ``mean_i sum_j |beta_ij|``.

    The paper's term. For softmax gates it is the constant 1 and trains nothing; ``entropy`` is the one that works.
    """
    return mean_of(ops.sum(ops.abs(out.beta), axis=-1))


def entropy(out: GatedOutput) -> Scalar:
    """``mean_i -sum_j beta_ij log beta_ij``, of beta on the simplex: 0 for one basis a sample, log M for all alike."""
    weights = simplex(out.beta, out.products.active)
    logs = ops.log(at_least(weights, float(float_info(weights).tiny)))
    return mean_of(-ops.sum(weights * logs, axis=-1))


def soft_orthogonality(out: GatedOutput, target: Target = "diagonal") -> Scalar:
    """``||K - T||_F^2`` of the Gram matrix K.

    The paper's target T is the identity, which rewards bases that collapse to a point (only then is K_jj = 1);
    the recommended one is the diagonal of K.
    """
    return ops.sum(ops.square(_overlap(out.products, target)))


def srip(out: GatedOutput, target: Target = "diagonal") -> Scalar:
    """The largest singular value of ``K - T``, by power iteration (no SVD, so that every backend can compile it)."""
    return _spectral_norm(_overlap(out.products, target))


def mutual_coherence(out: GatedOutput) -> Scalar:
    """``max_{i != j} |K_ij| / sqrt(K_ii K_jj)``, 0 for one basis."""
    norms = at_least(out.products.norms, float(float_info(out.products.gram).tiny))
    return ops.max(ops.abs(_overlap(out.products, "diagonal")) * ops.rsqrt(norms[:, None] * norms))


def distributional_variance(out: GatedOutput) -> Scalar:
    """``mean(diag K) - mean(K)``: how far apart the bases lie."""
    gram, active = out.products.gram, out.products.active
    if active is None:
        return mean_of(out.products.norms) - mean_of(gram)
    used = ops.cast(active, gram.dtype)
    count = ops.sum(used)
    return ops.sum(out.products.norms * used) / count - ops.sum(gram * used * used[:, None]) / ops.square(count)


ORTHOGONALITY: dict[str, Callable[..., Scalar]] = {
    "srip": srip,
    "soft_orthogonality": soft_orthogonality,
    "mutual_coherence": mutual_coherence,
}


def check_target(target: Target) -> Target:
    """The target, refused unless it is known."""
    if target not in ("diagonal", "identity"):
        raise ValueError(f"target must be 'diagonal' or 'identity', got {target!r}")
    return target


def _overlap(products: InnerProducts, target: Target) -> Annotated[Array, "bases bases"]:
    check_target(target)
    gram = products.gram
    identity = ops.eye(gram.shape[-1], dtype=gram.dtype)
    overlap = gram * (1 - identity) if target == "diagonal" else gram - identity
    if products.active is None:
        return overlap
    used = ops.cast(products.active, gram.dtype)
    return overlap * used * used[:, None]


def _spectral_norm(symmetric: Annotated[Array, "size size"]) -> Scalar:
    """Largest ``|eigenvalue|``; its gradient is that of the leading eigenvector."""
    tiny = float(float_info(symmetric).tiny)
    still = ops.stop_gradient(symmetric)
    power = still
    with full_precision():
        for step in range(_SQUARINGS):
            if step % _SQUARINGS_IN_RANGE == 0:
                # The largest row sum is at least the spectral norm, which is then at most 1.
                power = power / at_least(ops.max(ops.sum(ops.abs(power), axis=0)), tiny)
            power = power @ power
        leading = ops.take(power, ops.argmax(ops.sum(ops.abs(power), axis=0)), axis=1)
        leading = leading / at_least(ops.sqrt(ops.sum(ops.square(leading))), tiny)
        image = ops.sum(still * leading, axis=1)
        image = image / at_least(ops.sqrt(ops.sum(ops.square(image))), tiny)
    leading, image = ops.stop_gradient(leading), ops.stop_gradient(image)
    return ops.sum(symmetric * image[:, None] * leading)
