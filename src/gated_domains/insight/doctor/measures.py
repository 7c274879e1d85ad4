"""What is measured on a sample of rows, as numbers; judged elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.common.validation import GateHealth
from gated_domains.layer.fitting import match_kappa, subsample, typical_distance
from gated_domains.layer.gates import InnerProducts, SoftmaxGate, Weighed, gate_health, mean_gram, simplex
from gated_domains.layer.kernels import as_kernel
from gated_domains.layer.units import GatedDomainUnits

ROWS = 2_000
"""Rows that are looked at, the very ones that ``fit_bases`` matches kappa on."""
MATCHED_ENTROPY = 0.5
"""Of log M: the mean entropy that ``fit_bases`` gives gates unless another is asked for."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A layer and what its gates made of a sample of rows; ``beta`` is on the simplex, of the bases in use."""

    units: GatedDomainUnits
    rows: Float[Tensor, "rows gating"]
    weighed: Weighed
    beta: Float[Tensor, "rows bases"]
    health: GateHealth

    @property
    def num_bases(self) -> int:
        return self.beta.shape[1]


@torch.no_grad()
def look(units: GatedDomainUnits, view: Tensor, *, seed: int = 0) -> Seen:
    """At most ``ROWS`` rows of the gating view, as the gates of a layer weigh them."""
    health = units.health(view, seed=seed)  # refuses what is no view of this layer, in the layer's words
    rows = subsample(view.detach().flatten(0, -2), ROWS, seed).to(units.bases)
    weighed = units.weigh(rows)
    beta = simplex(weighed.beta.double(), weighed.products.active)[:, units.active]
    return Seen(units, rows, weighed, beta, health)


def entropy_share(beta: Float[Tensor, "rows bases"]) -> float:
    """``mean_i H(beta_i) / log M``: 0 where each row has one basis, 1 where all weights are alike. 0 for one basis."""
    if beta.shape[1] < 2:
        return 0.0
    return float(torch.special.entr(beta).sum(1).mean()) / math.log(beta.shape[1])


def information_share(beta: Float[Tensor, "rows bases"]) -> float:
    """``(H(mean_i beta_i) - mean_i H(beta_i)) / log M``: what a row tells of its basis, from 0 to 1. 0 for one basis.

    Unlike a standard deviation it counts changes of the mixture alone, and counts them by how much they tell.
    """
    if beta.shape[1] < 2:
        return 0.0
    return input_information(beta) / math.log(beta.shape[1])


def input_information(beta: Float[Tensor, "rows bases"]) -> float:
    """``I(J; X) = H(mean_i beta_i) - mean_i H(beta_i)``, in nats."""
    entropy = torch.special.entr
    return max(0.0, float(entropy(beta.mean(0)).sum() - entropy(beta).sum(1).mean()))


def effective_bases(beta: Float[Tensor, "rows bases"]) -> float:
    """``exp H(mean_i beta_i)``: as many bases of equal weight would be as even as these."""
    return math.exp(float(torch.special.entr(beta.mean(0)).sum()))


def matched_kappa(seen: Seen) -> float | None:
    """The kappa that ``fit_bases`` would set on these rows; None where the gate has none."""
    gate = seen.units.gate
    if not isinstance(gate, SoftmaxGate):
        return None
    return match_kappa(gate.similarity(seen.weighed.products)[:, seen.units.active], entropy=MATCHED_ENTROPY)


def width_and_distance(seen: Seen) -> tuple[float, float] | None:
    """sigma, and the typical distance between rows; None for a kernel without a width of ours."""
    kernel = as_kernel(seen.units.kernel)
    return (kernel.get_sigma(), typical_distance(seen.rows)) if kernel.has_width else None


@torch.no_grad()
def gram_of(units: GatedDomainUnits) -> Weighed:
    """The Gram matrix of the bases in use, as penalties read it; there are no rows."""
    bases = units.active_bases.detach()
    gram = mean_gram(units.kernel, bases, budget=units.memory_budget)
    none = gram.new_zeros(0, len(bases))
    return Weighed(products=InnerProducts(self_product=none[:, 0], cross=none, gram=gram), beta=none)


def spread_of_bases(units: GatedDomainUnits) -> Float[Tensor, " bases"]:
    """Root mean square distance of a basis' vectors to their mean, as a share of that of all; 0 where all are one."""
    bases = units.active_bases.detach().double()
    own = (bases - bases.mean(1, keepdim=True)).square().sum(-1).mean(1).sqrt()
    whole = (bases - bases.mean((0, 1))).square().sum(-1).mean().sqrt()
    return own / whole.clamp_min(torch.finfo(own.dtype).tiny)


def health_of_bases(units: GatedDomainUnits) -> GateHealth:
    """What bases alone tell of health, which is whether there are doubles; all else is as if nothing were wrong."""
    own = gram_of(units).products
    one = own._replace(self_product=own.gram.new_ones(1), cross=own.gram.new_ones(1, len(own.gram)))
    place = torch.nonzero(units.active).flatten().tolist()
    doubled = gate_health(one, one.cross).doubled
    return GateHealth(
        beta_std=math.inf,
        kernel_low=0.0,
        kernel_high=1.0,
        dead=(),
        doubled=tuple((place[i], place[j]) for i, j in doubled),
    )
