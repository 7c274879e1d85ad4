"""GatedOutput: all that one evaluation of the layer found."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from gated_domains.layer.products import InnerProducts


class GatedOutput(NamedTuple):
    """All that one evaluation found. With batch or stream gates, beta and products have a leading size of 1."""

    prediction: Float[Tensor, "*batch outputs"]
    beta: Float[Tensor, "*gated bases"]
    products: InnerProducts
    variance: Float[Tensor, "*batch outputs"] | None = None
    """Of the prediction, for a probabilistic task."""
    coverage: Float[Tensor, "*batch"] | None = None
    """How much of the deviations from the shared expert a sample gets, 0 to 1."""
