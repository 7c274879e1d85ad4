"""Graphs of functional and sequential models: which layer is the head, and the same graph with other layers in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from gated_domains.keras_layer.arrays import keras

#: The layers on the way from a model to one inside it: nested models, then the layer itself.
Path: TypeAlias = "tuple[keras.layers.Layer, ...]"

_SUMS = {"Add", "Subtract", "Average", "Concatenate"}
_SAME_NUMBERS = {"Dropout", "Reshape", "Flatten", "Permute", "Identity", "Cast", "Squeeze", "ExpandDims"}


def check_graph(model: Any) -> None:
    """Refuse what is no functional or sequential model, or one that has no graph yet."""
    if not isinstance(model, keras.Model):
        raise TypeError(f"expected a Keras model, got {type(model).__name__}: {model!r}")
    if is_graph(model):
        return
    if isinstance(model, keras.Sequential):
        raise ValueError(
            f"the model {model.name!r} is not built, so that its shapes are unknown: call model.build((None, ...)) "
            "with the shape of its input, or begin it with keras.Input"
        )
    raise TypeError(
        f"{type(model).__name__} is a subclassed model, whose layers are called by code of its own: write "
        "GatedDomainUnits(units) there in place of its last Dense(units), or make a functional model of its parts"
    )


def is_graph(model: Any) -> bool:
    """True for a functional model and for a sequential one that knows its shapes."""
    return isinstance(model, keras.Model) and hasattr(model, "inputs") and hasattr(model, "outputs")


def ends(model: keras.Model) -> tuple[Any, Any]:
    """Symbolic inputs and outputs of a model, in the structure it was made with."""
    if isinstance(model, keras.Sequential):
        return model.inputs[0], model.outputs[0]
    return model.input, model.output


def rebuilt(
    model: keras.Model, instead: Mapping[int, Callable[..., Any]], *, extra: Sequence[Any] = ()
) -> tuple[Any, Any]:
    """Inputs and outputs of the same graph on the same inputs, with something else called for some of its layers.

    ``instead`` goes by the id of a layer; ``extra`` are further inputs for what is called there. All other layers are
    those of the model, so that the two share weights.
    """
    inputs, outputs = ends(model)
    inputs = [*keras.tree.flatten(inputs), *extra] if extra else inputs
    # By way of a plain model: what the given one was compiled with stays with it.
    same = keras.models.clone_model(
        keras.Model(inputs, outputs),
        input_tensors=inputs,
        clone_function=lambda layer: layer,
        call_function=lambda layer, *args, **kwargs: instead.get(id(layer), layer)(*args, **kwargs),
    )
    return same.input, same.output


def like(model: keras.Model, inputs: Any, outputs: Any) -> keras.Model:
    """A functional model of the given one's name, and of its class where that is made as functional models are."""
    plain = keras.Model(inputs, outputs, name=model.name)
    return type(model)(inputs, outputs, name=model.name) if type(model).__init__ is type(plain).__init__ else plain


def before(model: keras.Model, layer: keras.layers.Layer) -> keras.Model:
    """What comes before a layer: a model with the same layers that gives all the layer is called on, as a list."""
    call = _the_call(model, layer)
    if call.holder is layer:
        return keras.Model(call.inputs, call.taken)
    return keras.Model(call.inputs, keras.tree.flatten(before(call.holder, layer)(call.taken)))


def after(model: keras.Model, layer: keras.layers.Layer) -> keras.Model:
    """A layer and what comes after it: a model with the same layers that takes what ``before`` gives."""
    call = _the_call(model, layer)
    taken = call.taken if call.holder is layer else keras.tree.flatten(call.given)
    if call.outputs is call.given and call.holder is not layer:
        return after(call.holder, layer)
    try:
        rest = keras.Model(taken, call.outputs)
    except ValueError as error:
        raise ValueError(
            f"the output of the model {model.name!r} needs more than {layer.name} gives, and cannot be computed from "
            f"that alone ({error})"
        ) from error
    if call.holder is layer:
        return rest
    within = after(call.holder, layer)
    entries = [keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype) for tensor in within.inputs]
    return keras.Model(entries, rest(keras.tree.flatten(within(entries))))


class _Call(NamedTuple):
    """The one call of a layer, or of the nested model that holds it, in a graph."""

    holder: keras.layers.Layer
    inputs: Any
    taken: list[Any]
    given: Any
    outputs: Any


