"""What a model with units is compiled with when nobody says: optimiser, loss, metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.keras_layer.arrays import as_numpy, keras
from gated_domains.keras_layer.finding import one_units
from gated_domains.keras_layer.graphs import is_graph, last_activation
from gated_domains.keras_layer.tasks import GaussianLikelihood
from gated_domains.keras_layer.units import GatedDomainUnits

_RATE = 1e-3


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
    model.compile(keras.optimizers.Adam(_RATE) if optimizer is None else optimizer, loss, metrics=metrics)


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
