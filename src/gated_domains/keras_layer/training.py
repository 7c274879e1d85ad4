"""Training a model with units: the head alone on features that are computed once, or body and head together.

>>> model = replace_head(model)
>>> history = fine_tune(model, x, y, epochs=20, batch_size=512)
>>> history = end_to_end(model, x, y, epochs=20, batch_size=512, validation_data=(x_val, y_val))

Both are thin: ``model.fit`` does the work, and what it takes and gives is Keras's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from numpy.typing import NDArray

from gated_domains.keras_layer.arrays import as_numpy, keras
from gated_domains.keras_layer.callbacks.renewing import RenewHead
from gated_domains.keras_layer.compiling import compile_by_default
from gated_domains.keras_layer.finding import (
    FITTING_ROWS,
    ROWS_AT_ONCE,
    Inputs,
    at_least_float32_rows,
    is_arrays,
    spread,
)
from gated_domains.keras_layer.graphs import after, before, is_graph
from gated_domains.keras_layer.heads import fit_on_rows, gating_rows, model_head, standardised_view
from gated_domains.keras_layer.units import GatedDomainUnits

#: What is taken from the data: bases, sigma and kappa; sigma alone, as the paper fine-tunes; or nothing.
Fit = Literal["bases", "sigma"] | None

_COVERED = 2_048  # rows that quantiles of coverage are taken of where what gates see stands still


def fine_tune(
    model: keras.Model,
    x: Any,
    y: Any,
    *,
    epochs: int,
    batch_size: int = 512,
    fit: Fit = "bases",
    optimizer: Any = None,
    loss: Any = None,
    metrics: Any = None,
    validation_data: tuple[Any, ...] | None = None,
    class_weight: dict[int, float] | None = None,
    sample_weight: Any = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    max_rows: int = FITTING_ROWS,
    seed: int = 0,
    verbose: Any = "auto",
) -> keras.callbacks.History:
    """Train the head alone, on features that the body computes once, as it does for prediction.

    Nothing else moves, batch-norm statistics neither. Bases, sigma and kappa are fitted to the features first
    (``fit``), and coverage is renewed at each epoch and at the end. ``loss`` and ``metrics`` None: by the model's last
    activation and the targets; ``optimizer`` None: Adam at 1e-3.

    Callbacks see the model of the head, whose inputs are the features. The model itself is compiled only if it was not.
    """
    if not is_arrays(x):
        raise TypeError(f"fine_tune keeps the features of arrays, got {type(x).__name__}; end_to_end takes datasets")
    units = model_head(model)
    body, top = before(model, units), after(model, units)

    def features(inputs: Any) -> list[NDArray[Any]]:
        return [
            at_least_float32_rows(part)
            for part in _listed(body.predict(inputs, batch_size=batch_size, verbose=verbose))
        ]

    cached = features(x)
    cached[-1] = _fitted(model, cached[-1], fit, max_rows=max_rows, seed=seed)
    held_out = None if validation_data is None else (features(validation_data[0]), *validation_data[1:])
    with _training_alone(units, top):
        compile_by_default(top, y, optimizer=optimizer, loss=loss, metrics=metrics)
        history = top.fit(
            cached,
            y,
            batch_size=batch_size,
            epochs=epochs,
            verbose=verbose,
            validation_data=held_out,
            class_weight=class_weight,
            sample_weight=sample_weight,
            callbacks=[RenewHead(cached, refit=False, max_rows=max_rows, batch_size=batch_size), *callbacks],
        )
    if not model.compiled:
        compile_by_default(model, y, loss=loss, metrics=metrics)
    return history


def end_to_end(
    model: keras.Model,
    x: Any,
    y: Any = None,
    *,
    epochs: int,
    batch_size: int | None = None,
    fit: Fit = "bases",
    fit_after: int = 1,
    sample: Inputs | None = None,
    optimizer: Any = None,
    loss: Any = None,
    metrics: Any = None,
    validation_data: Any = None,
    steps_per_epoch: int | None = None,
    class_weight: dict[int, float] | None = None,
    sample_weight: Any = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    max_rows: int = FITTING_ROWS,
    seed: int = 0,
    verbose: Any = "auto",
) -> keras.callbacks.History:
    """Train body and head together; ``x`` is all that ``model.fit`` takes, arrays or a dataset of batches.

    Bases, sigma and kappa are fitted to what gates see before the first epoch (``fit``) and, where that moves as the
    body learns, once more after ``fit_after`` epochs, when it has become features of data rather than of random
    weights, and whenever features have moved away from them (``RenewHead``). All this looks at ``max_rows`` rows of
    ``sample``, by default of ``x``; a generator, which can be read only once, needs one.

    A compiled model is trained as it is compiled unless ``optimizer``, ``loss`` or ``metrics`` is given; None of those
    otherwise: as for ``fine_tune``.
    """
    if fit_after < 0:
        raise ValueError(f"fit_after is a number of epochs, 0 or more, got {fit_after}")
    units = model_head(model)
    sample = _looked_at(x if sample is None else sample)
    if not model.compiled or any(given is not None for given in (optimizer, loss, metrics)):
        compile_by_default(model, y, optimizer=optimizer, loss=loss, metrics=metrics)

    def seen() -> NDArray[Any]:
        return gating_rows(model, sample, max_rows=max_rows, batch_size=batch_size or ROWS_AT_ONCE)

    _fitted(model, seen(), fit, max_rows=max_rows, seed=seed)
    still = stands_still(model, units)
    again = [] if still or fit != "bases" else [_FitAgain(fit_after, seen, seed=seed)]
    renewing = RenewHead(
        sample,
        refit=fit == "bases",
        max_rows=min(max_rows, _COVERED) if still else max_rows,
        batch_size=batch_size or ROWS_AT_ONCE,
        seed=seed,
    )
    # A second fit comes after renewing, whose rows are of the standardisation before it.
    return model.fit(
        x,
        y,
        batch_size=batch_size,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        verbose=verbose,
        validation_data=validation_data,
        class_weight=class_weight,
        sample_weight=sample_weight,
        callbacks=[renewing, *again, *callbacks],
    )


class _FitAgain(keras.callbacks.Callback):
    """Bases, sigma and kappa anew when an epoch begins; what the optimiser remembers of the old bases is cleared."""

    def __init__(self, epoch: int, seen: Callable[[], NDArray[Any]], *, seed: int) -> None:
        super().__init__()
        self.epoch, self.seen, self.seed = epoch, seen, seed

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if epoch == self.epoch and epoch > 0:
            units, optimizer = model_head(self.model), self.model.optimizer
            fit_on_rows(self.model, self.seen(), partial(units.fit_bases, seed=self.seed, optimizer=optimizer))


def _fitted(model: keras.Model, view: NDArray[Any], fit: Fit, *, max_rows: int, seed: int) -> NDArray[Any]:
    """What gates see, after the head was fitted to it."""
    units, standardised = model_head(model), standardised_view(model)
    if fit not in ("bases", "sigma", None):
        raise ValueError(f"fit must be 'bases', 'sigma' or None, got {fit!r}")
    observed = view if standardised is None else standardised.inverse(view)
    if fit == "bases":
        fit_on_rows(model, spread(view, max_rows), partial(units.fit_bases, seed=seed))
    elif fit == "sigma":
        units.fit_sigma(spread(view, max_rows), seed=seed)
    return view if standardised is None else as_numpy(standardised(observed))


def stands_still(model: keras.Model, units: GatedDomainUnits) -> bool:
    """Whether what gates see is the same all through training: nothing that makes it learns."""
    if not is_graph(model):
        return False
    body = before(model, units)
    view = keras.Model(body.inputs, body.outputs[-1])
    norms = [one for one in view._flatten_layers() if isinstance(one, keras.layers.BatchNormalization)]
    return not view.trainable_variables and not any(norm.trainable for norm in norms)


@contextmanager
def _training_alone(units: GatedDomainUnits, model: keras.Model) -> Iterator[None]:
    """Of the model only the units are trained inside the block; every layer has its own setting back after."""
    # Outer layers first: setting one sets all that it holds.
    layers = [(layer, layer.trainable) for layer in model._flatten_layers()]
    variables = [(variable, variable.trainable) for variable in model.variables]
    own = {id(layer) for layer in units._flatten_layers()}
    for layer, _ in layers:
        if id(layer) not in own and not layer._layers:
            layer.trainable = False
    if not units.trainable:
        units.trainable = True
    try:
        yield
    finally:
        for part, trainable in [*layers, *variables]:
            part.trainable = trainable


def _looked_at(sample: Inputs) -> Inputs:
    if not isinstance(sample, keras.utils.PyDataset) and hasattr(sample, "__next__"):
        raise TypeError(
            f"x is a {type(sample).__name__}, which can be read only once: pass sample=, inputs to fit the head to"
        )
    return sample


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]
