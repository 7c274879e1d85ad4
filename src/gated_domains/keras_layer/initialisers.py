"""How bases start before data are seen."""

from __future__ import annotations

from typing import Any

from gated_domains.keras_layer.arrays import Array, keras, ops, registered


@registered
class PaperNormal(keras.initializers.Initializer):
    """The paper's start: basis j drawn from ``N(0.5 j (-1)^j, (0.1 (j + 1))^2)``."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self._normal = keras.initializers.RandomNormal(0.0, 1.0, seed=seed)

    def __call__(self, shape: tuple[int, ...], dtype: str | None = None) -> Array:
        noise = self._normal(shape, dtype=dtype)
        j = ops.reshape(ops.arange(shape[0], dtype=noise.dtype), (-1, 1, 1))
        sign = ops.reshape(ops.convert_to_tensor([(-1.0) ** k for k in range(shape[0])], dtype=noise.dtype), (-1, 1, 1))
        return 0.5 * j * sign + 0.1 * (j + 1) * noise

    def get_config(self) -> dict[str, Any]:
        return {"seed": self.seed}
