"""The first convolution of a network for pictures: three channels are too few for what GPUs multiply with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

FEW = 8
"""Numbers of 16 bits that matrix units take in one go: fewer channels are few."""


class FewChannels(nn.Conv2d):
    """``nn.Conv2d`` whose inputs have few channels and need no gradient: on a GPU, patches times one matrix.

    The same weights and the same outputs, but for rounding. A convolution pads every pixel to 8 or 16 channels and
    multiplies with zeros; a patch of 5 x 5 pixels of 3 channels is 75 numbers, of 16 bits padded to 80.
    """

    def forward(
        self, input: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch filters rows columns"]:
        if not input.is_cuda or input.requires_grad or self.in_channels >= FEW or not self._plain:
            return super().forward(input)
        return self.by_patches(input)

    def by_patches(
        self, input: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch filters rows columns"]:
        """The same on any device, by patches."""
        if torch.is_autocast_enabled(input.device.type):
            input = input.to(torch.get_autocast_dtype(input.device.type))
        (rows, columns), (up, left) = self.kernel_size, (int(side) for side in self.padding)
        padded = F.pad(input.permute(0, 2, 3, 1), (0, 0, left, left, up, up))
        patches = padded.unfold(1, rows, self.stride[0]).unfold(2, columns, self.stride[1])
        numbers = self.in_channels * rows * columns
        flat = patches.reshape(*patches.shape[:3], numbers)
        weight = self.weight.reshape(self.out_channels, numbers)
        short = -numbers % FEW
        if short and flat.element_size() == 2:
            flat, weight = F.pad(flat, (0, short)), F.pad(weight, (0, short))
        return F.linear(flat, weight, self.bias).permute(0, 3, 1, 2)

    @property
    def _plain(self) -> bool:
        """Neither dilated nor in groups, and padded with zeros by a number of pixels."""
        padded = not isinstance(self.padding, str) and self.padding_mode == "zeros"
        return padded and self.groups == 1 and set(self.dilation) == {1}
