"""Units put into a model's graph, and beside them the branch that makes what their gates see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from gated_domains.keras_layer.arrays import keras
from gated_domains.keras_layer.graphs import Path, ends, like, paths, rebuilt
from gated_domains.keras_layer.units import GatedDomainUnits
from gated_domains.keras_layer.views import ChannelStatistics, Standardised

Gating: TypeAlias = "keras.layers.Layer | Sequence[str]"

#: What gates look at: the layer called on the model's input, the layers whose statistics are taken, or a view that was
#: made further out, where the model is a nested one.
Look: TypeAlias = "keras.layers.Layer | list[Path] | keras.KerasTensor"


def looked_at(model: keras.Model, gating: Gating | None) -> Look | None:
    """What ``gating`` means in this model, refused where that is nothing."""
    if gating is None:
        return None
    if callable(gating) and (isinstance(gating, keras.layers.Lambda) or not isinstance(gating, keras.layers.Layer)):
        raise TypeError(
            f"gating must be a Keras layer or model, or names of layers, got {gating!r}, which could not be saved with "
            "the model: write it as a keras.layers.Layer, registered with keras.saving.register_keras_serializable"
        )
    if isinstance(gating, keras.layers.Layer):
        return gating
    names = [gating] if isinstance(gating, str) else list(gating)
    known = paths(model)
    chosen = {
        name: [known[name]] if name in known else [path for path in known.values() if path[-1].name == name]
        for name in names
    }
    if not names or any(len(found) != 1 for found in chosen.values()):
        unknown = [name for name, found in chosen.items() if not found]
        several = [name for name, found in chosen.items() if len(found) > 1]
        raise ValueError(
            f"gating names layers of the model, got {names}; unknown: {unknown}"
            + (f"; in several nested models: {several}, write outer/inner" if several else "")
        )
    return [found[0] for found in chosen.values()]


def grafted(model: keras.Model, path: Path, units: GatedDomainUnits, look: Look | None) -> keras.Model:
    """The model with the units in the place of the last layer of a path, their gates seeing what they look at."""
    target, deeper = path[0], path[1:]
    if look is None:
        return _swapped(model, target, grafted(target, deeper, units, None) if deeper else units)
    inside = [deeper != () and one[0] is target for one in look] if isinstance(look, list) else [False]
    if all(inside):
        return _swapped(model, target, grafted(target, deeper, units, [one[1:] for one in look]))
    if any(inside):
        raise ValueError(
            f"gating names layers inside {target.name!r}, where the head lies, and layers outside it; name either"
        )
    view = _view(model, look)

    def called(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        gating = view.tensor()
        if not deeper:
            return units(inputs, gating=gating)
        inner = grafted(target, deeper, units, gating)
        return inner([*keras.tree.flatten(inputs), gating], *args, **kwargs)

    instead = {**view.instead, id(target): _once(target, called)}
    return like(model, *rebuilt(model, instead, extra=view.extra))


def _swapped(model: keras.Model, old: keras.layers.Layer, new: keras.layers.Layer) -> keras.Model:
    """The model with one layer in the place of another, and of its kind."""
    if isinstance(model, keras.Sequential):
        kind = type(model) if type(model).__init__ is keras.Sequential.__init__ else keras.Sequential
        layers = [new if layer is old else layer for layer in model.layers]
        return kind([ends(model)[0], *layers], name=model.name)
    # Not new(*args): a Dense may have been called with arguments that mean nothing to units.
    plain = isinstance(old, keras.layers.Dense)
    called = (lambda inputs, *_, **__: new(inputs)) if plain else new
    return like(model, *rebuilt(model, {id(old): _once(old, called)}))


class _View(NamedTuple):
    """How a view is made in a graph: further inputs, what is called for some layers, and then the tensor."""

    tensor: Callable[[], Any]
    instead: dict[int, Callable[..., Any]]
    extra: list[Any]


def _view(model: keras.Model, look: Look) -> _View:
    if isinstance(look, keras.KerasTensor):
        given = keras.Input(batch_shape=look.shape, dtype=look.dtype, name="gating_view")
        return _View(lambda: given, {}, [given])
    if isinstance(look, keras.layers.Layer):
        made = Standardised()(look(ends(model)[0]))
        return _View(lambda: made, {}, [])
    seen: dict[Path, Any] = {}
    return _View(lambda: _statistics(look, seen), _observing(look, seen), [])


def _statistics(look: list[Path], seen: dict[Path, Any]) -> Any:
    """Mean and log standard deviation of the channels of what was seen, side by side and standardised."""
    late = [path[-1].name for path in look if path not in seen]
    if late:
        raise ValueError(f"gates cannot see {late}: they do not come before the head; name earlier layers")
    found = [ChannelStatistics(_data_format(path[-1], seen[path]))(seen[path]) for path in look]
    return Standardised()(found[0] if len(found) == 1 else keras.layers.Concatenate()(found))


def _data_format(layer: keras.layers.Layer, maps: Any) -> Any:
    form = getattr(layer, "data_format", None)
    if form is None:
        form = keras.config.image_data_format() if len(maps.shape) > 3 else "channels_last"
    return form


def _observing(look: list[Path], seen: dict[Path, Any]) -> dict[int, Callable[..., Any]]:
    """What to call for the layers looked at, so that what they give is seen; it is given on as it was."""
    instead = {}
    for first in dict.fromkeys(path[0] for path in look):
        within = [path[1:] for path in look if path[0] is first and len(path) > 1]
        instead[id(first)] = _once(first, _observed(first, within, (first,) in look, seen))
    return instead


def _observed(layer: keras.layers.Layer, within: list[Path], itself: bool, seen: dict[Path, Any]) -> Callable[..., Any]:
    wider = _wider(layer, within) if within else None

    def called(*args: Any, **kwargs: Any) -> Any:
        if wider is None:
            given = layer(*args, **kwargs)
        else:
            given, shown = wider(*args, **kwargs)
            seen.update({(layer, *path): tensor for path, tensor in zip(within, shown, strict=True)})
        if itself:
            seen[(layer,)] = keras.tree.flatten(given)[0]
        return given

    return called


def _wider(model: keras.Model, look: list[Path]) -> keras.Model:
    """A nested model that also gives what some of its layers do."""
    seen: dict[Path, Any] = {}
    inputs, outputs = rebuilt(model, _observing(look, seen))
    return keras.Model(inputs, [outputs, [seen[path] for path in look]], name=model.name)


def _once(layer: keras.layers.Layer, call: Callable[..., Any]) -> Callable[..., Any]:
    calls = 0

    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ValueError(f"{layer.name} is called several times in the model: units and views take one place only")
        return call(*args, **kwargs)

    return called
