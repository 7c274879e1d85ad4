"""``examine``: a layer and rows of its gating view, looked at from all sides."""

from __future__ import annotations

import torch
from jaxtyping import Shaped
from torch import Tensor

from gated_domains.data.errors import DataError
from gated_domains.insight.doctor import of_bases, of_gates, of_kernel, of_rows
from gated_domains.insight.doctor.findings import Diagnosis, Finding
from gated_domains.insight.doctor.measures import look
from gated_domains.layer.units import GatedDomainUnits

WITHOUT_ROWS = (
    "without rows these were not looked at: dependence on the input, kernel saturation, gate entropy, bases in use, "
    "dead bases, sigma, kappa, coverage"
)


@torch.no_grad()
def examine(
    units: GatedDomainUnits,
    view: Shaped[Tensor, "*rows gating"] | None = None,
    *,
    features: Shaped[Tensor, "*rows features"] | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Whether the gates of a layer do anything, and what helps where they do not.

        print(examine(head, features))

    ``view`` are familiar rows as gates see them, of training or validation; without any, what the weights alone tell.
    ``features`` are the same rows as experts see them, where that is another view. The layer stays as it is.
    """
    if view is None:
        found = (*_of_weights(units), of_rows.cost(units, None))
        return Diagnosis(found, notes=(WITHOUT_ROWS,), of_weights_alone=True)
    if view.numel() < 2 * view.shape[-1]:
        raise DataError(
            f"gates are examined on rows together, got a view of shape {tuple(view.shape)}; give 2 at least"
        )
    seen = look(units, view, seed=seed)
    found = (
        of_gates.dependence(seen),
        of_kernel.saturation(seen),
        of_gates.sharpness(seen),
        of_gates.bases_in_use(seen),
        of_bases.dead(seen.health),
        *_of_weights(units),
        of_kernel.sigma(seen),
        of_gates.kappa(seen),
        of_rows.coverage(seen),
        of_rows.cost(units, view.flatten(0, -2), None if features is None else features.flatten(0, -2)),
    )
    return Diagnosis(found)


def _of_weights(units: GatedDomainUnits) -> tuple[Finding, ...]:
    """What bases tell without any row."""
    found = (
        of_bases.duplicates(units),
        of_bases.collapsed(units),
        of_bases.orthogonality(units),
        of_bases.history(units),
    )
    return tuple(finding for finding in found if finding is not None)
