"""Gates: from inner products to beta, the weight of each basis for each sample."""

from __future__ import annotations

import math
from typing import Annotated, Any

from gated_domains.common.validation import not_negative, positive
from gated_domains.keras_layer.arrays import Array, Scalars, at_least, float_info, full_precision, ops, registered
from gated_domains.keras_layer.products import InnerProducts


class Gate(Scalars):
    """A map from inner products to beta. Inactive bases get weight 0."""

    def __call__(self, products: InnerProducts) -> Annotated[Array, "*batch bases"]:
        raise NotImplementedError

    def explaining(self, products: InnerProducts) -> Annotated[Array, "*batch bases"]:
        """The beta whose residual says how unfamiliar a sample is; the gate's own unless that is no approximation."""
        return self(products)


class SoftmaxGate(Gate):
    """``beta = softmax_j(kappa * H_ij)`` for a similarity H."""

    def __init__(self, kappa: float = 2.0) -> None:
        super().__init__(kappa=positive("kappa", kappa))

    def similarity(self, products: InnerProducts) -> Annotated[Array, "*batch bases"]:
        """H, the similarity of each sample to each basis."""
        raise NotImplementedError

    def __call__(self, products: InnerProducts) -> Annotated[Array, "*batch bases"]:
        similarity = self.similarity(products)
        logits = similarity * self.scalar("kappa", similarity)
        if products.active is not None:
            logits = ops.where(products.active, logits, ops.full_like(logits, -math.inf))
        return ops.softmax(logits, axis=-1)

    def get_kappa(self) -> float:
        """The sharpness now."""
        return self.get("kappa")

    def set_kappa(self, kappa: float) -> None:
        """Write a new sharpness, in place."""
        self.set_positive("kappa", kappa)


@registered
class CosineGate(SoftmaxGate):
    """``H = cross / sqrt(self_product * ||mu_j||^2)``: the cosine of the angle between a sample and a basis.

    A sample far from every basis gets uniform weights.
    """

    def similarity(self, products: InnerProducts) -> Annotated[Array, "*batch bases"]:
        lengths = ops.expand_dims(products.self_product, -1) * products.norms
        return products.cross * ops.rsqrt(_off_zero(lengths))


@registered
class MMDGate(SoftmaxGate):
    """``H = -(self_product - 2 cross + ||mu_j||^2)``: minus the squared distance, so the nearer basis weighs more.

    Where unfamiliar samples go: far from every basis cross is 0 and ``H = -1 - ||mu_j||^2`` for a Gaussian kernel, so
    that ``beta = softmax_j(-kappa ||mu_j||^2)``. That is not neutral: most weight goes to the basis with the smallest
    ``||mu_j||^2``, the one whose vectors are spread out most, whatever the sample is. A ``CosineGate`` gives such a
    sample uniform weights.
    """

    def similarity(self, products: InnerProducts) -> Annotated[Array, "*batch bases"]:
        return 2 * products.cross - ops.expand_dims(products.self_product, -1) - products.norms


@registered
class ProjectionGate(Gate):
    """Coefficients of the projection on the span of the bases.

    ``ridge=None`` is the paper's ``cross / ||mu_j||^2``, right for orthogonal bases only. Any float, 0 included, solves
    ``(gram + ridge I) beta = cross``, which needs no orthogonality; beta may be negative and need not sum to one.
    """

    def __init__(self, ridge: float | None = None) -> None:
        super().__init__()
        self.ridge = None if ridge is None else not_negative("ridge", ridge)

    def __call__(self, products: InnerProducts) -> Annotated[Array, "*batch bases"]:
        if self.ridge is not None:
            return exact_projection(products, self.ridge)
        beta = products.cross / _off_zero(products.norms)
        return beta if products.active is None else beta * ops.cast(products.active, beta.dtype)

    def explaining(self, products: InnerProducts) -> Annotated[Array, "*batch bases"]:
        # The paper's coefficients overshoot when bases overlap: their residual can exceed that of beta = 0.
        return exact_projection(products, 1e-6) if self.ridge is None else self(products)

    def get_config(self) -> dict[str, Any]:
        return {"ridge": self.ridge}

    def __repr__(self) -> str:
        return f"ProjectionGate(ridge={self.ridge})"


def exact_projection(products: InnerProducts, ridge: float = 0.0) -> Annotated[Array, "*batch bases"]:
    """``(gram + ridge I)^-1 cross``: the minimiser of ``||phi(x) - sum_j beta_j mu_j||^2 + ridge ||beta||^2``."""
    gram, cross = products.gram, products.cross
    size = gram.shape[-1]
    identity = ops.eye(size, dtype=gram.dtype)
    if products.active is not None:
        used = products.active
        gram = ops.where(ops.logical_and(used[:, None], used), gram, identity)
        cross = cross * ops.cast(used, cross.dtype)
    # All samples as right-hand sides of one factorisation.
    sides = ops.transpose(ops.reshape(cross, (-1, size)))
    # A little of the identity at least: of doubled bases TensorFlow and PyTorch would raise in the middle of training.
    ridge = max(ridge, float(float_info(gram).eps))
    with full_precision():
        solved = ops.solve(gram + ridge * identity, sides)
    return ops.reshape(ops.transpose(solved), ops.shape(cross))


def simplex(
    beta: Annotated[Array, "*batch bases"], active: Annotated[Array, "bases"] | None = None
) -> Annotated[Array, "*batch bases"]:
    """``max(beta, 0) / sum``: weights that a mixture can be built of; uniform where no weight is positive."""
    weights = ops.relu(beta) + float(float_info(beta).tiny) ** 0.5
    if active is not None:
        weights = weights * ops.cast(active, weights.dtype)
    return weights / ops.sum(weights, axis=-1, keepdims=True)


def _off_zero(squared: Array) -> Array:
    return at_least(squared, float(float_info(squared).tiny))


GATES: dict[str, type[Gate]] = {"cosine": CosineGate, "mmd": MMDGate, "projection": ProjectionGate}
