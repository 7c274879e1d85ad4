"""What gates may see: the features, the style of early blocks, statistics of the raw input, the raw vector.

A view inside a model is observed by hooks while the model runs and taken by the head at its end; nothing of it is kept
after that, and nothing is back-propagated through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64, Shaped
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gated_domains.backbones.backbone import Body, GatingView, RawInput, Standardised, evaluating
from gated_domains.backbones.graphs_in_rows import ATOM_SIZES, atoms_side_by_side
from gated_domains.data.errors import DataError
from gated_domains.layer.kernels import at_least_float32, autocast_off
from gated_domains.layer.units import GatedDomainUnits

_ENOUGH = 28  # positions a side that means are taken over
_CHANNELS_SECOND = (nn.Conv1d, nn.BatchNorm1d, nn.ConvTranspose1d)


class RandomFilters(GatingView):
    """Statistics of the raw image: mean and log-std of |response| of fixed random filters, mean and std of channels.

    The filters are drawn once from a seed of their own and saved with the model. For means not every position is
    needed: every second one is looked at, in large images fewer, down to some 28 a side.
    """

    weight: Tensor

    def __init__(
        self, shape: Sequence[int], *, filters: int = 64, size: int = 5, stride: int | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        if len(shape) != 3 or min(shape[1:]) < size:
            raise DataError(
                f"filters of {size} x {size} see images of at least that size, and these samples have shape "
                f"{tuple(shape)}; for tables and vectors gates see the 'input'"
            )
        self.stride = max(2, min(shape[1:]) // _ENOUGH) if stride is None else stride
        self.width = 2 * (filters + shape[0])
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(filters, shape[0], size, size, generator=generator)
        drawn = drawn / (shape[0] * size * size) ** 0.5
        self.register_buffer("weight", drawn.contiguous(memory_format=torch.channels_last))

    def forward(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch statistics"]:
        images, weight = inputs.to(self.weight.dtype), self.weight
        if images.is_cuda:  # as the images lie: three channels are too few to gain from another order
            weight = weight.contiguous()
        else:
            images = images.contiguous(memory_format=torch.channels_last)
        with autocast_off(images):
            mean, variance = _moments(F.conv2d(images, weight, stride=self.stride).abs_())
            colour, contrast = _moments(images)
        return torch.cat([mean, (variance + 1e-6).log() / 2, colour, contrast.sqrt()], dim=-1)


class RandomProjection(GatingView):
    """A wide vector (words of a text, bits of a fingerprint) through a fixed random matrix, to at most 128 numbers.

    Distances are nearly kept, and gates need not tell thousands of mostly empty columns apart.
    """

    weight: Tensor

    def __init__(self, shape: Sequence[int], *, width: int = 128, seed: int = 0) -> None:
        super().__init__()
        if len(shape) != 1:
            raise DataError(
                f"a projection is of vectors, and these samples have shape {tuple(shape)}; "
                "for images there are 'filters' and 'style'"
            )
        self.width = min(width, *shape)
        self.register_buffer("weight", _drawn(self.width, *shape, seed=seed) / shape[0] ** 0.5)

    def forward(self, inputs: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch width"]:
        with autocast_off(inputs):
            return F.linear(inputs.to(self.weight.dtype), self.weight)


class TokenStatistics(GatingView):
    """The mean over the tokens of a text of one fixed random vector each, and the logarithm of their number.

    So it is the words of a text without their order, in few numbers. Padding counts for nothing.
    """

    weight: Tensor

    def __init__(self, body: Body, *, numbers: int = 64, seed: int = 0) -> None:
        super().__init__()
        if body.takes != "tokens" or body.vocabulary is None:
            raise DataError(
                f"statistics of tokens need a body that takes tokens, and {type(body).__name__} takes {body.takes}; "
                "leave gating out for the view that goes with these data"
            )
        self.pad = body.pad
        self.width = numbers + 1
        self.register_buffer("weight", _drawn(body.vocabulary, numbers, seed=seed))

    def forward(self, inputs: Int64[Tensor, "batch length"]) -> Float[Tensor, "batch width"]:
        there = (inputs != self.pad).to(self.weight.dtype)
        count = there.sum(1, keepdim=True)
        with autocast_off(inputs):
            sums = F.embedding_bag(inputs, self.weight, per_sample_weights=there, mode="sum")
        return torch.cat([sums / count.clamp_min(1), count.log1p()], dim=-1)


class GraphStatistics(GatingView):
    """Mean and log-std over the atoms of a molecule of fixed random embeddings, and how many atoms and bonds it has."""

    weight: Tensor
    offsets: Tensor

    def __init__(self, body: Body, *, numbers: int = 32, seed: int = 0) -> None:
        super().__init__()
        if body.takes != "graphs":
            raise DataError(
                f"statistics of graphs need a body that takes graphs, and {type(body).__name__} takes {body.takes}; "
                "leave gating out for the view that goes with these data"
            )
        self.width = 2 * numbers + 2
        self.register_buffer("weight", _drawn(sum(ATOM_SIZES), numbers, seed=seed) / len(ATOM_SIZES) ** 0.5)
        self.register_buffer("offsets", torch.tensor([0, *ATOM_SIZES[:-1]]).cumsum(0), persistent=False)

    def forward(self, inputs: Int[Tensor, "batch columns"]) -> Float[Tensor, "batch width"]:
        # Side by side and not one after another: sums by index differ from time to time on a GPU.
        atoms, there = atoms_side_by_side(inputs)
        with autocast_off(inputs):
            embedded = F.embedding_bag((atoms + self.offsets).flatten(0, 1), self.weight, mode="sum")
        embedded = embedded.reshape(*there.shape, -1) * there.unsqueeze(-1)
        count = there.sum(1, keepdim=True).clamp_min(1)
        mean = embedded.sum(1) / count
        variance = (embedded.square().sum(1) / count - mean.square()).clamp_min(0)
        sizes = inputs[:, :2].to(mean.dtype).log1p()
        return torch.cat([mean, (variance + 1e-6).log() / 2, sizes], dim=-1)


class Style(GatingView):
    """Mean and log-std of every channel of the body's early blocks, seen while the body runs."""

    sees_raw_input = False

    def __init__(self, body: Body) -> None:
        super().__init__()
        if not body.early:
            instead = {"tokens": "tokens", "graphs": "graphs"}.get(body.takes, "input")
            raise DataError(
                f"{type(body).__name__} has no early block that could tell style; let gates see the {instead!r}"
            )
        self.layers = ManyLayers(body, body.early)
        with torch.no_grad(), evaluating(body):
            body(torch.zeros(2, *body.shape))
        self.width = self.layers.take().shape[-1]

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]:
        """What the body's last run showed; the inputs were its inputs."""
        return self.layers.take()


