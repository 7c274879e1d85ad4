"""Gates: from inner products to beta, the weight of each basis for each sample."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gated_domains.common.names import known_name
from gated_domains.common.numbers import not_negative, positive
from gated_domains.layer.products import InnerProducts
from gated_domains.layer.scalars import Scalars, shown

EXPLAINING_RIDGE = 1e-6
"""Of the exact projection that a ProjectionGate without a ridge explains a sample by."""


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
