"""Coverage: how familiar a sample is, from 1 (like the training data) to 0 (unlike anything the bases express)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.keras_layer.arrays import Array, Scalars, at_least, float_info, ops

_UNFITTED = 2e4  # beyond any residual, so that an unfitted layer never falls back


class Coverage(Scalars):
    """``c = clip((q97 - r) / max(q97 - q50, eps), 0, 1)`` of the residual r, with quantiles of training residuals.

    Before ``fit`` every sample is covered: c = 1.
    """

    def __init__(self) -> None:
        super().__init__(q50=_UNFITTED / 2, q97=_UNFITTED)

    @property
    def fitted(self) -> bool:
        """Whether quantiles were taken of data."""
        return self.q97 < 0.99 * _UNFITTED

    def __call__(self, residual: Annotated[Array, "*batch"]) -> Annotated[Array, "*batch"]:
        q50, q97 = self.scalar("q50", residual), self.scalar("q97", residual)
        width = at_least(q97 - q50, float(float_info(residual).eps))
        return ops.clip((q97 - residual) / width, 0, 1)

    @property
    def q50(self) -> float:
        """The median of the residuals of training data."""
        return self.get("q50")

    @property
    def q97(self) -> float:
        """Their 97 per cent quantile."""
        return self.get("q97")

    def fit(self, residual: NDArray[Any]) -> None:
        """Set the quantiles from the residuals of training data."""
        q50, q97 = np.quantile(residual, [0.5, 0.97])
        self.set("q50", float(q50))
        self.set("q97", float(q97))
