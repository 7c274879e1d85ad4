"""EfficientNet-Lite0 (Tan and Le, 2019; Lite variant, 2020): a small network for photographs, with ImageNet weights."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.backbones.torchvision_bodies import ImageNetBody
from gated_domains.data.errors import DataError

# Of each stage: expansion, channels, blocks, stride, kernel size.
_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
_STEM, _HEAD = 32, 1280
_EARLY = slice(1, 3)  # the stages at a quarter and an eighth of the image's side, as the early ones of a ResNet


class EfficientNetLite0(ImageNetBody):
    """EfficientNet-Lite0: inverted residual blocks with ReLU6 and without squeeze-and-excitation, 1280 features.

    Layers have the names of the published weights. Neither dropout nor drop-connect is applied.

    Parameters
    ----------
    shape
        Channels, height and width of the images; any height and width.
    stages
        How many of the seven stages to build; fewer make a smaller network for tests.
    normalise
        Whether images of three channels are scaled from [-1, 1] to ``(pixel - 127) / 128``.
    """

    mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    first, last = "_conv_stem", "_fc"
    features = _HEAD

    def __init__(self, shape: Sequence[int], *, stages: int = len(_STAGES), normalise: bool = True) -> None:
        super().__init__(shape, normalise=normalise)
        if not 1 <= stages <= len(_STAGES):
            raise DataError(f"EfficientNet-Lite0 has 1 to {len(_STAGES)} stages, got {stages}")
        self._architecture = {"stages": stages, "normalise": normalise}
        blocks, channels, last_of_stage = [], _STEM, []
        for expansion, width, repeats, stride, kernel in _STAGES[:stages]:
            for repeat in range(repeats):
                blocks.append(InvertedResidual(channels, width, expansion, stride if repeat == 0 else 1, kernel))
                channels = width
            last_of_stage.append(f"network._blocks.{len(blocks) - 1}")
        self.early = tuple(last_of_stage[_EARLY])
        network = nn.ModuleDict(
            {
                "_conv_stem": SameConv2d(self.shape[0], _STEM, 3, stride=2, bias=False),
                "_bn0": _batch_norm(_STEM),
                "_relu0": nn.ReLU6(inplace=True),
                "_blocks": nn.ModuleList(blocks),
                "_conv_head": nn.Conv2d(channels, _HEAD, 1, bias=False),
                "_bn1": _batch_norm(_HEAD),
                "_relu1": nn.ReLU6(inplace=True),
            }
        )
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def parts(self) -> list[nn.Module]:
        net: Any = self.network
        return [net._conv_stem, net._bn0, net._relu0, *net._blocks, net._conv_head, net._bn1, net._relu1]

    def architecture(self) -> dict[str, Any]:
        return dict(self._architecture)


class SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow's "SAME": ``ceil(side / stride)`` outputs a side, odd padding at the end.

    ``padding = max((ceil(side / stride) - 1) * stride + kernel - side, 0)``, of which the smaller half comes first.
    """

    def forward(self, input: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs h w"]:
        height, width = (
            max((-(-side // stride) - 1) * stride + kernel - side, 0)
            for side, stride, kernel in zip(input.shape[2:], self.stride, self.kernel_size, strict=True)
        )
        if height % 2 or width % 2:
            input = F.pad(input, (width // 2, width - width // 2, height // 2, height - height // 2))
            height = width = 0
        return F.conv2d(input, self.weight, self.bias, self.stride, (height // 2, width // 2), groups=self.groups)


class InvertedResidual(nn.Sequential):
    """Expand by a 1x1 convolution, filter each channel, project linearly; added to the input where shapes agree."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, kernel: int) -> None:
        width = inputs * expansion
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        if expansion != 1:
            layers["_expand_conv"] = nn.Conv2d(inputs, width, 1, bias=False)
            layers["_bn0"] = _batch_norm(width)
            layers["_relu0"] = nn.ReLU6(inplace=True)
        layers["_depthwise_conv"] = SameConv2d(width, width, kernel, stride=stride, groups=width, bias=False)
        layers["_bn1"] = _batch_norm(width)
        layers["_relu1"] = nn.ReLU6(inplace=True)
        layers["_project_conv"] = nn.Conv2d(width, outputs, 1, bias=False)
        layers["_bn2"] = _batch_norm(outputs)
        super().__init__(layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, input: Float[Tensor, "batch inputs height width"]) -> Float[Tensor, "batch outputs h w"]:
        found: Tensor = super().forward(input)  # type: ignore[no-untyped-call]
        return input + found if self.residual else found


def _batch_norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)  # TensorFlow's momentum 0.99
