"""What a method says of many rows, as arrays; with several processes each takes its share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch

from gated_domains.backbones.backbone import evaluating
from gated_domains.data.batches import Samples
from gated_domains.data.inputs import Rows
from gated_domains.data.sampling import InOrder, Sampler
from gated_domains.evaluation.scores import Predicted
from gated_domains.methods.method import Method
from gated_domains.training.engine import as_computed, from_all
from gated_domains.training.training_data import LARGE_BATCH, has_large_body

if TYPE_CHECKING:  # whoever predicts with a trained model has none
    from lightning_fabric import Fabric

_BATCH = {"cuda": 4096}  # elsewhere 1,024
_OF_ONE_DOMAIN = 1024  # rows at most where predictions depend on the batch: the same on every device
_ORDER = 0  # the seed of the order in which the rows of a domain are put together


@torch.no_grad()
def predict_rows(method: Method, samples: Samples, rows: Rows, *, fabric: Fabric | None = None) -> Predicted:
    """The predictions of these rows, in eval mode; the method is left in the mode it was in.

    Where a method is ``batchwise``, each batch is of rows of one domain, put together by chance but always alike: files
    are often sorted by class, and the statistics of a batch should be those of the domain. It then has about as many
    rows as the method's ``support_rows``. Rows without a known domain count as one domain. Where it goes ``in_steps``,
    rows come in order, so many at a time.
    """
    if method.batchwise:
        return _predict_by_domain(method, samples, rows, fabric)
    alone = fabric is None or fabric.world_size == 1
    mine = rows if alone or fabric is None else _padded_share(rows, fabric.global_rank, fabric.world_size)
    usual = LARGE_BATCH if has_large_body(method) else _BATCH.get(samples.device.type, 1024)
    at_once = usual if method.in_steps is None else method.in_steps
    joined = _said(method, samples, InOrder(mine, at_once), fabric)
    if not alone and fabric is not None:
        joined = {name: _gathered(value, fabric, len(rows)) for name, value in joined.items()}
    return _as_arrays(joined)


def _predict_by_domain(method: Method, samples: Samples, rows: Rows, fabric: Fabric | None) -> Predicted:
    rank, world = (0, 1) if fabric is None else (fabric.global_rank, fabric.world_size)
    domains = None if samples.domains is None else samples.domains.cpu().numpy()[rows]
    parts = parts_of_one_domain(rows, domains, support=method.support_rows)
    mine = parts[rank::world] or parts[:1]  # a process without a part of its own says what shapes there are
    said = _said(method, samples, _Given([rows[part] for part in mine]), fabric)
    places = torch.from_numpy(np.concatenate(mine))
    joined = {}
    for name, value in said.items():
        whole = value.new_zeros((len(rows), *value.shape[1:]))
        whole[places.to(value.device)] = value
        joined[name] = whole if fabric is None else from_all(fabric, whole)[_owners(parts, world), np.arange(len(rows))]
    return _as_arrays(joined)


def parts_of_one_domain(rows: Rows, domains: Rows | None, *, support: int | None = None) -> list[Rows]:
    """Places in ``rows``, each once, in parts of one domain and of nearly one size; a row is alone only if it must be.

    The rows of a domain fall into as many parts as come closest to ``support`` rows each: exactly that many where it
    divides them; rows left over are spread over the parts, and a domain of fewer rows is one part. Without it, parts
    have 1,024 rows at most. Which rows go together depends on the rows of their domain alone, neither on their order
    nor on other domains.
    """
    domains = np.zeros(len(rows), np.int64) if domains is None else domains
    in_order = np.lexsort((rows, domains))
    found = []
    for own in np.split(in_order, np.flatnonzero(np.diff(domains[in_order])) + 1):
        shuffled = np.random.default_rng(_ORDER).permutation(own)
        found += np.array_split(shuffled, _count_parts(len(own), support))
    return found


def _count_parts(rows: int, support: int | None) -> int:
    if support is None:
        return -(-rows // _OF_ONE_DOMAIN)
    return max(1, min(round(rows / support), rows // 2))


def _owners(parts: Sequence[Rows], world: int) -> Rows:
    """The process that predicts each row."""
    owners = np.empty(sum(map(len, parts)), np.int64)
    for number, part in enumerate(parts):
        owners[part] = number % world
    return owners


class _Given:
    """Batches as they are given."""

    blocks = None

    def __init__(self, order: Sequence[Rows]) -> None:
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def batches(self, epoch: int = 0) -> Iterator[Rows]:
        return iter(self.order)


def _said(method: Method, samples: Samples, sampler: Sampler, fabric: Fabric | None) -> dict[str, torch.Tensor]:
    """What the method says of the rows of a sampler, in its order; by the names of what is there."""
    # Places for all of it at once: thousands of small results between what is freed would leave the memory in shreds.
    count, start = sum(len(batch) for batch in sampler.batches(0)), 0
    joined: dict[str, torch.Tensor] = {}
    with evaluating(method):
        for inputs in samples.input_batches(sampler):
            with nullcontext() if fabric is None else fabric.autocast():
                said = method.predict(inputs if fabric is None else as_computed(inputs, fabric))
            found = {name: value for name, value in said._asdict().items() if value is not None}
            if not joined:
                joined = {
                    name: value.new_empty((count, *value.shape[1:]), dtype=torch.float32)
                    for name, value in found.items()
                }
            end = start + len(said.output)
            for name, whole in joined.items():
                whole[start:end] = found[name]
            start = end
    return joined


def _as_arrays(joined: dict[str, torch.Tensor]) -> Predicted:
    return Predicted(**{name: value.cpu().numpy() for name, value in joined.items()})


def _padded_share(rows: Rows, rank: int, world: int) -> Rows:
    """Every world-th row; rows at the start are repeated, so that all ranks have as many."""
    return np.resize(rows, -(-len(rows) // world) * world)[rank::world]


def _gathered(value: torch.Tensor, fabric: Fabric, rows: int) -> torch.Tensor:
    every = from_all(fabric, value)  # (world, share, ...): row i lies at [i % world, i // world]
    return every.transpose(0, 1).flatten(0, 1)[:rows]
