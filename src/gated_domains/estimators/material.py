"""Material: what an estimator is fitted on, checked and on its device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight, check_array
from torch import Tensor

from gated_domains.estimators.rows import RowSource


@dataclass(frozen=True, eq=False)
class Material:
    """Rows with targets and weights (which average 1), and, where known, the domain each comes from.

    ``domains`` are places in ``domain_names``.
    """

    source: RowSource
    targets: Tensor
    weights: Tensor
    domains: NDArray[np.int64] | None = None
    domain_names: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: NDArray[np.int64]) -> Material:
        """Some of the rows, their weights averaging 1 again."""
        picked = torch.from_numpy(rows).to(self.source.device)
        weights = self.weights[picked]
        return Material(
            self.source.some(rows),
            self.targets[picked],
            weights / weights.mean(),
            None if self.domains is None else self.domains[rows],
            self.domain_names,
        )

    def strata(self) -> list[NDArray[np.int64]]:
        """The rows of every class in every domain; of every domain where numbers are predicted."""
        classes = self.targets.cpu().numpy() if self.targets.dim() == 1 else np.zeros(len(self), np.int64)
        domains = np.zeros(len(self), np.int64) if self.domains is None else self.domains
        _, place = np.unique(np.stack([classes, domains]), axis=1, return_inverse=True)
        order = np.argsort(place.ravel(), kind="stable")
        return np.split(order, np.flatnonzero(np.diff(place.ravel()[order])) + 1)


def known_domains(sample_domain: Any, rows: Any) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """The names of the domains, and the place of each row's among them; None where nobody knows them."""
    if sample_domain is None:
        return None
    values = check_array(sample_domain, ensure_2d=False, dtype=None, input_name="sample_domain")
    if values.ndim != 1:
        raise ValueError(f"sample_domain must be one name or number a row, got shape {values.shape}")
    if len(values) != rows.shape[0]:
        raise ValueError(f"sample_domain tells of {len(values)} rows, and X has {rows.shape[0]}")
    if values.dtype == object and any(value is None for value in values):
        raise ValueError("sample_domain contains None; name the domain of every row, or leave sample_domain out")
    names, places = np.unique(values.astype(str) if values.dtype == object else values, return_inverse=True)
    return names, places.astype(np.int64)


def row_weights(
    rows: Any,
    sample_weight: Any,
    *,
    classes: tuple[NDArray[Any], NDArray[np.int64]] | None = None,
    class_weight: Mapping[Any, float] | str | None = None,
    domains: NDArray[np.int64] | None = None,
    domain_weight: str | None = None,
) -> NDArray[np.float64]:
    """How much each row counts, 1 on average: its own weight times those of its class and of its domain."""
    weights = np.array(
        _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True), dtype=np.float64
    )
    if classes is not None and class_weight is not None:
        names, codes = classes
        if isinstance(class_weight, str) and class_weight == "balanced":
            weights = _balanced(weights, codes)
        else:
            weights *= compute_class_weight(class_weight, classes=names, y=names[codes])[codes]
    if domain_weight is not None:
        if domain_weight != "balanced":
            raise ValueError(f"domain_weight must be 'balanced' or None, got {domain_weight!r}")
        if domains is None:
            raise ValueError("domain_weight='balanced' needs to know the domains; pass sample_domain to fit")
        weights = _balanced(weights, domains)
    if not weights.sum() > 0:
        raise ValueError("every row has a weight of 0: there is nothing to learn from; give some row a weight above 0")
    return weights / weights.mean()


def _balanced(weights: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """The weights with every group's summing to the same."""
    total = np.bincount(groups, weights)
    return weights * np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)[groups]
