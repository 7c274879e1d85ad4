"""Gates: from inner products to beta, the weight of each basis for each sample.

Also here: ``Coverage``, how familiar a sample is; ``Weighed`` and ``GatedOutput``, what an evaluation returns; and
``gate_health``, whether gates do anything.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gated_domains.common.health import DEAD_WEIGHT, DOUBLED, GateHealth
from gated_domains.common.names import known_name
from gated_domains.common.numbers import not_negative, positive
from gated_domains.layer.precision import Scalars, shown
from gated_domains.layer.products import InnerProducts

EXPLAINING_RIDGE = 1e-6
"""Of the exact projection that a ProjectionGate without a ridge explains a sample by."""

# torch.quantile refuses more values than this.
_QUANTILE_LIMIT = 2**24
_UNFITTED = 2e4  # beyond any residual, so that an unfitted layer never falls back


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


class Coverage(Scalars):
    """How familiar a sample is, from 1 (like the training data) to 0 (unlike anything the bases express).

    ``c = clip((q97 - r) / max(q97 - q50, eps), 0, 1)`` of the residual r, with quantiles of training residuals.

    Before ``fit`` every sample is covered: c = 1.
    """

    q50: Tensor
    q97: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_scalar("q50", _UNFITTED / 2)
        self.add_scalar("q97", _UNFITTED)

    @property
    def fitted(self) -> bool:
        """Whether quantiles were taken of data."""
        return float(self.q97) < 0.99 * _UNFITTED  # half precision rounds it

    def forward(self, residual: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        q50, q97 = self.q50.to(residual.dtype), self.q97.to(residual.dtype)
        width = (q97 - q50).clamp_min(torch.finfo(residual.dtype).eps)
        return ((q97 - residual) / width).clamp(0, 1)

    @torch.no_grad()
    def fit(self, residual: Float[Tensor, " rows"]) -> None:
        """Set the quantiles from the residuals of training data."""
        kept = residual.detach().flatten()
        kept = kept[:: 1 + kept.numel() // _QUANTILE_LIMIT]
        levels = torch.tensor([0.5, 0.97], dtype=kept.dtype, device=kept.device)
        q50, q97 = torch.quantile(kept, levels)
        self.q50.copy_(q50)
        self.q97.copy_(q97)

    def extra_repr(self) -> str:
        return f"q50={shown(self.q50)}, q97={shown(self.q97)}"


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
