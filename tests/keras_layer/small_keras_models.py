"""Small models with gated units in them, and the rows they learn from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from gated_domains.keras_layer import GatedDomainUnits
from gated_domains.keras_layer.arrays import as_numpy

LOSS = partial(keras.losses.SparseCategoricalCrossentropy, from_logits=True)


def rows(count: int = 48, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three domains one after the other, and their classes."""
    draws = np.random.default_rng(seed)
    domain = np.repeat(np.arange(3), -(-count // 3))[:count]
    x = draws.normal(size=(count, 6)) + 2 * np.eye(3, 6)[domain]
    return x.astype("float32"), (x[:, :3].argmax(axis=1)).astype("int32")


def body(*, dropout: float = 0.0, name: str = "body") -> keras.Sequential:
    """Dense, batch norm, ReLU, and dropout where asked for."""
    parts = [keras.Input((6,)), layers.Dense(8), layers.BatchNormalization(momentum=0.5), layers.ReLU()]
    return keras.Sequential([*parts, layers.Dropout(dropout)] if dropout else parts, name=name)


def gated(
    optimizer: Any = None, *, dropout: float = 0.0, jit: bool | str = "auto", **settings: Any
) -> tuple[keras.Model, GatedDomainUnits]:
    """A compiled model that ends in gated units, and the units; the same weights every time."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,), name="x")
    head = GatedDomainUnits(3, **{"num_bases": 3, "basis_size": 2, "name": "head", **settings})
    model = keras.Model(inputs, head(body(dropout=dropout)(inputs)))
    # The deviations of a shared expert start at zero, and then beta and coverage would change nothing.
    moved = np.random.default_rng(2).normal(size=head.experts.weight.shape)
    head.experts.weight.assign(moved.astype("float32"))
    model.compile(keras.optimizers.SGD(0.05) if optimizer is None else optimizer, LOSS(), jit_compile=jit)
    return model, head


def weights(model: keras.layers.Layer) -> dict[str, np.ndarray]:
    """A copy of every weight by path."""
    return {weight.path: np.array(as_numpy(weight)) for weight in model.weights}


def moved(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    """The paths of weights that differ in any bit."""
    return {path for path in before if before[path].tobytes() != after[path].tobytes()}


class Calls(keras.callbacks.Callback):
    """Calls a function with the model at some moment of training."""

    def __init__(self, function: Callable[[keras.Model], None], *, at: str) -> None:
        super().__init__()
        self.function = function
        setattr(self, at, lambda *_, **__: self.function(self.model))


@pytest.fixture
def quick_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch traces steps as for ``jit_compile=True``, but makes no C++ of them: tracing alone takes half a minute."""
    if keras.backend.backend() == "torch":
        import torch

        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
