"""Weighed and GatedOutput: what the gates of the layer found, and all that one evaluation of it found."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from gated_domains.layer.products import InnerProducts


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
