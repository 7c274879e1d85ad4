"""The networks that WILDS takes for images, by torchvision: DenseNet-121, ResNet-50, ResNet-18; for any channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.backbones.backbone import Body
from gated_domains.backbones.checkpointing import checkpointed
from gated_domains.common.validation import at_least_one
from gated_domains.data.errors import DataError
from gated_domains.torchvision_operators import let_torchvision_import


class ImageNetBody(Body):
    """A network for ImageNet without its last layer, as ``network``, so that its weights have their usual names.

    Images of three channels come as -1 to 1 and are normalised as ImageNet's were; those of any other number of
    channels (bands), and with ``normalise=False`` all, are standardised already and are taken as they are. Random
    weights are initialised as the network's authors do.
    """

    takes = "images"
    large = True
    #: The first convolution and the layer that is left out, by their names in the network.
    first: ClassVar[str]
    last: ClassVar[str]
    #: Of the colours from 0 to 1 that the published weights were trained with.
    mean: ClassVar[tuple[float, ...]] = (0.485, 0.456, 0.406)
    std: ClassVar[tuple[float, ...]] = (0.229, 0.224, 0.225)

    shift: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int], *, normalise: bool = True) -> None:
        super().__init__(shape)
        self.checkpoints = False
        self.normalise = normalise
        colours = normalise and self.shape[0] == len(self.mean)
        mean, std = torch.tensor((self.mean, self.std) if colours else ((0.5,), (0.5,))).reshape(2, -1, 1, 1)
        self.register_buffer("scale", 0.5 / std, persistent=False)
        self.register_buffer("shift", (0.5 - mean) / std, persistent=False)

    def forward(self, inputs: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch features"]:
        # Channels last: half as fast again on CPUs, and what tensor cores want.
        maps = torch.addcmul(self.shift, inputs, self.scale).contiguous(memory_format=torch.channels_last)
        again = self.checkpoints and torch.is_grad_enabled()
        for part in self.parts():
            # Single layers keep their input anyway.
            stage = isinstance(part, nn.Sequential | nn.ModuleDict)
            maps = checkpointed(part, maps) if again and stage else part(maps)
        return maps.mean((2, 3))

    def parts(self) -> list[nn.Module]:
        """The network from its first layer to its last map."""
        raise NotImplementedError

    def checkpoint_activations(self, on: bool) -> None:
        self.checkpoints = on
        self.static = not on  # random numbers are put back, which no graph can record

    def _take(self, network: nn.Module) -> None:
        """Make the network this body's: with its channels, without its last layer."""
        if self.shape[0] != len(self.mean):
            parent, _, name = self.first.rpartition(".")
            old = network.get_submodule(self.first)
            assert isinstance(old, nn.Conv2d)
            setattr(network.get_submodule(parent), name, _first_layer(self.shape[0], old))
        setattr(network, self.last, nn.Identity())
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class ResNet50(ImageNetBody):
    """ResNet-50 (He et al., 2016): bottlenecks 3, 4, 6 and 3 deep, 2048 features."""

    first, last = "conv1", "fc"
    bottleneck: ClassVar[bool] = True

    def __init__(
        self, shape: Sequence[int], *, blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64, normalise: bool = True
    ) -> None:
        super().__init__(shape, normalise=normalise)
        self._architecture = {"blocks": list(blocks), "width": width, "normalise": normalise}
        network = _resnet(self.bottleneck, blocks, width)
        self.features = network.inplanes
        self.stages = len(blocks)
        self.early = tuple(f"network.layer{stage + 1}" for stage in range(min(2, self.stages)))
        self._take(network)

    def parts(self) -> list[nn.Module]:
        net: Any = self.network
        return [
            net.conv1,
            net.bn1,
            net.relu,
            net.maxpool,
            *(net.get_submodule(f"layer{i + 1}") for i in range(self.stages)),
        ]

    def architecture(self) -> dict[str, Any]:
        return dict(self._architecture)


