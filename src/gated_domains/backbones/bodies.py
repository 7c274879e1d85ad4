"""Bodies by name: inputs -> features, and the weights that each starts from.

Here are the paper's digits network, a small one for CPUs and one for tables; larger ones are in files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.backbones.backbone import Body, Identity
from gated_domains.backbones.efficientnet_lite import EfficientNetLite0
from gated_domains.backbones.few_channels import FEW, FewChannels
from gated_domains.backbones.gin import GIN
from gated_domains.backbones.published_weights import PUBLISHED, Weights, find_weights, load_filters
from gated_domains.backbones.torchvision_bodies import DenseNet121, ImageNetBody, ResNet18, ResNet50
from gated_domains.backbones.transformer import DistilBERT, DistilBERTClassifier, load_published, published_architecture
from gated_domains.common.validation import at_least_one
from gated_domains.data.errors import DataError, did_you_mean

_SMALLEST_IMAGE = 8  # three halvings leave one position of it
_SMALL_DISTILBERT = {"layers": 2, "heads": 2, "width": 64, "hidden": 128, "positions": 64}
#: The same classes in a few layers, so that a whole comparison runs on a CPU within minutes.
_SHRUNK: dict[str, dict[str, Any]] = {
    "densenet121": {"blocks": (2, 2), "growth": 8, "stem": 16},
    "resnet50": {"blocks": (1, 1), "width": 16},
    "resnet18": {"blocks": (1, 1), "width": 32},
    "efficientnet-lite0": {"stages": 3},
    "distilbert": _SMALL_DISTILBERT,
    "distilbert-classifier": _SMALL_DISTILBERT,
    "gin": {"layers": 2, "width": 64},
}
_DEPTH = {
    "densenet121": "2 dense blocks",
    "resnet50": "2 blocks",
    "resnet18": "2 blocks",
    "efficientnet-lite0": "3 stages",
}


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


def make_body(
    name: str,
    shape: Sequence[int],
    *,
    pretrained: str = "auto",
    shrunk: bool = False,
    about: Mapping[str, Any] | None = None,
) -> Body:
    """The body of this name for samples of this shape, with the weights it starts from; never random unless said.

    ``pretrained`` is "auto" (published weights, where there are any for the body), "true", "false", or a path.
    ``shrunk`` makes a small network of the same classes, always from random weights. ``about`` is what an encoding says
    of its samples besides their shape: of tokens their ``vocabulary`` and ``pad``.
    """
    weights = chosen_weights(name, pretrained, shrunk=shrunk)
    kind, about = BODIES[name], dict(about or {})
    settings: dict[str, Any] = dict(_SHRUNK.get(name, {})) if shrunk else {}
    if issubclass(kind, DistilBERT):
        vocabulary = about.get("vocabulary")
        if weights is not None:
            settings = published_architecture(weights.path.parent, vocabulary=vocabulary)
            body = kind(shape, **settings)
            load_published(body, weights.path.parent)
            return body
        settings |= {key: about[key] for key in ("vocabulary", "pad") if key in about}
        if shrunk:
            settings["positions"] = max(settings["positions"], *shape)
    if issubclass(kind, ImageNetBody) and about.get("standardised"):
        settings["normalise"] = False
    made = kind(shape, **settings)
    if weights is not None:
        load_filters(made, weights)
    return made


def weights_note(name: str, pretrained: str = "auto", shrunk: bool = False) -> str | None:
    """What a table should say of the weights a body starts from; None where it is as everybody expects."""
    weights = chosen_weights(name, pretrained, shrunk=shrunk)
    if name not in _SHRUNK:
        return None
    if shrunk:
        return f"the body {name} is shrunk to {_DEPTH.get(name, '2 layers')} and trained from random weights"
    return f"the body {name} is trained from random weights" if weights is None else weights.note(name)


def weights_digest(name: str, pretrained: str = "auto", shrunk: bool = False) -> str | None:
    """The beginning of the SHA-256 of the file that a body starts from; None where its weights are random."""
    weights = chosen_weights(name, pretrained, shrunk=shrunk)
    return None if weights is None else weights.sha256()[:16]


def chosen_weights(name: str, pretrained: str, *, shrunk: bool) -> Weights | None:
    """The file that a body starts from; None: random weights."""
    if name not in BODIES:
        raise DataError(f"there is no body {name!r}{did_you_mean(name, BODIES)}")
    pretrained = pretrained.lower() if pretrained.lower() in ("auto", "true", "false") else pretrained
    if pretrained == "false" or (shrunk and pretrained == "auto"):
        return None
    if shrunk:
        raise DataError(
            f"a shrunk {name} has no published weights, so pretrained cannot be {pretrained!r}; "
            "leave pretrained out, or leave shrunk out"
        )
    if name in PUBLISHED:
        return find_weights(name, pretrained)
    if pretrained == "auto":
        return None
    raise DataError(
        f"there are no published weights of the body {name}, so pretrained cannot be {pretrained!r}; leave it out"
    )
