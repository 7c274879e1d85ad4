"""DomainMonitor: what gates and bases do, epoch by epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from gated_domains.common.validation import at_least_one
from gated_domains.keras_layer.arrays import keras
from gated_domains.keras_layer.callbacks.events import EventFile
from gated_domains.keras_layer.callbacks.measures import basis_measures, gate_measures
from gated_domains.keras_layer.finding import Inputs, batches_of, chosen_units, is_arrays
from gated_domains.keras_layer.units import GatedDomainUnits

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class DomainMonitor(keras.callbacks.Callback):
    """Measures the gates on train and test inputs, and the bases, at the end of each epoch.

    In ``history``, for callbacks that come after this one (``EarlyStopping("test_reconstruction", mode="min")``), and
    with ``log_dir`` in TensorBoard stand:

        train_gate_0, train_gate_1, ...     mean beta of each basis in use
        train_gate_entropy                  mean entropy of beta: 0 for one basis a sample, log M for all alike
        train_reconstruction                mean ||phi(x) - sum_j beta_j mu_j||^2
        test_gate_0, ...                    the same of the test inputs
        distributional_variance, srip, soft_orthogonality, mutual_coherence        of the bases

    Inputs are what the model takes: an array, a list or dict of arrays, or an iterable of batches. A dict of several
    such by domain is measured domain by domain, ``test_<domain>_gate_0``; one whose keys are the names of the model's
    inputs is one input. ``max_rows`` rows of each are measured, of arrays at even distances; batches are read once,
    here, and kept. With several gated layers the layer's name comes first, ``<layer>_train_gate_0``; ``layer`` chooses
    one. ``every`` = 2 measures every other epoch, beginning with the first.

    Training is not disturbed: the model is called as for prediction.
    """

    def __init__(
        self,
        train: Inputs = None,
        test: Inputs = None,
        *,
        layer: str | GatedDomainUnits | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        batch_size: int = 512,
        max_rows: int = 2_000,
        every: int = 1,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.every = at_least_one("every", every)
        sizes = (at_least_one("batch_size", batch_size), at_least_one("max_rows", max_rows))
        self._given = {name: _Given(inputs, *sizes) for name, inputs in (("train", train), ("test", test))}
        self._events = None if log_dir is None else EventFile(log_dir)
        self.epochs: list[int] = []
        self.measured: dict[str, list[float]] = {}
        self._first: int | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        model = self.model
        units = chosen_units(model, self.layer)
        self._first = None
        if all(layer.built for layer in model._flatten_layers()):
            for rows in self._rows(model).values():  # inputs that do not fit are refused now, not after an epoch
                gate_measures(model, units, islice(rows.batches(), 1))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._first = epoch if self._first is None else self._first
        if (epoch - self._first) % self.every:
            return
        if self.epochs and epoch <= self.epochs[-1]:  # a training from the beginning, not one that goes on
            self.epochs, self.measured = [], {}
        values = self.measure(self.model)
        self.epochs.append(epoch)
        for name, value in values.items():
            self.measured.setdefault(name, []).append(value)
        if logs is not None:
            logs.update(values)
        if self._events is not None:
            self._events.write({f"domains/{name}": value for name, value in values.items()}, epoch)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._events is not None:
            self._events.close()

    def measure(self, model: keras.Model) -> dict[str, float]:
        """The measures of a model as it is, by the names that they have in ``history``."""
        units = chosen_units(model, self.layer)
        values: dict[str, float] = {}
        for split, rows in self._rows(model).items():
            for name, found in gate_measures(model, units, rows.batches()).items():
                values |= {f"{_prefix(name, units)}{split}_{measure}": value for measure, value in found.items()}
        for name, layer in units.items():
            values |= {f"{_prefix(name, units)}{measure}": value for measure, value in basis_measures(layer).items()}
        return values

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Gate use and penalties by epoch, as a figure that belongs to no window; with ``path`` also as a file."""
        from gated_domains.keras_layer.callbacks.pictures import plot_measures

        if not self.epochs:
            raise ValueError("nothing has been measured yet: pass this monitor to model.fit(..., callbacks=[monitor])")
        figure = plot_measures(self.epochs, self.measured)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _rows(self, model: keras.Model) -> dict[str, _Rows]:
        return {split: rows for name, given in self._given.items() for split, rows in given.splits(name, model).items()}


class _Given:
    """Inputs as they were given: none, one, or one for each domain; which of the two a dict is, the model tells."""

    def __init__(self, inputs: Inputs, batch_size: int, max_rows: int) -> None:
        self._sizes = (batch_size, max_rows)
        self._dict = inputs if isinstance(inputs, dict) else None
        if inputs is None:
            self._rows = {}
        elif self._dict is not None:
            if not self._dict:
                raise ValueError("a dict of inputs must have at least one domain in it, got {}")
            self._rows = {f"_{domain}": _Rows(part, *self._sizes) for domain, part in self._dict.items()}
        else:
            self._rows = {"": _Rows(inputs, *self._sizes)}

    def splits(self, name: str, model: keras.Model) -> dict[str, _Rows]:
        if self._dict is not None and any(names <= self._dict.keys() for names in _input_names(model)):
            return {name: _Rows(self._dict, *self._sizes)}
        return {f"{name}{domain}": rows for domain, rows in self._rows.items()}


class _Rows:
    """Rows that are measured epoch after epoch: the same ones each time."""

    def __init__(self, inputs: Inputs, batch_size: int, max_rows: int) -> None:
        self._arrays = is_arrays(inputs)
        self._sizes = (batch_size, max_rows)
        # Arrays stay where they are. Reading batches again would move random states that training draws from.
        self._held = inputs if self._arrays else list(batches_of(inputs, *self._sizes))

    def batches(self) -> Iterator[Any]:
        return batches_of(self._held, *self._sizes) if self._arrays else iter(self._held)


def _input_names(model: keras.Model) -> list[set[str]]:
    """By what keys a model takes its inputs: the names of its tensors, or those of the dict that it was made with."""
    given = getattr(model, "_inputs_struct", None)
    tensors = {tensor.name for tensor in getattr(model, "inputs", None) or []}
    return [names for names in (tensors, set(given) if isinstance(given, dict) else set()) if names]


def _prefix(name: str, units: dict[str, GatedDomainUnits]) -> str:
    return f"{name}_" if len(units) > 1 else ""
