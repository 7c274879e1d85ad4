"""What gates may see: the features, the style of early blocks, statistics of the raw image, the raw vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.backbones.bodies import Body
from gated_domains.backbones.finding import evaluating
from gated_domains.backbones.views import ManyLayers
from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.layer.precision import at_least_float32, autocast_off


class GatingView(nn.Module):
    """A map from a batch of inputs to the ``width`` numbers a sample that gates see, before they are standardised."""

    width: int
    sees_raw_input: bool = True
    """A function of the raw input alone, known before the body runs; else it is taken from the body's run."""

    def forward(self, inputs: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]:
        raise NotImplementedError


class RandomFilters(GatingView):
    """Statistics of the raw image: mean and log-std of |response| of fixed random filters, mean and std of channels.

    The filters are drawn once from a seed of their own and saved with the model. Every second position is enough for
    means, and a quarter of the work.
    """

    weight: Tensor

    def __init__(
        self, shape: Sequence[int], *, filters: int = 64, size: int = 5, stride: int = 2, seed: int = 0
    ) -> None:
        super().__init__()
        if len(shape) != 3 or min(shape[1:]) < size:
            raise DataError(
                f"filters of {size} x {size} see images of at least that size, and these samples have shape "
                f"{tuple(shape)}; for tables and vectors gates see the 'input'"
            )
        self.stride = stride
        self.width = 2 * (filters + shape[0])
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(filters, shape[0], size, size, generator=generator)
        drawn = drawn / (shape[0] * size * size) ** 0.5
        self.register_buffer("weight", drawn.contiguous(memory_format=torch.channels_last))

    def forward(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch statistics"]:
        images = inputs.to(self.weight.dtype, memory_format=torch.channels_last)
        with autocast_off(images):
            mean, variance = _moments(F.conv2d(images, self.weight, stride=self.stride).abs_())
            colour, contrast = _moments(images)
        return torch.cat([mean, (variance + 1e-6).log() / 2, colour, contrast.sqrt()], dim=-1)


class RawInput(GatingView):
    """The encoded vector itself."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        if len(shape) != 1:
            raise DataError(
                f"gates see the input where it is a vector, and these samples have shape {tuple(shape)}; "
                "for images there are 'filters' and 'style'"
            )
        (self.width,) = shape

    def forward(self, inputs: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        return at_least_float32(inputs)


class Style(GatingView):
    """Mean and log-std of every channel of the body's early blocks, seen while the body runs."""

    sees_raw_input = False

    def __init__(self, body: Body) -> None:
        super().__init__()
        if not body.early:
            raise DataError(
                f"{type(body).__name__} has no early block that could tell style; let gates see the 'input'"
            )
        self.layers = ManyLayers(body, body.early)
        with torch.no_grad(), evaluating(body):
            body(torch.zeros(2, *body.shape))
        self.width = self.layers.take().shape[-1]

    def forward(self, inputs: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]:
        """What the body's last run showed; the inputs were its inputs."""
        return self.layers.take()


GATINGS: dict[str, Callable[[Body, Sequence[int]], GatingView | None]] = {
    "features": lambda body, shape: None,
    "style": lambda body, shape: Style(body),
    "filters": lambda body, shape: RandomFilters(shape),
    "input": lambda body, shape: RawInput(shape),
}

_DEFAULTS = {"images": "filters", "table": "input", "features": "input"}


def default_gating(kind: str) -> str:
    """The name of the gating view for a kind of inputs: ``images``, ``table`` or ``features``."""
    if kind not in _DEFAULTS:
        raise DataError(f"no gating view is known for inputs of kind {kind!r}{did_you_mean(kind, _DEFAULTS)}")
    return _DEFAULTS[kind]


def _moments(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance over the positions of each channel; not Tensor.var, which takes many times as long on CPUs."""
    mean = maps.mean((2, 3))
    return mean, (maps.square().mean((2, 3)) - mean.square()).clamp_min(0)
