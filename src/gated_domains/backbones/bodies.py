"""Bodies: inputs -> features. The paper's digits network, a small one for CPUs, one for tables, none; all names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.backbones.body import Body
from gated_domains.backbones.efficientnet_lite import EfficientNetLite0
from gated_domains.backbones.few_channels import FEW, FewChannels
from gated_domains.backbones.gin import GIN
from gated_domains.backbones.torchvision_bodies import DenseNet121, ResNet18, ResNet50
from gated_domains.backbones.transformer import DistilBERT, DistilBERTClassifier
from gated_domains.common.numbers import at_least_one
from gated_domains.data.errors import DataError, did_you_mean

__all__ = ["BODIES", "MLP", "Body", "DigitsCNN", "Identity", "SmallCNN", "default_body"]

_SMALLEST_IMAGE = 8  # three halvings leave one position of it


class DigitsCNN(Body):
    """The paper's digits network: three blocks of 64, 64 and 128 filters 5x5, dense 3072 with dropout, dense 2048."""

    takes = "images"
    features = 2048
    early = ("blocks.0", "blocks.1")

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__(shape)
        channels, height, width = _large_enough(self.shape)
        self.blocks = nn.Sequential(*(_block(i, o) for i, o in ((channels, 64), (64, 64), (64, 128))))
        self.dense = nn.Sequential(
            nn.Flatten(),
            nn.Linear(128 * (height // 8) * (width // 8), 3072, bias=False),
            nn.BatchNorm1d(3072),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(3072, 2048, bias=False),
            nn.BatchNorm1d(2048),
            nn.ReLU(),
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch features"]:
        return self.dense(self.blocks(_channels_last(inputs)))


class SmallCNN(Body):
    """A network for CPUs: 16 filters 5x5, 32 and 64 filters 3x3, each with stride 2, then dense 128."""

    takes = "images"
    features = 128
    early = ("blocks.0", "blocks.1")

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__(shape)
        channels, *sides = _large_enough(self.shape)
        height, width = (-(-side // 8) for side in sides)
        kept = (min(height, 4), min(width, 4))
        self.blocks = nn.Sequential(
            # Strides rather than pooling: for the same time on a CPU more epochs, which did better.
            *(
                nn.Sequential(_convolution(i, o, size, stride=2), nn.BatchNorm2d(o), nn.ReLU())
                for i, o, size in ((channels, 16, 5), (16, 32, 3), (32, 64, 3))
            ),
        )
        # Beyond 32 pixels the dense layer would grow with the image.
        self.pool = nn.Identity() if kept == (height, width) else nn.AdaptiveAvgPool2d(kept)
        self.dense = nn.Sequential(
            nn.Flatten(), nn.Linear(64 * math.prod(kept), 128, bias=False), nn.BatchNorm1d(128), nn.ReLU()
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch features"]:
        return self.dense(self.pool(self.blocks(_channels_last(inputs))))


class MLP(Body):
    """Dense blocks for tables and vectors; ``norm=False, dropout=0`` gives each row an output of its own."""

    takes = "vectors"
    early = ("blocks.0",)

    def __init__(
        self, shape: Sequence[int], hidden: Sequence[int] = (128, 64), *, norm: bool = True, dropout: float | int = 0.1
    ) -> None:
        super().__init__(shape)
        if not hidden:
            raise DataError("an MLP has at least one hidden width, got none; the body without any is Identity")
        if not 0 <= dropout < 1:
            raise DataError(f"dropout is a share from 0 to below 1, got {dropout}")
        self._architecture = {"hidden": list(hidden), "norm": norm, "dropout": dropout}
        widths = [*self.shape, *(at_least_one("each hidden width", width) for width in hidden)]
        self.features = widths[-1]
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Linear(i, o, bias=not norm),
                    *([nn.BatchNorm1d(o)] if norm else []),
                    nn.ReLU(),
                    *([nn.Dropout(dropout)] if dropout else []),
                )
                for i, o in pairwise(widths)
            )
        )

    def forward(self, inputs: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch features"]:
        return self.blocks(inputs)

    def architecture(self) -> dict[str, Any]:
        return dict(self._architecture)


class Identity(Body):
    """The vector as it is: for features that some other network made."""

    takes = "vectors"

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__(shape)
        (self.features,) = self.shape

    def forward(self, inputs: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch features"]:
        return inputs


BODIES: dict[str, type[Body]] = {
    "digits": DigitsCNN,
    "small": SmallCNN,
    "mlp": MLP,
    "identity": Identity,
    "densenet121": DenseNet121,
    "resnet50": ResNet50,
    "resnet18": ResNet18,
    "efficientnet-lite0": EfficientNetLite0,
    "distilbert": DistilBERT,
    "distilbert-classifier": DistilBERTClassifier,
    "gin": GIN,
}

_DEFAULTS = {
    "images": "small",
    "bands": "small",
    "table": "mlp",
    "features": "mlp",
    "words": "mlp",
    "bits": "mlp",
    "tokens": "distilbert",
    "graphs": "gin",
}


def default_body(kind: str) -> str:
    """The name of the body for a kind of inputs, such as ``images``, ``table`` or ``tokens``."""
    if kind not in _DEFAULTS:
        raise DataError(f"no body is known for inputs of kind {kind!r}{did_you_mean(kind, _DEFAULTS)}")
    return _DEFAULTS[kind]


def _block(inputs: int, outputs: int) -> nn.Sequential:
    # No bias before a batch norm, which takes every constant away again.
    convolution = _convolution(inputs, outputs, 5)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


def _convolution(inputs: int, outputs: int, size: int, *, stride: int = 1) -> nn.Conv2d:
    kind = FewChannels if inputs < FEW else nn.Conv2d
    return kind(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def _large_enough(shape: tuple[int, ...]) -> tuple[int, ...]:
    if min(shape[1:]) < _SMALLEST_IMAGE:
        raise DataError(
            f"images of {shape[1]} x {shape[2]} pixels are too small for a network that halves them three times; "
            f"enlarge them to {_SMALLEST_IMAGE} x {_SMALLEST_IMAGE} or more"
        )
    return shape


def _channels_last(images: Tensor) -> Tensor:
    # Half as fast again on CPUs, and what tensor cores want.
    return images.contiguous(memory_format=torch.channels_last)
