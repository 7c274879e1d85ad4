"""Rows of the training data that a gated estimator keeps, to hold new rows against."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gated_domains.estimators.material import Material
from gated_domains.estimators.network import Network

# Numbers that are kept at most, of wide rows: 32 MiB.
_MOST_NUMBERS = 1 << 23


class Reference(NamedTuple):
    """Standardised rows in float32, and the name of the domain of each; None where nobody told them."""

    rows: NDArray[np.float32]
    domains: NDArray[Any] | None

    @classmethod
    def none(cls, width: int) -> Reference:
        """No row."""
        return cls(np.empty((0, width), np.float32), None)

    @torch.no_grad()
    def joined_by(self, material: Material, network: Network, *, most: int, seed: int) -> Reference:
        """With rows of this material, by chance and in their order, until there are as many as there may be."""
        room = max(0, min(most, _MOST_NUMBERS // material.source.width) - len(self.rows))
        drawn = np.sort(np.random.default_rng(seed).permutation(len(material))[:room])
        if not len(drawn):
            return self
        new = network.standard(material.source.take(drawn)).float().cpu().numpy()
        names = None
        if material.domains is not None and material.domain_names is not None:
            names = material.domain_names[material.domains[drawn]]
        if len(self.rows):  # of some rows alone, domains would tell of other rows than there are
            names = None if names is None or self.domains is None else np.concatenate([self.domains, names])
        return Reference(np.concatenate([self.rows, new]), names)


def rows_asked_for(value: Any) -> int:
    """How many rows may be kept; refused unless it is a whole number of 0 or more."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"reference_rows must be a whole number of at least 0, got {value!r}; 0 keeps none")
    return number