class ResNet18(ResNet50):
    """ResNet-18 (He et al., 2016): blocks of two convolutions, 2, 2, 2 and 2 deep, 512 features."""

    bottleneck = False

    def __init__(
        self, shape: Sequence[int], *, blocks: Sequence[int] = (2, 2, 2, 2), width: int = 64, normalise: bool = True
    ) -> None:
        super().__init__(shape, blocks=blocks, width=width, normalise=normalise)


class DenseNet121(ImageNetBody):
    """DenseNet-121 (Huang et al., 2017): dense blocks of 6, 12, 24 and 16 layers, 1024 features."""

    first, last = "features.conv0", "classifier"

    def __init__(
        self,
        shape: Sequence[int],
        *,
        blocks: Sequence[int] = (6, 12, 24, 16),
        growth: int = 32,
        stem: int = 64,
        normalise: bool = True,
    ) -> None:
        super().__init__(shape, normalise=normalise)
        least = 4 << (len(blocks) - 1)
        if min(-(-side // 4) * 4 for side in self.shape[1:]) < least:
            raise DataError(
                f"images of {self.shape[1]} x {self.shape[2]} pixels are too small for a DenseNet of {len(blocks)} "
                f"blocks, which halves them {len(blocks) + 1} times; enlarge them to {least} x {least} or more"
            )
        self._architecture = {"blocks": list(blocks), "growth": growth, "stem": stem, "normalise": normalise}
        network = _torchvision().DenseNet(growth_rate=growth, block_config=tuple(blocks), num_init_features=stem)
        self.features = network.classifier.in_features
        self.relu = nn.ReLU(inplace=True)
        self.early = tuple(f"network.features.transition{i + 1}" for i in range(min(2, len(blocks) - 1)))
        self._take(network)

    def parts(self) -> list[nn.Module]:
        net: Any = self.network
        return [*net.features, self.relu]

    def architecture(self) -> dict[str, Any]:
        return dict(self._architecture)


def widened_filters(weight: Float[Tensor, "filters 3 h w"], channels: int) -> Float[Tensor, "filters channels h w"]:
    """Filters of colours for other channels: their mean over colours, for each channel, times 3 / channels.

    An image whose channels are all alike is answered as one of three such colours was.
    """
    mean = weight.mean(1, keepdim=True)
    return (mean * (weight.shape[1] / channels)).expand(-1, channels, -1, -1).contiguous()


def _first_layer(channels: int, old: nn.Conv2d) -> nn.Conv2d:
    sizes = {"kernel_size": old.kernel_size, "stride": old.stride, "padding": old.padding}
    layer = nn.Conv2d(channels, old.out_channels, bias=False, **sizes)  # type: ignore[arg-type]
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def _resnet(bottleneck: bool, blocks: Sequence[int], width: int) -> Any:
    """torchvision's network; a narrower or shorter one is made of the same blocks."""
    resnet = _torchvision().resnet
    kind = resnet.Bottleneck if bottleneck else resnet.BasicBlock
    stages = [at_least_one("blocks of a stage", count) for count in blocks]
    if len(stages) == 4 and width == 64:
        return resnet.ResNet(kind, stages)
    if not 1 <= len(stages) <= 4:
        raise DataError(f"a ResNet has 1 to 4 stages, got {len(stages)}")
    network = resnet.ResNet(kind, [1, 1, 1, 1])
    network.inplanes = at_least_one("width", width)
    network.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    network.bn1 = nn.BatchNorm2d(width)
    for i in range(4):
        made = (
            network._make_layer(kind, width << i, stages[i], stride=1 if i == 0 else 2)
            if i < len(stages)
            else nn.Identity()
        )
        setattr(network, f"layer{i + 1}", made)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


def _torchvision() -> Any:
    let_torchvision_import()
    try:
        import torchvision
    except ImportError as error:
        raise DataError(
            "the bodies densenet121, resnet50 and resnet18 stand on torchvision, which is not installed: "
            "pip install 'gated-domains[wilds]'; or choose the body small"
        ) from error
    return torchvision.models
