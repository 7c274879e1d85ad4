"""GatedOutput: all that one evaluation of the layer found."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from gated_domains.keras_layer.arrays import Array
from gated_domains.keras_layer.products import InnerProducts


class GatedOutput(NamedTuple):
    """All that one evaluation found. With batch gates, beta and products have a leading size of 1."""

    prediction: Annotated[Array, "*batch units"]
    beta: Annotated[Array, "*gated bases"]
    products: InnerProducts
    variance: Annotated[Array, "*batch units"] | None = None
    """Of the prediction, for a probabilistic task."""
    coverage: Annotated[Array, "*batch"] | None = None
    """Familiarity of each sample, from 1 (like the training data) to 0; it scales nothing unless units apply it."""
