"""PenaltyRamp: penalties that come in by and by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from gated_domains.common.validation import at_least_one, not_negative
from gated_domains.keras_layer.arrays import as_numpy, keras
from gated_domains.keras_layer.finding import check_built, chosen_units
from gated_domains.keras_layer.units import GatedDomainUnits

_LAMBDAS = GatedDomainUnits.LAMBDAS


class PenaltyRamp(keras.callbacks.Callback):
    """A factor on the layer's penalties: ``start`` in epoch 0, 1 from epoch ``epochs`` on, on a line between.

    ``schedule`` gives any other curve: ``lambda epoch: 0.5 ** epoch``. ``penalties`` names those that it is for, of
    ``GatedDomainUnits.PENALTIES``; all in use by default. Epochs are counted as ``fit`` counts them.

    The factor stands in ``history`` as ``penalty_scale``, or as ``penalty_scale_entropy`` for a penalty that was named.
    Between epochs and after training it is 1, so that no file keeps half a ramp: ``ModelCheckpoint`` comes after this.
    """

    def __init__(
        self,
        epochs: int = 10,
        *,
        start: float = 0.0,
        penalties: str | Iterable[str] | None = None,
        schedule: Callable[[int], float] | None = None,
        layer: str | GatedDomainUnits | None = None,
    ) -> None:
        super().__init__()
        self.epochs = at_least_one("epochs", epochs)
        self.start = not_negative("start", start)
        self.penalties = _known(penalties)
        if schedule is not None and not callable(schedule):
            raise TypeError(f"schedule must be a function of the epoch, got {schedule!r}; try lambda epoch: ...")
        self.schedule = schedule
        self.layer = layer
        self._places: list[tuple[GatedDomainUnits, list[int]]] = []

    def factor(self, epoch: int) -> float:
        """The factor in an epoch."""
        if self.schedule is None:
            return self.start + (1 - self.start) * min(epoch / self.epochs, 1)
        given = self.schedule(epoch)
        try:
            number = float(given)
        except (TypeError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            raise ValueError(f"schedule({epoch}) must be a number of at least 0, got {given!r}")
        return number

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        model = self.model
        check_built(model)
        units = chosen_units(model, self.layer)
        self._places = [(layer, self._places_in(name, layer)) for name, layer in units.items()]
        if not any(places for _, places in self._places):
            raise ValueError(
                f"no penalty of {', '.join(map(repr, units))} is in use, so there is nothing to ramp up: set one of "
                f"{', '.join(_LAMBDAS.values())} above 0"
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._write(self.factor(epoch))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            names = ["penalty_scale"] if self.penalties is None else [f"penalty_scale_{p}" for p in self.penalties]
            logs.update(dict.fromkeys(names, self.factor(epoch)))
        self._write(1.0)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._write(1.0)

    def _places_in(self, name: str, layer: GatedDomainUnits) -> list[int]:
        in_use = layer.penalties_in_use
        for penalty in self.penalties or ():
            if penalty not in in_use:
                raise ValueError(
                    f"the penalty {penalty!r} is not in use in {name!r}: make the layer with {_LAMBDAS[penalty]} above "
                    f"0, or ramp one that is: {', '.join(in_use) or 'there is none'}"
                )
        return [layer.PENALTIES.index(penalty) for penalty in self.penalties or in_use]

    def _write(self, factor: float) -> None:
        for layer, places in self._places:
            scales = as_numpy(layer.penalty_scales).copy()
            scales[places] = factor
            layer.penalty_scales.assign(scales)


def _known(penalties: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if penalties is None:
        return None
    names = (penalties,) if isinstance(penalties, str) else tuple(penalties)
    unknown = [name for name in names if name not in _LAMBDAS]
    if unknown or not names:
        raise ValueError(f"penalties must be some of {', '.join(_LAMBDAS)}, got {penalties!r}")
    return names
