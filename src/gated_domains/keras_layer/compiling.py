"""What a model with units is compiled with when nobody says: optimiser, loss, metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.keras_layer.arrays import as_numpy, keras, registered
from gated_domains.keras_layer.finding import one_units
from gated_domains.keras_layer.graphs import is_graph, last_activation
from gated_domains.keras_layer.tasks import GaussianLikelihood
from gated_domains.keras_layer.units import GatedDomainUnits

_RATE = 1e-3


@registered
class DeviationDecay(keras.optimizers.AdamW):
    """AdamW that decays some weights and no other: the deviations from a shared expert, by the ends of their paths.

    Not ``exclude_from_weight_decay`` of AdamW itself, which a saved model forgets; and not by whole paths, which Keras
    shortens when it loads a sequential model.
    """

    def __init__(
        self, learning_rate: Any = _RATE, weight_decay: float = 0.1, decayed: Sequence[str] = (), **settings: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, weight_decay=weight_decay, **settings)
        self.decayed = tuple(decayed)

    def build(self, variables: list[Any]) -> None:
        if not self.built:
            spared = [variable for variable in variables if not self._decays(variable)]
            if len(spared) == len(variables):
                raise ValueError(
                    f"none of the weights to train is one of {list(self.decayed)}, which this optimiser decays: make "
                    "it for the model that it trains, or compile that with another"
                )
            self.exclude_from_weight_decay(spared)
        super().build(variables)

    def _decays(self, variable: Any) -> bool:
        return any(f"/{variable.path}".endswith(f"/{end}") for end in self.decayed)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "decayed": list(self.decayed)}


def default_optimizer(
    units: GatedDomainUnits, *, learning_rate: float = _RATE, deviation_decay: float = 0.1
) -> keras.optimizers.Optimizer:
    """Adam; with a shared expert the deviations from it get a weight decay of their own."""
    deviations = units.experts.trainable_variables if units.shared is not None else []
    if not deviations:
        return keras.optimizers.Adam(learning_rate)
    outside = len(units.path) - len(units.name)
    return DeviationDecay(learning_rate, deviation_decay, [variable.path[outside:] for variable in deviations])


def compile_by_default(
    model: keras.Model,
    targets: Any,
    *,
    optimizer: Any = None,
    loss: Any = None,
    metrics: Any = None,
) -> None:
    """Compile a model with what is given, and what its last activation and the targets ask for where nothing is."""
    units = one_units(model)
    if loss is None:
        loss = default_loss(model, units, targets)
        metrics = _metrics(loss) if metrics is None else metrics
    model.compile(default_optimizer(units) if optimizer is None else optimizer, loss, metrics=metrics)


def default_loss(model: keras.Model, units: GatedDomainUnits, targets: Any) -> keras.losses.Loss:
    """The loss that the model's last activation and the targets (None: not known) ask for; refused where unclear."""
    if units.task is not None:
        return GaussianLikelihood()
    if not is_graph(model) or len(model.outputs) > 1:
        raise ValueError(f"the loss of the model {model.name!r}, which has no single output we can see, must be given")
    shape = tuple(model.output_shape)
    activation = last_activation(model)
    known = None if targets is None else as_numpy(targets)
    logits = activation == "linear"
    if activation == "softmax" or (logits and shape[-1] > 1 and _are_classes(known, shape)):
        by_number = known is None or known.shape[1:] != shape[1:]
        kind = keras.losses.SparseCategoricalCrossentropy if by_number else keras.losses.CategoricalCrossentropy
        return kind(from_logits=logits)
    if activation == "sigmoid" or (logits and known is not None and np.isin(known, (0, 1)).all()):
        return keras.losses.BinaryCrossentropy(from_logits=logits)
    if known is not None and known.dtype.kind == "f" and known.reshape(len(known), -1).shape[1] == _numbers(shape):
        return keras.losses.MeanSquaredError()
    told = "no targets to see" if known is None else f"targets of type {known.dtype} and shape {known.shape}"
    raise ValueError(f"which loss suits an output of shape {shape} after {activation}, and {told}? Say loss=")


def _are_classes(targets: NDArray[Any] | None, shape: tuple[int | None, ...]) -> bool:
    """Whether targets are numbers of classes, or a 1 among zeros; unknown ones are taken for the first."""
    if targets is None:
        return True
    if targets.shape[1:] == shape[1:]:
        return bool(np.isin(targets, (0, 1)).all() and (targets.sum(axis=-1) == 1).all())
    return bool((targets == np.floor(targets)).all() and targets.min() >= 0 and targets.max() < (shape[-1] or 0))


def _numbers(shape: tuple[int | None, ...]) -> int:
    return int(np.prod([size or 0 for size in shape[1:]]))


def _metrics(loss: keras.losses.Loss) -> list[Any]:
    if isinstance(loss, keras.losses.BinaryCrossentropy):
        return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0 if loss.from_logits else 0.5)]
    if isinstance(loss, keras.losses.MeanSquaredError):
        return [keras.metrics.MeanAbsoluteError(name="mae")]
    return [] if isinstance(loss, GaussianLikelihood) else ["accuracy"]
