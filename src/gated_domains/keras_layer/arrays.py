"""Keras, and what the layer needs of arrays on whichever backend runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

try:
    import keras as keras
except ImportError as error:
    missing = error.name or str(error)
    cure = (
        "pip install 'gated-domains[keras]' and one of tensorflow, jax or torch"
        if missing == "keras"
        else f"Keras wants {missing}, which is not there: install it, or choose another backend with "
        "KERAS_BACKEND=tensorflow, jax or torch"
    )
    raise ImportError(f"the Keras layer needs Keras 3 and a backend: {cure}", name=error.name) from error
if int(keras.__version__.split(".")[0]) < 3:
    raise ImportError(f"the Keras layer needs Keras 3, found {keras.__version__}: pip install -U keras", name="keras")

from keras import ops as ops

from gated_domains.common.validation import positive

#: A tensor of the backend that runs; its shape stands beside it, as in ``Annotated[Array, "batch bases"]``.
Array = Any

#: All that is saved by name is known to Keras under this one.
PACKAGE = "gated_domains"

registered = keras.saving.register_keras_serializable(PACKAGE)


def at_least_float32(x: Array) -> Array:
    """The tensor itself, or in float32 if it came in half precision."""
    return x if keras.backend.standardize_dtype(x.dtype) in ("float32", "float64") else ops.cast(x, "float32")


def float_info(x: Array) -> np.finfo[Any]:
    """Limits of the tensor's precision, which is float32 or float64."""
    return np.finfo(keras.backend.standardize_dtype(x.dtype))


def mean_of(x: Array, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Array:
    """The mean, of float64 numbers too: Keras's own takes it in float32 on JAX and PyTorch."""
    if keras.backend.standardize_dtype(x.dtype) != "float64":
        return ops.mean(x, axis=axis, keepdims=keepdims)
    return ops.sum(x, axis=axis, keepdims=keepdims) / ops.sum(ops.ones_like(x), axis=axis, keepdims=keepdims)


def at_least(x: Array, floor: float) -> Array:
    """``max(x, floor)``, in the precision of x: Keras's own ``maximum`` gives float32 for float64 on PyTorch."""
    return ops.where(x < floor, ops.full_like(x, floor), x)


def full_precision() -> AbstractContextManager[object]:
    """Products of float32 matrices in float32: JAX takes fewer digits on accelerators unless told."""
    if keras.backend.backend() != "jax":
        return nullcontext()
    import jax  # here, because it is there on this backend only

    return jax.default_matmul_precision("float32")


def is_traced(x: Array) -> bool:
    """True where the tensor stands for numbers that are not known yet: while a graph is being made."""
    if isinstance(x, keras.KerasTensor):
        return True
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return bool(tf.is_symbolic_tensor(x))
    if backend == "jax":
        import jax

        return isinstance(x, jax.core.Tracer)
    return False


def as_numpy(x: Any) -> NDArray[Any]:
    """The numbers of a tensor of any backend, wherever it lies."""
    return np.asarray(ops.convert_to_numpy(x.value if isinstance(x, keras.Variable) else x))


Kind = TypeVar("Kind", bound="Scalars")


class Scalars:
    """Numbers that become weights of a layer when it is built: saved with it, written in place, never trained.

    Until then, and where no layer is, they are plain floats. As weights they have the precision of the layer but at
    least float32, and autocasting leaves them alone.
    """

    def __init__(self, **values: float) -> None:
        self._values = values
        self._weights: dict[str, Any] = {}

    def grow(self, layer: keras.layers.Layer, dtype: str, prefix: str = "") -> None:
        """Make the numbers weights of a layer that is being built; no two may have one name."""
        for name, value in self._values.items():
            self._weights[name] = layer.add_weight(
                name=prefix + name, shape=(), dtype=dtype, trainable=False, autocast=False, initializer=_exactly(value)
            )

    @property
    def names(self) -> tuple[str, ...]:
        """What the numbers are called."""
        return tuple(self._values)

    def scalar(self, name: str, like: Array) -> Array:
        """A number in the precision of another tensor."""
        return ops.cast(self._weights[name], like.dtype) if name in self._weights else self._values[name]

    def get(self, name: str) -> float:
        """A number as it is now."""
        return float(as_numpy(self._weights[name])) if name in self._weights else self._values[name]

    def set(self, name: str, value: float) -> None:
        """Write a number, in place."""
        if name in self._weights:
            self._weights[name].assign(np.asarray(value, dtype=self._weights[name].dtype))
        else:
            self._values[name] = value

    def set_positive(self, name: str, value: float) -> None:
        """Write a number that must be positive and finite, in place."""
        self.set(name, positive(name, value))

    def get_config(self) -> dict[str, Any]:
        """The numbers that this was made with; what was written later is in the layer's weights."""
        return dict(self._values)

    def copy(self: Kind) -> Kind:
        """One of the same kind with the numbers as they are now, which belongs to no layer yet."""
        other = type(self).from_config(self.get_config())
        other._values = {name: self.get(name) for name in self._values}
        return other

    @classmethod
    def from_config(cls: type[Kind], config: dict[str, Any]) -> Kind:
        return cls(**config)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self.get(name):.4g}' for name in self._values)})"


def uniform_of(fan_in: int) -> keras.initializers.Initializer:
    """As a linear layer of PyTorch starts: uniform within 1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return keras.initializers.RandomUniform(-bound, bound)


def _exactly(value: float) -> Callable[..., Array]:
    """An initialiser. Not Keras's Constant: by way of float32 it would cost float64 half its digits."""

    def initialise(shape: tuple[int, ...], dtype: str | None = None) -> Array:
        return ops.convert_to_tensor(np.full(shape, value, dtype=dtype))

    return initialise
