"""``examine``: a layer and rows of its gating view, looked at from all sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.errors import DataError
from gated_domains.insight.doctor import of_bases, of_gates, of_kernel, of_labels, of_rows
from gated_domains.insight.doctor.findings import Diagnosis, Finding
from gated_domains.insight.doctor.measures import look
from gated_domains.layer.units import GatedDomainUnits

WITHOUT_ROWS = (
    "without rows these were not looked at: dependence on the input, kernel saturation, gate entropy, bases in use, "
    "dead bases, sigma, kappa, familiarity, domain or class"
)


@torch.no_grad()
def examine(
    units: GatedDomainUnits,
    view: Shaped[Tensor, "*rows gating"] | None = None,
    *,
    features: Shaped[Tensor, "*rows features"] | None = None,
    domains: Sequence[Any] | NDArray[Any] | Tensor | None = None,
    classes: Sequence[Any] | NDArray[Any] | Tensor | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Whether the gates of a layer do anything, and what helps where they do not.

        print(examine(head, features, domains=site, classes=y))

    Parameters
    ----------
    view : familiar rows as gates see them, of training or validation; without any, what the weights alone tell.
    features : the same rows as experts see them, where that is another view.
    domains, classes : labels of the same rows, where they are known: do gates follow the domain or the class?
    seed : of the rows that are looked at where there are more than 2,000, and of permutations.

    Returns
    -------
    Diagnosis
        A finding for each thing that was looked at. The layer stays as it is.
    """
    if view is None:
        known = (*_of_weights(units), of_rows.cost(units, None))
        return Diagnosis(known, notes=(WITHOUT_ROWS,), of_weights_alone=True)
    if view.numel() < 2 * view.shape[-1]:
        raise DataError(
            f"gates are examined on rows together, got a view of shape {tuple(view.shape)}; give 2 at least"
        )
    seen = look(units, view, seed=seed)
    found: tuple[Finding | None, ...] = (
        of_gates.dependence(seen),
        of_kernel.saturation(seen),
        of_gates.sharpness(seen),
        of_gates.bases_in_use(seen),
        of_bases.dead(seen.health, units.num_bases),
        *_of_weights(units),
        of_kernel.sigma(seen),
        of_gates.kappa(seen),
        of_rows.familiarity(seen),
        None
        if domains is None
        else of_labels.follows(
            seen,
            _labels("domains", domains, view),
            None if classes is None else _labels("classes", classes, view),
            seed=seed,
        ),
        of_rows.cost(units, view.flatten(0, -2), None if features is None else features.flatten(0, -2)),
    )
    return Diagnosis(tuple(finding for finding in found if finding is not None))


def _labels(name: str, labels: Any, view: Tensor) -> NDArray[Any]:
    """One label for each row."""
    array = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels).ravel()
    if len(array) != view.shape[:-1].numel():
        raise DataError(f"{name} must have a label for each of {view.shape[:-1].numel():,} rows, got {len(array):,}")
    return array


def _of_weights(units: GatedDomainUnits) -> tuple[Finding, ...]:
    """What bases tell without any row."""
    found = (
        of_bases.duplicates(units),
        of_bases.collapsed(units),
        of_bases.orthogonality(units),
        of_bases.history(units),
    )
    return tuple(finding for finding in found if finding is not None)
