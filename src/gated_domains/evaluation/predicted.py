"""Predicted: what a model says of many rows, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Predicted:
    """Predictions of rows, in their order."""

    output: NDArray[Any]
    beta: NDArray[Any] | None = None
    residual: NDArray[Any] | None = None
    coverage: NDArray[Any] | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is there, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}
