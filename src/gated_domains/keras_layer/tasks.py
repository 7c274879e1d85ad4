"""The probabilistic head: a mean and a scale from every expert, their mixture moment-matched, its likelihood.

For classes, labels and plain numbers Keras's own losses serve: the layer gives one number for each unit.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from gated_domains.common.validation import positive
from gated_domains.keras_layer.arrays import Array, at_least, keras, mean_of, ops, registered


@registered
class ProbabilisticRegression:
    """Real numbers with their uncertainty: each expert gives a mean and a scale, the mixture is moment-matched.

    The layer then returns means and variances side by side, (..., 2 units), as ``GaussianLikelihood`` reads them.
    """

    #: How many numbers an expert gives for each unit.
    numbers_a_unit = 2

    def __init__(self, min_scale: float = 1e-3) -> None:
        self.min_scale = positive("min_scale", min_scale)

    def moments(self, raw: Annotated[Array, "*lead twice_units"]) -> tuple[Array, Array]:
        """Mean and scale from an expert's raw numbers."""
        mean, scale = ops.split(raw, 2, axis=-1)
        return mean, ops.softplus(scale) + self.min_scale

    def get_config(self) -> dict[str, Any]:
        return {"min_scale": self.min_scale}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ProbabilisticRegression:
        return cls(**config)

    def __repr__(self) -> str:
        return f"ProbabilisticRegression(min_scale={self.min_scale:g})"


def match_moments(
    weights: Annotated[Array, "#batch bases"],
    means: Annotated[Array, "batch bases units"],
    scales: Annotated[Array, "batch bases units"],
) -> tuple[Annotated[Array, "batch units"], Annotated[Array, "batch units"]]:
    """Mean and variance of a mixture of Gaussians with weights on the simplex.

    ``mean = sum w mu``; ``variance = sum w (s^2 + mu^2) - mean^2``, written so that it cannot be negative.
    """
    w = ops.expand_dims(weights, -1)
    mean = ops.sum(w * means, axis=-2)
    variance = ops.sum(w * (ops.square(scales) + ops.square(means - mean[:, None])), axis=-2)
    return mean, variance


def mean_and_variance(prediction: Annotated[Array, "*batch twice_units"]) -> tuple[Array, Array]:
    """What a layer with a ``ProbabilisticRegression`` task returned, apart."""
    mean, variance = ops.split(prediction, 2, axis=-1)
    return mean, variance


@registered
class GaussianLikelihood(keras.losses.Loss):
    """Negative log-likelihood of targets under the means and variances that a probabilistic head returned."""

    def __init__(
        self, name: str = "gaussian_likelihood", reduction: str = "sum_over_batch_size", **kwargs: Any
    ) -> None:
        super().__init__(name=name, reduction=reduction, **kwargs)

    def call(self, y_true: Array, y_pred: Annotated[Array, "*batch twice_units"]) -> Annotated[Array, "*batch"]:
        mean, variance = mean_and_variance(y_pred)
        variance = at_least(variance, 1e-6)
        target = ops.reshape(ops.cast(y_true, mean.dtype), ops.shape(mean))
        terms = ops.log(variance) + ops.square(target - mean) / variance + math.log(2 * math.pi)
        return 0.5 * mean_of(terms, axis=-1)
