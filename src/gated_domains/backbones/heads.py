"""Any model with a linear head becomes a gated one.

>>> model = replace_head(model)                       # where the final nn.Linear stood, same call, same output shape
>>> renew_head(model, loader, optimizer=optimizer)    # every epoch, since features move
>>> with model_head(model).record() as outs:
...     logits = model(x)
>>> loss = F.cross_entropy(logits, y) + model_head(model).penalty(outs[-1])
>>> renew_head(model.eval(), loader)                  # before evaluation: familiarity alone
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from gated_domains.backbones.backbone import Standardised, evaluating, unmoved_buffers
from gated_domains.backbones.gating import InputView, ManyLayers, ViewedHead
from gated_domains.layer.experts import LinearExperts
from gated_domains.layer.fitting import check_rows, on_first_rank
from gated_domains.layer.units import GatedDomainUnits

Gating = Callable[..., Tensor] | Sequence[str]

_FITTING_ROWS = 20_000
_RENEWING_ROWS = 5_000
#: What a model is called with: a tensor, a tuple of arguments, or a mapping of keyword arguments.
Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]


def replace_head(
    model: nn.Module,
    head: Callable[..., GatedDomainUnits] = GatedDomainUnits,
    *,
    name: str | None = None,
    gating: Gating | None = None,
    example: Inputs | None = None,
    verbose: bool = True,
) -> nn.Module:
    """Put units where the model's final linear layer stands, in place; says what it replaced.

    ``head`` makes the units from their sizes: ``partial(GatedDomainUnits, num_bases=8)``, ``GatedDomainUnits.paper``.
    With a shared expert the old weights stay in it, so that the model gives the same output as before until trained.

    ``gating`` is the view that gates see when it is not the features: a callable of the model's inputs, or names of
    layers whose channel statistics they see. Its width is measured on ``example``, a small input batch (a tensor, a
    tuple of arguments, or a dict of keyword arguments), which also tells which layer is the head where names do not.
    """
    _refuse_a_second_head(model, name)
    place, old = find_head(model, name=name, example=example)
    if gating is None:
        units = head(old.in_features, old.out_features).to(old.weight)
        new: nn.Module = units
    else:
        view = _view(model, place, gating, example)
        try:
            width = _width(model, view, example)
            units = head(old.in_features, old.out_features, gating_features=width).to(old.weight)
        except Exception:
            view.stop()  # a model whose view or head is refused is left as it was
            raise
        new = ViewedHead(units, view)
    _keep_weights(units, old)
    new.train(old.training)
    if verbose:
        print(
            f"replaced {place or 'the model'}: Linear({old.in_features} -> {old.out_features}) by "
            f"{units.num_bases} gated domain units of {units.basis_size} vectors"
            + (f", gates see a view of width {units.gating_features}" if gating is not None else "")
        )
    if not place:
        return new
    parent, _, child = place.rpartition(".")
    setattr(model.get_submodule(parent), child, new)
    return model


def model_head(model: nn.Module) -> GatedDomainUnits:
    """The units inside a model."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, GatedDomainUnits)}
    if len(found) != 1:
        raise ValueError(
            f"{type(model).__name__} has {len(found)} layers of gated domain units {sorted(found)}, expected one; "
            + ("put one there with replace_head(model)" if not found else "take the one you mean from the model")
        )
    return next(iter(found.values()))


def renew_head(
    model: nn.Module,
    batches: Tensor | Mapping[str, Any] | Iterable[Any],
    *,
    optimizer: torch.optim.Optimizer | None = None,
    refit: bool = True,
    max_rows: int = _RENEWING_ROWS,
    seed: int = 0,
) -> GatedDomainUnits:
    """Keep the gates of a model fitted to features that move: the call for the start of every epoch.

    With ``optimizer`` the units are fitted where they never were (the first call), and refitted where features have
    moved away from the bases, as they do in the first epochs of a network trained from scratch. Otherwise only the
    quantiles of familiarity are renewed, as is due before evaluation too. See ``GatedDomainUnits.renew``.

    The model runs in the mode it is in: dropout and batch statistics make training rows look unlike those in eval mode.
    Warns (``GateWarning``) once when gates have died and are not refitted.

    Parameters
    ----------
    batches
        As for ``fit_head``: a shuffled loader, or one input. The rows of a loader that holds one domain after the
        other would all come from the first.
    optimizer
        The optimizer of the training, whose state of the bases is cleared when they are rewritten; left out, bases
        stay as they are.
    refit
        Whether bases may be rewritten; False keeps the existing ones, such as the paper's.
    max_rows
        How many rows, the first of a shuffled loader, are looked at.
    seed
        Random seed.
    """
    units, rows = model_head(model), gating_rows(model, batches, max_rows=max_rows)
    if _viewed_head(model, units) is None or optimizer is None or not (refit and units.refit_is_due(rows, seed=seed)):
        return units.renew(rows, optimizer=optimizer, refit=refit, seed=seed)
    return _fit_on_rows(model, rows, partial(units.refit_bases, optimizer=optimizer, seed=seed))


