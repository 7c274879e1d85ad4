"""RenewHead: gates stay fitted to features as these move."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.common.validation import at_least_one
from gated_domains.keras_layer.arrays import as_numpy, keras, ops
from gated_domains.keras_layer.finding import (
    RENEWING_ROWS,
    ROWS_AT_ONCE,
    Inputs,
    batches_of,
    check_built,
    chosen_units,
    is_arrays,
    without_gradients,
)
from gated_domains.keras_layer.heads import renew_on_rows
from gated_domains.keras_layer.optimisers import optimisers_in
from gated_domains.keras_layer.units import GatedDomainUnits


class RenewHead(keras.callbacks.Callback):
    """Keeps the gates of a model fitted to features that move while it is trained.

    When an epoch begins, bases, sigma and kappa are fitted where they never were, and refitted where features have
    moved away from them, as they do in the first epochs of a network trained from scratch; see
    ``GatedDomainUnits.renew``. The quantiles of familiarity are renewed then, before validation and after training, and
    only when weights have moved. Warns (``GateWarning``) once when gates have died and are not refitted.
    Callbacks that save or restore weights come after this one.

    Parameters
    ----------
    inputs
        What the model takes: an array, a list or dict of arrays, or an iterable of batches that can be read again and
        again.
    layer
        The units, or their name, where the model has several and only one is meant.
    refit
        Whether bases may be rewritten; False keeps those there are, the paper's for example.
    max_rows
        How many rows are looked at.
    batch_size
        How many of them at once.
    seed
        Random seed.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        layer: str | GatedDomainUnits | None = None,
        refit: bool = True,
        max_rows: int = RENEWING_ROWS,
        batch_size: int = ROWS_AT_ONCE,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not is_arrays(inputs) and iter(inputs) is inputs:
            raise TypeError(
                f"inputs are read before every epoch, and {type(inputs).__name__} can be read only once: pass arrays, "
                "a dataset or a list of batches"
            )
        self.inputs = inputs
        self.layer = layer
        self.refit = refit
        self.max_rows = at_least_one("max_rows", max_rows)
        self.batch_size = at_least_one("batch_size", batch_size)
        self.seed = seed
        self.renewals = 0
        self._seen: list[NDArray[Any]] = []
        self._moved = True
        self._training = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        model = self.model
        check_built(model)
        chosen_units(model, self.layer)
        self._training, self._moved = True, True

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # Here alone bases are rewritten: what is evaluated or saved between epochs has experts trained with its bases.
        self._look()
        for layer, rows in zip(self._units(), self._seen, strict=True):
            optimizer = self.model.optimizer if self.refit else None
            renew_on_rows(self.model, layer, rows, optimizer=optimizer, seed=self.seed)

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # Not at the end of a batch, which Keras may report later, from another thread.
        self._moved = True

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self._training:  # evaluate on its own: nobody knows what was done to the weights before
            self._moved = True
        self._renew_quantiles()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        # Weights may have made room for their averages during validation.
        self._moved = self._moved or any(part.use_ema for part in optimisers_in(self.model.optimizer))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._renew_quantiles()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        # Averages may have become the weights, or earlier weights come back.
        self._training, self._moved = False, True
        self._renew_quantiles()
        self._seen = []

    def _renew_quantiles(self) -> None:
        if not self._look():
            return
        for layer, rows in zip(self._units(), self._seen, strict=True):
            if self._training:  # gates that have died may be refitted when the next epoch begins
                layer.fit_coverage(rows, seed=self.seed)
            else:
                layer.renew(rows, seed=self.seed)

    def _units(self) -> list[GatedDomainUnits]:
        return list(chosen_units(self.model, self.layer).values())

    def _look(self) -> bool:
        """Take the rows that gates see, where weights have moved since; whether they had."""
        if not self._moved:
            return False
        units = self._units()
        with ExitStack() as watching, without_gradients():
            seen = [watching.enter_context(layer.watch()) for layer in units]
            rows: list[list[Any]] = [[] for _ in units]
            for batch in batches_of(self.inputs, self.batch_size, self.max_rows):
                self.model(batch, training=False)
                for layer, held, found in zip(units, rows, seen, strict=True):
                    held += [as_numpy(ops.cast(view, layer.exact_dtype)) for view in found]
                    found.clear()
        self._seen = [np.concatenate(held) for held in rows]
        self._moved = False
        self.renewals += 1
        return True
