"""Which linear layer of a model is its head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

#: What a model is called with: a tensor, a tuple of arguments, or a mapping of keyword arguments.
Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]


def find_head(model: nn.Module, *, name: str | None = None, example: Inputs | None = None) -> tuple[str, nn.Linear]:
    """The final linear layer and its name.

    The one named; else the one whose output the model returns for ``example``; else the only one that feeds no later
    layer.
    """
    layers = linear_layers(model)
    if not layers:
        raise ValueError(f"{type(model).__name__} has no nn.Linear layer whose place units could take")
    if name is not None:
        if name not in layers:
            raise ValueError(f"{type(model).__name__} has no nn.Linear named {name!r}; it has {_listed(layers)}")
        return name, layers[name]
    found = _returned(model, layers, example) if example is not None else {}
    found = found or _terminal(model, layers)
    if len(found) != 1:
        what = "no layer that is clearly the head" if not found else f"{len(found)} layers that could be the head"
        raise ValueError(
            f"{type(model).__name__} has {what}: {_listed(found or layers)}; choose one with name=, "
            "or pass example= (a small input batch) to see which one gives the model's output"
        )
    return next(iter(found.items()))


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """All linear layers by name, in order; without those that attention reads the weights of and never calls."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not isinstance(module, NonDynamicallyQuantizableLinear)
    }


def call(model: nn.Module, inputs: Inputs | None) -> Any:
    """``model(...)`` with a tensor, a tuple of arguments or a mapping of keyword arguments."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(inputs)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, and every module back in its own mode after."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def unmoved_buffers(model: nn.Module) -> Iterator[None]:
    """Running statistics as they were before, whatever the model did in between."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


def _terminal(model: nn.Module, layers: dict[str, nn.Linear]) -> dict[str, nn.Linear]:
    """The layers whose output width is no later layer's input width; of those, the least deeply nested.

    So a query-key-value product inside a block, whose width nobody reads as such, does not stand against the head.
    """
    order = list(model.named_modules())
    places = {name: place for place, (name, _) in enumerate(order)}
    widths = [_input_width(module) for _, module in order]
    found = {name: layer for name, layer in layers.items() if layer.out_features not in widths[places[name] + 1 :]}
    shallowest = min((name.count(".") for name in found), default=0)
    return {name: layer for name, layer in found.items() if name.count(".") == shallowest}


def _input_width(module: nn.Module) -> int | None:
    for attribute in ("in_features", "in_channels", "num_features", "embed_dim", "input_size"):
        width = getattr(module, attribute, None)
        if isinstance(width, int):
            return width
    shape = getattr(module, "normalized_shape", None)
    return shape[-1] if isinstance(shape, tuple) else None


def _returned(model: nn.Module, layers: dict[str, nn.Linear], example: Inputs) -> dict[str, nn.Linear]:
    """The layers whose output tensor is among what the model returns."""
    outputs: dict[str, Tensor] = {}
    hooks = [
        layer.register_forward_hook(lambda _m, _i, output, name=name: outputs.update({name: output}))
        for name, layer in layers.items()
    ]
    try:
        with torch.no_grad(), evaluating(model):
            result = call(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    returned = {tensor.data_ptr() for tensor in _tensors(result)}
    return {name: layers[name] for name, output in outputs.items() if output.data_ptr() in returned}


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, Mapping):
        return [tensor for value in result.values() for tensor in _tensors(value)]
    if isinstance(result, tuple | list):
        return [tensor for value in result for tensor in _tensors(value)]
    return []


def _listed(layers: dict[str, nn.Linear]) -> str:
    shown = [f"{name} ({layer.in_features} -> {layer.out_features})" for name, layer in layers.items()]
    return ", ".join(shown[-12:]) + (f" and {len(shown) - 12} before" if len(shown) > 12 else "")
