"""Whether gates do anything, measured in NumPy on what one evaluation found."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.common.validation import DEAD_WEIGHT, DOUBLED, GateHealth
from gated_domains.keras_layer.arrays import Array, as_numpy
from gated_domains.keras_layer.products import InnerProducts


def gate_health(products: InnerProducts, beta: Array, used: NDArray[np.int64]) -> GateHealth:
    """Measure the gates on a sample; ``used`` are the places of the bases in use."""
    weights = as_numpy(beta)[:, used]
    relative = as_numpy(products.cross)[:, used] / as_numpy(products.self_product)[:, None]
    gram = as_numpy(products.gram)[np.ix_(used, used)]
    norms = gram.diagonal()
    same = np.argwhere(np.triu(gram / np.sqrt(norms[:, None] * norms) > DOUBLED, k=1))
    varied = len(weights) > 1 and len(used) > 1  # one basis has weight 1 everywhere, and nothing is wrong with that
    return GateHealth(
        beta_std=float(weights.std(0, ddof=1).max()) if varied else float("inf"),
        kernel_low=float(np.quantile(relative.min(1), 0.1)),
        kernel_high=float(np.quantile(relative.max(1), 0.9)),
        dead=_places(used, np.abs(weights).max(0) < DEAD_WEIGHT),
        doubled=tuple((int(used[i]), int(used[j])) for i, j in same),
    )


def _places(used: NDArray[np.int64], marked: NDArray[Any]) -> tuple[int, ...]:
    return tuple(int(place) for place in used[marked])