GATINGS: dict[str, Callable[[Body, Sequence[int]], GatingView | None]] = {
    "features": lambda body, shape: None,
    "style": lambda body, shape: Style(body),
    "filters": lambda body, shape: RandomFilters(shape),
    "input": lambda body, shape: RawInput(_vectors(body, shape)),
    "projection": lambda body, shape: RandomProjection(_vectors(body, shape)),
    "tokens": lambda body, shape: TokenStatistics(body),
    "graphs": lambda body, shape: GraphStatistics(body),
}


def _vectors(body: Body, shape: Sequence[int]) -> Sequence[int]:
    # Rows of token numbers or of graphs have the shape of vectors, and no distances that mean anything.
    if body.takes in ("tokens", "graphs"):
        raise DataError(
            f"gates cannot see {body.takes} as a vector of numbers; leave gating out, or choose {body.takes!r}"
        )
    return shape


def _drawn(*shape: int, seed: int) -> Tensor:
    """Fixed random numbers, from a seed of their own."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _moments(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance over the positions of each channel; on CPUs not by Tensor.var, which takes far longer there."""
    if maps.is_cuda:
        variance, mean = torch.var_mean(maps, (2, 3), correction=0)
        return mean, variance
    mean = maps.mean((2, 3))
    return mean, (maps.square().mean((2, 3)) - mean.square()).clamp_min(0)


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
