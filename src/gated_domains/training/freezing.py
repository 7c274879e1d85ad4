"""Frozen: a network that stays as it is while what stands on it is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gated_domains.backbones.backbone import Body


class Frozen(nn.Module):
    """A module that does not move: no gradients, always in evaluation mode, so no dropout and no new statistics.

    ``train()`` on it or on anything around it changes nothing. The wrapped module, itself and no copy, is ``module``.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> Frozen:
        """Stay in evaluation mode."""
        super().train(False)
        return self

    def forward(self, *inputs: Any) -> Any:
        if any(part.training for part in self.module.modules()):  # somebody reached in and called train()
            self.module.eval()
        with torch.no_grad():
            return self.module(*inputs)


def freeze(module: nn.Module) -> Frozen:
    """The module, frozen; one that is already comes back as it is."""
    return module if isinstance(module, Frozen) else Frozen(module)


class FrozenBody(Body):
    """A body that does not move, as fine-tuning stands heads on it."""

    def __init__(self, body: Body) -> None:
        nn.Module.__init__(self)
        self.frozen = freeze(body)
        self.shape, self.features = body.shape, body.features
        self.takes, self.large, self.static = body.takes, body.large, body.static
        self.vocabulary, self.pad, self.norms_by_sample = body.vocabulary, body.pad, body.norms_by_sample
        self.early = tuple(f"frozen.module.{name}" for name in body.early)

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.frozen(inputs)
        return features
