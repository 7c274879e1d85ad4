"""FreezeBackbone: from some epoch on only the gated layer learns."""

from __future__ import annotations

import hashlib
import operator
from typing import Any

import numpy as np

from gated_domains.keras_layer.arrays import as_numpy, keras
from gated_domains.keras_layer.finding import check_built, chosen_units
from gated_domains.keras_layer.optimisers import AVERAGES, optimisers_in
from gated_domains.keras_layer.units import GatedDomainUnits

_LISTS = ("_trainable_variables", "_trainable_variables_indices", AVERAGES)


class FreezeBackbone(keras.callbacks.Callback):
    """From epoch ``after`` on (the first is 0) everything but the gated layer stands still, bit for bit.

    Weights and the statistics of batch norms do not move, and batch norms use what they have gathered; dropout goes on,
    as Keras has it for layers that are not trainable. The layer goes on with the optimiser as it is: its momenta, its
    place in a learning-rate schedule, its loss scale. Moving averages (``use_ema``) are kept of the layer alone.

    With ``layer`` (a name, or the layer) only that one of several goes on. Between epochs and after training
    ``trainable`` is everywhere as it was: a checkpoint of callbacks that come after this one is of a plain model, and
    the model can be fitted again. After a training that was broken off ``release`` puts it back.
    """

    def __init__(self, after: int = 0, *, layer: str | GatedDomainUnits | None = None) -> None:
        super().__init__()
        self.after = _epoch(after)
        self.layer = layer
        self._still: _Still | None = None
        self._prints: dict[str, bytes] | None = None
        self._began = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.release()
        chosen_units(self.model, self.layer)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if epoch < self.after:
            return
        model = self.model
        check_built(model)
        units = list(chosen_units(model, self.layer).values())
        if not model.optimizer.built:  # for all that it will have to move once nothing is frozen
            model.optimizer.build(model.trainable_variables)
        first = not self._began
        self._still = _Still(model, units, first=first)
        if first:
            self._began = True
            self._prints = _prints(model, units)
            # Which variables move is read when the step is traced.
            model.make_train_function(force=True)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._prints is not None:
            self._check_still()
        if self._still is not None:
            self._still.release()
            self._still = None

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.release()

    def release(self) -> None:
        """Make everything trainable that was, and the optimiser move it again."""
        if self._still is not None:
            self._still.release()
        if self._began:
            self.model.train_function = None
        self._still, self._prints, self._began = None, None, False

    def _check_still(self) -> None:
        """Once, after the first frozen epoch: a layer may change itself in training whatever ``trainable`` says."""
        before, self._prints = self._prints, None
        after = _prints(self.model, list(chosen_units(self.model, self.layer).values()))
        moved = [path for path, value in after.items() if (before or {}).get(path) != value]
        if moved:
            self.release()
            raise RuntimeError(
                f"{', '.join(moved[:3])} moved in a frozen epoch: a layer or a callback changes it by itself, "
                "trainable or not, as SpectralNormalization does; leave that out, or FreezeBackbone"
            )


class _Still:
    """A model of which nothing moves but the given layers, until ``release``."""

    def __init__(self, model: keras.Model, units: list[GatedDomainUnits], *, first: bool) -> None:
        # Outer layers first: setting one sets all that it holds.
        layers = sorted(model._flatten_layers(), key=lambda layer: -len(layer._flatten_layers()))
        self._layers = [(layer, layer.trainable) for layer in layers]
        self._variables = [(variable, variable.trainable) for variable in model.variables]
        moving = {id(part) for unit in units for part in unit._flatten_layers()}
        kept = {id(variable) for unit in units for variable in unit.variables}
        for layer in layers:
            if not moving & {id(part) for part in layer._flatten_layers()}:
                layer.trainable = False
        for layer, trainable in self._layers:
            if id(layer) in moving:
                layer.trainable = trainable
        for variable, trainable in self._variables:
            variable.trainable = trainable and id(variable) in kept
        if not model.trainable_variables:
            self._flags_back()
            raise ValueError(
                f"with everything but {', '.join(unit.name for unit in units)} frozen nothing is left to train: set "
                "trainable = True on it and on what holds it, then compile again"
            )
        self._optimisers = [
            _Narrowed(part, kept, average_anew=first) for part in optimisers_in(model.optimizer) if part.built
        ]

    def release(self) -> None:
        self._flags_back()
        for optimiser in self._optimisers:
            optimiser.release()

    def _flags_back(self) -> None:
        for layer, trainable in self._layers:
            layer.trainable = trainable
        for variable, trainable in self._variables:
            variable.trainable = trainable


class _Narrowed:
    """An optimiser that for a while knows of some of its variables only; all of its state stays where it is.

    Not a new optimiser for fewer variables: its momenta would have to be copied there and back, settings that no config
    holds (``exclude_from_weight_decay``) would be lost, and a checkpoint would not fit the model.
    """

    def __init__(self, optimiser: keras.optimizers.Optimizer, kept: set[int], *, average_anew: bool) -> None:
        # By way of the dict: as attributes, lists of variables would be taken for state of the optimiser's own.
        self._held = vars(optimiser)
        self._before = {name: self._held[name] for name in _LISTS if name in self._held}
        variables = list(optimiser._trainable_variables)
        averages = list(self._before.get(AVERAGES, []))
        places = [place for place, variable in enumerate(variables) if id(variable) in kept]
        if average_anew:
            for place in set(range(len(averages))) - set(places):
                if averages[place] is not None:
                    # What stands still is its own average; at the end of training averages become weights. A copy,
                    # because JAX's trainer gives each buffer away and cannot give one away twice.
                    averages[place].assign(np.array(as_numpy(variables[place])))
        self._held["_trainable_variables"] = [variables[place] for place in places]
        # Places among all variables, because that is how momenta are found.
        self._held["_trainable_variables_indices"] = {optimiser._var_key(variables[place]): place for place in places}
        if averages:
            self._held[AVERAGES] = [averages[place] for place in places]

    def release(self) -> None:
        self._held.update(self._before)


def _prints(model: keras.Model, units: list[GatedDomainUnits]) -> dict[str, bytes]:
    """A fingerprint of every weight outside the given layers, by path."""
    kept = {id(weight) for unit in units for weight in unit.weights}
    return {
        f"{weight.path}": hashlib.blake2b(as_numpy(weight).tobytes(), digest_size=16).digest()
        for weight in model.weights
        if id(weight) not in kept
    }


def _epoch(after: int) -> int:
    try:
        number = -1 if isinstance(after, bool) else operator.index(after)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"after must be a whole number of at least 0, the first frozen epoch, got {after!r}")
    return number
