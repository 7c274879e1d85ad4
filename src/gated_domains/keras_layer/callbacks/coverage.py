"""RenewCoverage: what is familiar is measured anew as the features move."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from gated_domains.common.numbers import at_least_one
from gated_domains.keras_layer.arrays import as_numpy, keras, ops
from gated_domains.keras_layer.finding import (
    Inputs,
    batches_of,
    check_built,
    chosen_units,
    is_arrays,
    without_gradients,
)
from gated_domains.keras_layer.optimisers import optimisers_in
from gated_domains.keras_layer.units import GatedDomainUnits


class RenewCoverage(keras.callbacks.Callback):
    """Fits the coverage quantiles anew on training inputs: before each epoch, before validation, after training.

    ``inputs`` are what the model takes: an array, a list or dict of arrays, or an iterable of batches that can be read
    again and again. Each renewal is one pass over at most ``max_rows`` rows, and comes only when weights have moved.
    Callbacks that save or restore weights come after this one.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        layer: str | GatedDomainUnits | None = None,
        max_rows: int = 20_000,
        batch_size: int = 512,
    ) -> None:
        super().__init__()
        if not is_arrays(inputs) and iter(inputs) is inputs:
            raise TypeError(
                f"inputs are read before every epoch, and {type(inputs).__name__} can be read only once: pass arrays, "
                "a dataset or a list of batches"
            )
        self.inputs = inputs
        self.layer = layer
        self.max_rows = at_least_one("max_rows", max_rows)
        self.batch_size = at_least_one("batch_size", batch_size)
        self.renewals = 0
        self._moved = True
        self._training = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        model = self.model
        check_built(model)
        _covering(model, self.layer)
        self._training, self._moved = True, True

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._renew()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # Not at the end of a batch, which Keras may report later, from another thread.
        self._moved = True

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self._training:  # evaluate on its own: nobody knows what was done to the weights before
            self._moved = True
        self._renew()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        # Weights may have made room for their averages during validation.
        self._moved = self._moved or any(part.use_ema for part in optimisers_in(self.model.optimizer))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._renew()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        # Averages may have become the weights, or earlier weights come back.
        self._training, self._moved = False, True
        self._renew()

    def _renew(self) -> None:
        if not self._moved:
            return
        model = self.model
        units = _covering(model, self.layer)
        with ExitStack() as watching, without_gradients():
            seen = [watching.enter_context(layer.watch()) for layer in units]
            rows: list[list[Any]] = [[] for _ in units]
            for batch in batches_of(self.inputs, self.batch_size, self.max_rows):
                model(batch, training=False)
                for layer, held, found in zip(units, rows, seen, strict=True):
                    held += [as_numpy(ops.cast(view, layer.exact_dtype)) for view in found]
                    found.clear()
        for layer, held in zip(units, rows, strict=True):
            layer.fit_coverage(np.concatenate(held))
        self._moved = False
        self.renewals += 1


def _covering(model: keras.Model, layer: str | GatedDomainUnits | None) -> list[GatedDomainUnits]:
    units = chosen_units(model, layer)
    covering = [unit for unit in units.values() if unit.covers]
    if not covering:
        raise ValueError(
            f"{', '.join(map(repr, units))} uses no coverage, so there is nothing to renew: make the layer with "
            "shared=True and coverage=True, or leave RenewCoverage out"
        )
    return covering
