"""What gates see of rows, and how far each row is from each basis; batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.backbones.backbone import Backbone, evaluating
from gated_domains.data.batches import Samples
from gated_domains.data.inputs import Rows
from gated_domains.data.sampling import InOrder
from gated_domains.layer.gates import Weighed
from gated_domains.methods.gdu import GDU
from gated_domains.training.training_data import LARGE_BATCH, LOOK_BATCH, has_large_body


class Compared(NamedTuple):
    """Rows against the bases in use: squared distances in the kernel's space, and the weight of each basis."""

    distances: Float[Tensor, "rows bases"]
    beta: Float[Tensor, "rows bases"]


def bases_of(method: GDU) -> Float[Tensor, "bases size gating"]:
    """The bases in use, as numbers."""
    return method.units.active_bases.detach()


@torch.no_grad()
def view(method: GDU, samples: Samples, rows: Rows) -> Float[Tensor, "rows gating"]:
    """What gates see of rows."""
    with evaluating(method):
        return torch.cat(list(_looks(method, samples, rows)))


@torch.no_grad()
def compare(method: GDU, samples: Samples, rows: Rows) -> Compared:
    """Every row by itself against the bases, as in training, also where predictions are gated by batch."""
    used = method.units.active
    parts = []
    with evaluating(method):
        for looked in _looks(method, samples, rows):
            weighed = method.units.weigh(looked)
            parts.append(Compared(squared_distances_to_bases(weighed)[:, used], weighed.beta[:, used]))
    return Compared(*(torch.cat(values) for values in zip(*parts, strict=True)))


def squared_distances_to_bases(weighed: Weighed) -> Float[Tensor, "rows bases"]:
    """``||phi(x) - mu_j||^2 = k(x, x) - 2 <phi(x), mu_j> + ||mu_j||^2``."""
    products = weighed.products
    return products.self_product[:, None] - 2 * products.cross + products.norms


def _looks(method: GDU, samples: Samples, rows: Rows) -> Iterator[Tensor]:
    at_once = LARGE_BATCH if has_large_body(method) else LOOK_BATCH
    backbone = cast(Backbone, method.backbone)
    return (backbone.look(inputs) for inputs in samples.input_batches(InOrder(rows, at_once)))