def fit_head(
    model: nn.Module,
    batches: Tensor | Mapping[str, Any] | Iterable[Any],
    *,
    max_rows: int = _FITTING_ROWS,
    seed: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
) -> GatedDomainUnits:
    """Fit the units inside a model on what they will see: ``fit_bases`` on the model's own gating view.

    ``batches`` is one input (a tensor, or a dict of keyword arguments) or a loader; of ``(inputs, targets, ...)`` the
    inputs are used. For other settings: ``model_head(model).fit_bases(gating_rows(model, batches), sigma=...)``.
    """
    rows = gating_rows(model, batches, max_rows=max_rows)
    return _fit_on_rows(model, rows, partial(model_head(model).fit_bases, optimizer=optimizer, seed=seed))


def _fit_on_rows(model: nn.Module, rows: Tensor, fit: Callable[[Tensor], GatedDomainUnits]) -> GatedDomainUnits:
    """Fit the units to rows that gates saw, and the standardisation of a view with them."""
    units = model_head(model)
    viewed = _viewed_head(model, units)
    if viewed is None:
        return fit(rows)
    observed = viewed.standardised.inverse(rows)
    on_first_rank(lambda: check_rows(observed, at_least=2, purpose="standardising a view"), [units.bases])
    renewed = Standardised(units.gating_features).to(observed)
    renewed.fit(observed)
    fit(renewed(observed))  # refuses before anything is written
    viewed.standardised.take_from(renewed)
    return units


def _viewed_head(model: nn.Module, units: GatedDomainUnits) -> ViewedHead | None:
    return next((m for m in model.modules() if isinstance(m, ViewedHead) and m.units is units), None)


@torch.no_grad()
def gating_rows(
    model: nn.Module, batches: Tensor | Mapping[str, Any] | Iterable[Any], *, max_rows: int = _FITTING_ROWS
) -> Tensor:
    """The first rows (at most ``max_rows``) of the view that the units' gates see, with the model in the mode it is in.

    Shuffle a loader that holds one domain after the other, or the rows come from the first alone. Running statistics
    of the model stay as they were.
    """
    units = model_head(model)
    rows: list[Tensor] = []

    def keep(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
        view = args[1] if len(args) > 1 else kwargs.get("gating")
        rows.append((args[0] if view is None else view).flatten(0, -2))

    hook = units.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        with unmoved_buffers(model):
            device = units.bases.device
            for batch in _shown([batches] if isinstance(batches, Tensor | Mapping) else batches):
                call(model, _moved(_inputs(batch), device))
                if sum(len(part) for part in rows) >= max_rows:
                    break
    finally:
        hook.remove()
    if not rows:
        raise ValueError("no batch to take features from: batches is empty")
    return torch.cat(rows)[:max_rows]


def _refuse_a_second_head(model: nn.Module, name: str | None) -> None:
    """Refuse a model whose head has been replaced, unless another layer is named."""
    viewed = {module.units for module in model.modules() if isinstance(module, ViewedHead)}
    heads = {
        place: module
        for place, module in model.named_modules()
        if isinstance(module, ViewedHead | GatedDomainUnits) and module not in viewed
    }
    if heads and (name is None or name in heads):
        where = ", ".join(place or "the model itself" for place in heads)
        raise ValueError(
            f"{type(model).__name__} already has gated domain units: {where}; use them (model_head, renew_head), call "
            "replace_head on a freshly built model for other settings, or choose another linear layer with name="
        )


def _keep_weights(units: GatedDomainUnits, old: nn.Linear) -> None:
    shared = units.shared
    if not isinstance(shared, LinearExperts) or shared.weight.shape[1:] != old.weight.shape:
        return
    with torch.no_grad():
        shared.weight.copy_(old.weight.unsqueeze(0))
        if shared.bias is not None:
            shared.bias.copy_(torch.zeros_like(shared.bias) if old.bias is None else old.bias.unsqueeze(0))


def _view(model: nn.Module, place: str, gating: Gating, example: Inputs | None) -> InputView | ManyLayers:
    if example is None:
        raise ValueError("gating needs example=, a small input batch, to measure the width of the view")
    if not place:
        raise ValueError("a bare nn.Linear has no view to offer: build GatedDomainUnits and pass gating= at each call")
    if callable(gating):
        return InputView(model, gating)
    return ManyLayers(model, [gating] if isinstance(gating, str) else gating)


def _width(model: nn.Module, view: InputView | ManyLayers, example: Inputs | None) -> int:
    with torch.no_grad(), evaluating(model):
        call(model, example)
        seen = view.take()
    if seen.dim() != 2:
        raise ValueError(f"a gating view has shape (batch, features), this one has {tuple(seen.shape)}")
    return seen.shape[-1]


def _moved(inputs: Any, device: torch.device) -> Any:
    """The same inputs on the model's device, whatever holds them."""
    if isinstance(inputs, Mapping):
        return {name: _moved(value, device) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(_moved(value, device) for value in inputs)
    return inputs.to(device) if hasattr(inputs, "to") else inputs


def _inputs(batch: Any) -> Inputs:
    """What the model is called with: a mapping or tensor as it is, of a pair (inputs, targets) the inputs."""
    if isinstance(batch, Tensor | Mapping):
        return batch
    if not isinstance(batch, tuple | list):
        return (batch,)  # an object of some library, a batch of graphs for one
    first = batch[0]
    if isinstance(first, tuple | list):
        return tuple(first)
    return first if isinstance(first, Tensor | Mapping) else (first,)


def _shown(batches: Iterable[Any]) -> Iterable[Any]:
    from rich.progress import track  # here, so that importing the package stays cheap

    return track(batches, description="taking features", transient=True, disable=not sys.stderr.isatty())


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
