"""Any functional or sequential Keras model with a Dense head becomes a gated one.

>>> model = replace_head(model)                       # where the final Dense stood, same call, same output shape
>>> model.compile("adam", loss)                       # the penalties join the loss by themselves
>>> model.fit(x, y, callbacks=[RenewHead(x)])         # keeps the gates fitted to features that move
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.keras_layer.arrays import as_numpy, keras
from gated_domains.keras_layer.experts import LinearBank
from gated_domains.keras_layer.finding import (
    FITTING_ROWS,
    RENEWING_ROWS,
    ROWS_AT_ONCE,
    Inputs,
    at_least_float32_rows,
    batches_of,
    find_units,
    one_units,
    spread,
    without_gradients,
)
from gated_domains.keras_layer.grafting import Gating, grafted, looked_at
from gated_domains.keras_layer.graphs import check_graph, find_head
from gated_domains.keras_layer.units import GatedDomainUnits
from gated_domains.keras_layer.views import Standardised


def replace_head(
    model: keras.Model,
    head: Callable[..., GatedDomainUnits] = GatedDomainUnits,
    *,
    name: str | None = None,
    gating: Gating | None = None,
    verbose: bool = True,
) -> keras.Model:
    """The same model with units where its final Dense stands; says what it replaced.

    Body and inputs are the given model's own, so that the two share weights; the given model goes on working. What
    follows the Dense stays, and its activation and name are the units' own now (regularisers and constraints are not).
    ``name`` tells which Dense where that is not clear: ``"predictions"``, or ``"inner/predictions"`` in a nested model.
    The new model is not compiled.

    ``head`` makes the units from their number: ``partial(GatedDomainUnits, num_bases=8)``, ``GatedDomainUnits.paper``.
    With a shared expert the old weights stay in it, so that the model gives the same output as before until trained.

    ``gating`` is the view that gates see when it is not the features: a Keras layer or model, called on the model's
    input, or names of layers whose channel statistics they see. A sequential model becomes a functional one by it.
    """
    check_graph(model)
    there = find_units(model)
    if there and (name is None or name in there):
        raise ValueError(
            f"the model {model.name!r} already has gated domain units: {', '.join(there)}; use them (model_head, "
            "renew_head), call replace_head on the model that ends in Dense for other settings, or choose another "
            "Dense with name="
        )
    path = find_head(model, name=name)
    old = path[-1]
    if getattr(old, "quantization_mode", None):
        raise ValueError(f"{old.name} is quantised to {old.quantization_mode}; replace the head before quantising")
    with _policy(old.dtype_policy):
        units = _units(head, old)
        new = grafted(model, path, units, looked_at(model, gating))
    _keep_weights(units, old)
    if verbose:
        print(
            f"replaced {'/'.join(layer.name for layer in path)}: Dense({units.in_features} -> {old.units}) by "
            f"{units.num_bases} gated domain units of {units.basis_size} vectors"
            + (f", gates see a view of width {units.gating_features}" if gating is not None else "")
        )
    return new


def model_head(model: keras.Model) -> GatedDomainUnits:
    """The units inside a model."""
    return one_units(model)


def renew_head(
    model: keras.Model,
    inputs: Inputs,
    *,
    optimizer: keras.optimizers.Optimizer | None = None,
    max_rows: int = RENEWING_ROWS,
    batch_size: int = ROWS_AT_ONCE,
    seed: int = 0,
) -> GatedDomainUnits:
    """Keep the gates of a model fitted to features that move, in a loop of your own; ``model.fit`` takes ``RenewHead``.

    Called when an epoch begins with ``optimizer``, it fits the units where they never were, and refits them where
    features have moved away from the bases. Otherwise, and without ``optimizer``, as before evaluation, it renews the
    quantiles of familiarity alone. See ``GatedDomainUnits.renew``. Warns (``GateWarning``) once when gates have died
    and are not refitted.
    """
    rows = gating_rows(model, inputs, max_rows=max_rows, batch_size=batch_size)
    units = model_head(model)
    renew_on_rows(model, units, rows, optimizer=optimizer, seed=seed)
    return units


def renew_on_rows(
    model: keras.Model,
    units: GatedDomainUnits,
    rows: NDArray[Any],
    *,
    optimizer: keras.optimizers.Optimizer | None,
    seed: int,
) -> None:
    """``renew_head`` on rows that gates saw."""
    standardised = standardised_view(model) if len(find_units(model)) == 1 else None
    if standardised is None or optimizer is None or units.drift(rows, seed=seed) is None:
        units.renew(rows, optimizer=optimizer, seed=seed)
    else:
        fit_on_rows(model, rows, partial(units.refit_bases, optimizer=optimizer, seed=seed))


def fit_head(
    model: keras.Model,
    inputs: Inputs,
    *,
    max_rows: int = FITTING_ROWS,
    batch_size: int = ROWS_AT_ONCE,
    seed: int = 0,
    optimizer: keras.optimizers.Optimizer | None = None,
) -> GatedDomainUnits:
    """Fit the units inside a model on what they will see: ``fit_bases`` on the model's own gating view.

    A view that is standardised is so by these inputs from now on. For other settings:
    ``model_head(model).fit_bases(gating_rows(model, inputs), sigma=...)``.
    """
    rows = gating_rows(model, inputs, max_rows=max_rows, batch_size=batch_size)
    units = model_head(model)
    fit_on_rows(model, rows, partial(units.fit_bases, seed=seed, optimizer=optimizer))
    return units


def fit_on_rows(model: keras.Model, rows: NDArray[Any], fit: Callable[[NDArray[Any]], object]) -> NDArray[Any]:
    """Fit units to rows that gates saw, and the standardisation of a view with them; gives back what they see now."""
    standardised = standardised_view(model)
    if standardised is None:
        fit(rows)
        return rows
    observed = standardised.inverse(rows)
    renewed = Standardised(dtype=standardised.dtype_policy).fit(observed)
    seen = as_numpy(renewed(observed))
    fit(seen)  # refuses before anything is written
    standardised.take_from(renewed)
    return seen


def gating_rows(
    model: keras.Model, inputs: Inputs, *, max_rows: int = FITTING_ROWS, batch_size: int = ROWS_AT_ONCE
) -> NDArray[Any]:
    """Rows (at most ``max_rows``) of the view that the units' gates see, with the model as it is for prediction.

    ``inputs`` are an array, a list or a dict of arrays, of which rows at even distances are taken, or an iterable of
    batches, of which the first ones are: shuffle one that holds one domain after the other.
    """
    units = model_head(model)
    with units.watch() as seen, without_gradients():
        parts = []
        for batch in _shown(batches_of(inputs, batch_size, max_rows)):
            model(batch, training=False)
            parts += [at_least_float32_rows(rows) for rows in seen]
            seen.clear()
    return spread(np.concatenate(parts), max_rows)


def standardised_view(model: keras.Model) -> Standardised | None:
    """The layer that standardises what gates see, where there is one."""
    found = [layer for layer in model._flatten_layers() if isinstance(layer, Standardised)]
    if len(found) > 1:
        raise ValueError(
            f"the model {model.name!r} standardises {len(found)} views: {', '.join(layer.name for layer in found)}; "
            "fit them yourself, and then model_head(model).fit_bases(gating_rows(model, inputs))"
        )
    return found[0] if found else None


def _units(head: Callable[..., GatedDomainUnits], old: keras.layers.Dense) -> GatedDomainUnits:
    units = head(old.units)
    if not isinstance(units, GatedDomainUnits):
        raise TypeError(f"head must make GatedDomainUnits from a number of units, it made {units!r}")
    if units.built:
        raise ValueError(f"head gave the layer {units.name!r}, which is built already; it must make a new one")
    linear = keras.activations.linear
    if units.activation is linear and old.activation not in (None, linear):
        if units.task is not None:
            raise ValueError(
                f"the activation {old.activation.__name__} of {old.name} would distort mean and variance: a head for "
                f"{units.task} takes the place of a Dense without one"
            )
        units.activation = old.activation
    if "name" not in getattr(head, "keywords", {}):
        units.name = old.name  # losses and metrics by output name go on
    return units


def _keep_weights(units: GatedDomainUnits, old: keras.layers.Dense) -> None:
    shared = units.shared
    kernel = np.swapaxes(as_numpy(old.kernel), 0, 1)[None]
    if not isinstance(shared, LinearBank) or tuple(shared.weight.shape) != kernel.shape:
        return
    shared.weight.assign(kernel)
    if shared.bias is not None:
        shared.bias.assign(np.zeros(shared.bias.shape) if old.bias is None else as_numpy(old.bias)[None])


@contextmanager
def _policy(policy: Any) -> Iterator[None]:
    """Layers made inside the block have this precision."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _shown(batches: Iterable[Any]) -> Iterable[Any]:
    from rich.progress import track  # here, so that importing the package stays cheap

    return track(batches, description="taking features", transient=True, disable=not sys.stderr.isatty())
