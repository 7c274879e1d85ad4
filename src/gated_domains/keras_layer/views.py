"""Views for gates inside a model: what early layers or the inputs say about style, not class.

A view is a branch of the model's own graph, so that it is saved and loaded with the model; nothing is back-propagated
through it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gated_domains.choose.rows import as_rows
from gated_domains.keras_layer.arrays import Array, as_numpy, at_least_float32, keras, ops, registered

DataFormat = Literal["channels_last", "channels_first"]
Shape = tuple[int | None, ...]

_LEAST = 1e-6  # added to every variance


@registered
class ChannelStatistics(keras.layers.Layer):
    """Mean and log standard deviation over all positions of each channel; plain vectors as they are.

    ``data_format`` None: as Keras has images, and channels last for sequences.
    """

    def __init__(
        self,
        data_format: DataFormat | None = None,
        *,
        trainable: bool = True,
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        # Casting is ours to do: a variance in half precision is a poor one.
        super().__init__(trainable=trainable, dtype=dtype, autocast=False, name=name)
        if data_format not in (None, "channels_last", "channels_first"):
            raise ValueError(f"data_format must be 'channels_last', 'channels_first' or None, got {data_format!r}")
        self.data_format = data_format

    def call(self, maps: Annotated[Array, "batch ..."]) -> Annotated[Array, "batch statistics"]:
        return channel_statistics(maps, self.data_format)

    def compute_output_shape(self, shape: Shape) -> tuple[int | None, int]:
        if len(shape) < 2:
            raise ValueError(f"statistics are of maps of shape (batch, ..., channels), got shape {tuple(shape)}")
        channels = shape[1 if _channels_first(len(shape), self.data_format) else -1]
        if channels is None:
            raise ValueError(f"statistics need a known number of channels, got maps of shape {tuple(shape)}")
        return shape[0], channels if len(shape) == 2 else 2 * channels

    def compute_output_spec(self, maps: Any) -> Any:
        exact = "float64" if keras.backend.standardize_dtype(maps.dtype) == "float64" else "float32"
        return keras.KerasTensor(self.compute_output_shape(maps.shape), dtype=exact)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "data_format": self.data_format}


@registered
class Standardised(keras.layers.Layer):
    """``(z - mean) / scale`` with the mean and scale of training data; nothing until fitted.

    No gradient flows back through it.
    """

    def __init__(self, *, trainable: bool = True, dtype: Any = None, name: str | None = None) -> None:
        super().__init__(trainable=trainable, dtype=dtype, autocast=False, name=name)

    def build(self, shape: Shape) -> None:
        if len(shape) != 2 or shape[-1] is None:
            raise ValueError(f"a gating view has shape (batch, features), this one has {tuple(shape)}")
        exact = "float64" if self.variable_dtype == "float64" else "float32"
        settings = {"shape": (shape[-1],), "dtype": exact, "trainable": False, "autocast": False}
        self.mean = self.add_weight(name="mean", initializer="zeros", **settings)
        self.scale = self.add_weight(name="scale", initializer="ones", **settings)

    def call(self, z: Annotated[Array, "batch width"]) -> Annotated[Array, "batch width"]:
        seen = ops.cast(ops.stop_gradient(z), self.mean.dtype)
        return (seen - self.mean) / self.scale

    def inverse(self, z: Annotated[Array, "rows width"]) -> NDArray[Any]:
        """What was standardised, as it was before."""
        return as_numpy(z) * as_numpy(self.scale) + as_numpy(self.mean)

    def fit(self, z: Annotated[Array, "rows width"]) -> Standardised:
        """Take mean and scale from training rows of the view, at least two."""
        rows = as_rows(as_numpy(z), at_least=2).astype(np.float64)
        if not self.built:
            self.build((None, rows.shape[1]))
        scale = rows.std(axis=0, ddof=1)
        self.mean.assign(rows.mean(axis=0))
        self.scale.assign(np.where(scale > 1e-6, scale, 1.0))  # a constant column says nothing either way
        return self

    def take_from(self, other: Standardised) -> None:
        """Copy another's mean and scale."""
        self.mean.assign(other.mean)
        self.scale.assign(other.scale)

    def compute_output_shape(self, shape: Shape) -> Shape:
        return shape

    def compute_output_spec(self, z: Any) -> Any:
        return keras.KerasTensor(z.shape, dtype=self.mean.dtype)


def channel_statistics(
    maps: Annotated[Array, "batch ..."], data_format: DataFormat | None = None
) -> Annotated[Array, "batch statistics"]:
    """Mean and log standard deviation over all positions of each channel; plain vectors as they are."""
    values = at_least_float32(maps)
    rank = len(values.shape)
    if rank == 2:
        return values
    places = tuple(range(2, rank)) if _channels_first(rank, data_format) else tuple(range(1, rank - 1))
    mean = ops.mean(values, axis=places, keepdims=True)
    variance = ops.mean(ops.square(values - mean), axis=places)
    return ops.concatenate([ops.squeeze(mean, axis=places), ops.log(variance + _LEAST) / 2], axis=-1)


def _channels_first(rank: int, data_format: DataFormat | None) -> bool:
    if data_format is None:  # a sequence has its channels last, wherever images have theirs
        return rank > 3 and keras.config.image_data_format() == "channels_first"
    return rank > 2 and data_format == "channels_first"
