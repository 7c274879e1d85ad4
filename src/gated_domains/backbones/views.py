"""Views for gates inside a model: what the inputs or early layers say about style, not class.

A view is observed by hooks while the model runs and taken by the head at its end; nothing of it is kept after that,
and nothing is back-propagated through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gated_domains.layer.fitting import on_first_rank
from gated_domains.layer.precision import at_least_float32
from gated_domains.layer.units import GatedDomainUnits

_CHANNELS_SECOND = (nn.Conv1d, nn.BatchNorm1d, nn.ConvTranspose1d)


class Observer(nn.Module):
    """Something seen by a hook while the model runs, to be taken once at its end."""

    hook: RemovableHandle

    def __init__(self) -> None:
        super().__init__()
        self.held: Tensor | None = None

    def take(self) -> Tensor:
        """What was seen; it is not kept."""
        held, self.held = self.held, None
        if held is None:
            raise RuntimeError("the gating view was not observed: call the whole model, not its head alone")
        return held

    def stop(self) -> None:
        """Observe no more."""
        self.hook.remove()


class InputView(Observer):
    """A callable of the model's inputs."""

    def __init__(self, model: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function
        self.hook = model.register_forward_pre_hook(self.observe, with_kwargs=True)

    def observe(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with torch.no_grad():
            self.held = self.function(*args, **kwargs)


class LayerStatistics(Observer):
    """Mean and log standard deviation of every channel of one layer's output."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.hook = layer.register_forward_hook(self.observe)

    def observe(self, layer: nn.Module, _: tuple[Any, ...], output: Any) -> None:
        first = output[0] if isinstance(output, tuple | list) else output
        channels_second = first.dim() != 3 or isinstance(layer, _CHANNELS_SECOND)
        with torch.no_grad():
            self.held = channel_statistics(first, channels_second=channels_second)


class ManyLayers(nn.Module):
    """The statistics of several layers, side by side."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        known = dict(model.named_modules())
        missing = [name for name in names if name not in known]
        if missing or not names:
            raise ValueError(f"gating names layers of the model, got {list(names)}; unknown: {missing}")
        self.layers = nn.ModuleList(LayerStatistics(known[name]) for name in names)

    def take(self) -> Tensor:
        return torch.cat([cast(Observer, layer).take() for layer in self.layers], dim=-1)

    def stop(self) -> None:
        for layer in self.layers:
            cast(Observer, layer).stop()


class Standardised(nn.Module):
    """``(z - mean) / scale`` with the mean and scale of training data; nothing until fitted."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def forward(self, z: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        return (z - self.mean) / self.scale

    def inverse(self, z: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        """What was standardised, as it was before."""
        return z * self.scale + self.mean

    def take_from(self, other: Standardised) -> None:
        """Copy another's mean and scale; with several processes, those of rank 0."""
        on_first_rank(lambda: self.load_state_dict(other.state_dict()), [self.mean, self.scale])

    @torch.no_grad()
    def fit(self, z: Float[Tensor, "rows width"]) -> None:
        scale = z.std(0)
        self.mean.copy_(z.mean(0))
        self.scale.copy_(torch.where(scale > 1e-6, scale, 1.0))  # a constant column says nothing either way


class ViewedHead(nn.Module):
    """Units that take their gating view from elsewhere in the model."""

    def __init__(self, units: GatedDomainUnits, view: InputView | ManyLayers) -> None:
        super().__init__()
        self.units = units
        self.view = view
        self.standardised = Standardised(units.gating_features).to(at_least_float32(units.bases.detach()))

    def forward(self, features: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch outputs"]:
        gating = self.standardised(self.view.take().to(self.standardised.mean.dtype))
        output: Tensor = self.units(features, gating)
        return output


def channel_statistics(
    maps: Float[Tensor, "batch ..."], *, channels_second: bool = True
) -> Float[Tensor, "batch statistics"]:
    """Mean and log standard deviation over all positions of each channel; plain vectors as they are."""
    if maps.dim() == 2:
        return maps
    flat = maps.flatten(2) if channels_second else maps.flatten(1, -2).mT
    flat = at_least_float32(flat)
    return torch.cat([flat.mean(-1), (flat.var(-1, correction=0) + 1e-6).log() / 2], dim=-1)