def _the_call(model: keras.Model, layer: keras.layers.Layer) -> _Call:
    check_graph(model)
    holder = next((one for one in model.layers if one is layer or layer in one._flatten_layers()), None)
    if holder is None:
        raise ValueError(f"{layer.name} is no layer of the model {model.name!r}")
    calls: list[tuple[list[Any], Any]] = []

    def called(*args: Any, **kwargs: Any) -> Any:
        given = holder(*args, **kwargs)
        calls.append((_tensors((args, kwargs)), given))
        return given

    inputs, outputs = rebuilt(model, {id(holder): called})
    if len(calls) != 1:
        raise ValueError(f"{holder.name} is called {len(calls)} times in the model {model.name!r}, expected once")
    return _Call(holder, inputs, *calls[0], outputs)


def _tensors(arguments: Any) -> list[Any]:
    return [one for one in keras.tree.flatten(arguments) if isinstance(one, keras.KerasTensor)]


def find_head(model: keras.Model, *, name: str | None = None) -> Path:
    """The final Dense, and the nested models it lies in.

    The one named; else the last one on the way to the only output, with nothing after it that has weights.
    """
    layers = dense_layers(model)
    if not layers:
        raise ValueError(f"the model {model.name!r} has no Dense layer whose place units could take")
    if name is not None:
        meant = [path for place, path in layers.items() if name in (place, path[-1].name)]
        if len(meant) != 1:
            what = "no Dense layer" if not meant else f"{len(meant)} Dense layers"
            raise ValueError(f"the model {model.name!r} has {what} named {name!r}; it has {_listed(layers)}")
        return meant[0]
    found, certain = _last(model)
    if len(found) != 1 or not certain or len(model.outputs) > 1:
        outputs = f", and {len(model.outputs)} outputs" if len(model.outputs) > 1 else ""
        what = "no Dense that is clearly the head" if len(found) < 2 else f"{len(found)} that could be the head"
        shown = {place: path for place, path in layers.items() if path in found} or layers
        raise ValueError(f"the model {model.name!r} has {what}{outputs}: {_listed(shown)}; choose one with name=")
    return found[0]


def dense_layers(model: keras.Model) -> dict[str, Path]:
    """All Dense layers of a graph, those of nested models too, by name: ``outer/inner``."""
    return {place: path for place, path in paths(model).items() if isinstance(path[-1], keras.layers.Dense)}


def paths(model: keras.Model) -> dict[str, Path]:
    """All layers of a graph, those of nested models too, by name: ``outer/inner``."""
    found: dict[str, Path] = {}
    for layer in model.layers:
        found[layer.name] = (layer,)
        if is_graph(layer):
            found.update({f"{layer.name}/{place}": (layer, *path) for place, path in paths(layer).items()})
    return found


def last_activation(model: keras.Model) -> str:
    """The name of the function that the model's output comes from, such as ``softmax``; ``linear`` where from none."""
    tensor = keras.tree.flatten(ends(model)[1])[0]
    while True:
        operation, before = _producer(tensor)
        if is_graph(operation):
            return last_activation(operation)
        kind = type(operation).__name__
        function = getattr(operation, "activation", None)
        if function is not None:
            named = function.__name__
        else:
            named = "linear" if kind in _SUMS or bool(getattr(operation, "weights", [])) else kind.lower()
        passed = kind in _SAME_NUMBERS or (kind == "Activation" and named == "linear")
        if not passed or len(before) != 1:
            return named
        tensor = before[0]


def _last(model: keras.Model) -> tuple[list[Path], bool]:
    """Every Dense with nothing between it and the outputs that has weights, and whether no branches meet there."""
    found: list[Path] = []
    certain = True
    ahead = list(keras.tree.flatten(ends(model)[1]))
    while ahead:
        operation, before = _producer(ahead.pop())
        if isinstance(operation, keras.layers.Dense):
            found.append((operation,))
        elif is_graph(operation) and operation.weights:
            inner, inner_certain = _last(operation)
            found += [(operation, *path) for path in inner]
            certain = certain and inner_certain
        elif not getattr(operation, "weights", ()):
            certain = certain and len(before) < 2
            ahead += before
    return list(dict.fromkeys(found)), certain


def _producer(tensor: Any) -> tuple[Any, list[Any]]:
    """What a symbolic tensor came from: a layer or an operation, and the tensors it was called on."""
    operation, place, _ = tensor._keras_history
    return operation, list(operation._inbound_nodes[place].input_tensors)


def _listed(layers: Mapping[str, Path]) -> str:
    shown = [f"{place} ({path[-1].input_spec.axes[-1]} -> {path[-1].units})" for place, path in layers.items()]
    return ", ".join(shown[-12:]) + (f" and {len(shown) - 12} before" if len(shown) > 12 else "")
