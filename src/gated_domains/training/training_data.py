"""What a training reads, and modules that it leaves as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gated_domains.backbones.bodies import Body
from gated_domains.data.batches import Samples
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.inputs import Rows
from gated_domains.data.sampling import InOrder, Shuffled

LOOKED_AT = 20_000  # training rows that a method looks at between epochs


LOOK_BATCH = 512


LARGE_LOOKED_AT, LARGE_BATCH = 2_048, 128  # the same where a large body may have to run for it


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingData:
    """What is trained on, and the rows that select an epoch. No others are read.

    The rows held out are never among ``train``, and among ``validation`` for the oracle alone.
    """

    dataset: DomainDataset
    samples: Samples
    train: Rows
    validation: Rows


def looks(material: TrainingData, seed: int, *, large: bool = False) -> Iterator[Tensor]:
    """Training inputs for a method to look at: all, or as many as are enough, in random order."""
    rows = look_rows(material, seed, large=large)
    return material.samples.input_batches(InOrder(rows, LARGE_BATCH if large else LOOK_BATCH))


def look_rows(material: TrainingData, seed: int, *, large: bool = False) -> Rows:
    """Row numbers of the training inputs that ``looks`` yields."""
    order = Shuffled(material.train, LOOK_BATCH, seed=seed, drop_last=False)
    return np.concatenate(list(order.batches(0)))[: LARGE_LOOKED_AT if large else LOOKED_AT]


def has_large_body(method: nn.Module) -> bool:
    """Whether a body in it is so large that few samples at a time must do."""
    return any(isinstance(part, Body) and part.large for part in method.modules())


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
