"""What a method says of many rows, as arrays; with several processes each takes its share."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from gated_domains.backbones.finding import evaluating
from gated_domains.data.batches import Samples
from gated_domains.data.inputs import Rows
from gated_domains.data.sampling import InOrder
from gated_domains.methods.method import Method
from gated_domains.methods.prediction import Prediction
from gated_domains.training.engine import as_computed
from gated_domains.training.processes import from_all

_BATCH = {"cuda": 4096}  # elsewhere 1,024


@dataclass(frozen=True)
class Predicted:
    """Predictions of rows, in their order."""

    output: NDArray[Any]
    beta: NDArray[Any] | None = None
    residual: NDArray[Any] | None = None
    coverage: NDArray[Any] | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is there, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@torch.no_grad()
def predict_rows(method: Method, samples: Samples, rows: Rows, *, fabric: Fabric | None = None) -> Predicted:
    """The predictions of these rows, in eval mode; the method is left in the mode it was in."""
    alone = fabric is None or fabric.world_size == 1
    mine = rows if alone or fabric is None else _padded_share(rows, fabric.global_rank, fabric.world_size)
    parts: list[Prediction] = []
    batch_size = _BATCH.get(samples.device.type, 1024)
    with evaluating(method):
        for inputs in samples.input_batches(InOrder(mine, batch_size)):
            with nullcontext() if fabric is None else fabric.autocast():
                parts.append(method.predict(inputs if fabric is None else as_computed(inputs, fabric)))
    joined = {name: _joined(parts, name) for name in Prediction._fields}
    if not alone and fabric is not None:
        joined = {
            name: None if value is None else _gathered(value, fabric, len(rows)) for name, value in joined.items()
        }
    arrays = {name: value.cpu().numpy() for name, value in joined.items() if value is not None}
    return Predicted(**arrays)


def _joined(parts: list[Prediction], name: str) -> torch.Tensor | None:
    values = [getattr(part, name) for part in parts]
    return None if values[0] is None else torch.cat(values).float()


def _padded_share(rows: Rows, rank: int, world: int) -> Rows:
    """Every world-th row; rows at the start are repeated, so that all ranks have as many."""
    return np.resize(rows, -(-len(rows) // world) * world)[rank::world]


def _gathered(value: torch.Tensor, fabric: Fabric, rows: int) -> torch.Tensor:
    every = from_all(fabric, value)  # (world, share, ...): row i lies at [i % world, i // world]
    return every.transpose(0, 1).flatten(0, 1)[:rows]
