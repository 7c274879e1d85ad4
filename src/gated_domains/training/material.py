"""Material: what a training reads, and the rows that a method looks at between epochs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from gated_domains.backbones.backbone import Body
from gated_domains.data.batches import Samples
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.inputs import Rows
from gated_domains.data.sampling import InOrder, Shuffled

LOOKED_AT = 20_000  # training rows that a method looks at between epochs
LOOK_BATCH = 512
LARGE_LOOKED_AT, LARGE_BATCH = 2_048, 128  # the same where a large body may have to run for it


@dataclass(frozen=True, eq=False, kw_only=True)
class Material:
    """What is trained on, and the rows that select an epoch. No others are read.

    The rows held out are never among ``train``, and among ``validation`` for the oracle alone.
    """

    dataset: DomainDataset
    samples: Samples
    train: Rows
    validation: Rows


def looks(material: Material, seed: int, *, large: bool = False) -> Iterator[Tensor]:
    """Training inputs for a method to look at: all, or as many as are enough, in random order."""
    rows = look_rows(material, seed, large=large)
    return material.samples.input_batches(InOrder(rows, LARGE_BATCH if large else LOOK_BATCH))


def look_rows(material: Material, seed: int, *, large: bool = False) -> Rows:
    """Row numbers of the training inputs that ``looks`` yields."""
    order = Shuffled(material.train, LOOK_BATCH, seed=seed, drop_last=False)
    return np.concatenate(list(order.batches(0)))[: LARGE_LOOKED_AT if large else LOOKED_AT]


def has_large_body(method: nn.Module) -> bool:
    """Whether a body in it is so large that few samples at a time must do."""
    return any(isinstance(part, Body) and part.large for part in method.modules())
