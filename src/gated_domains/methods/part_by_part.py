"""Steps that go through a batch domain by domain, as those of Fish and ARM-BN do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.methods.method import Method, Terms


def domain_parts(batch: DomainBatch, kind: type[Method]) -> list[DomainBatch]:
    """The batch domain by domain, without domains of a single row, of which batch norm can make nothing."""
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if world > 1 and batch.blocks is None:  # one with fewer parts would leave the others waiting for ever
        raise DataError(
            f"{kind.label} steps through a batch domain by domain, and {world} processes can do so together only where "
            f"batches are made up in blocks of domains; leave sampling out, or set it to {kind.sampling}"
        )
    parts = [part for part in batch.parts() if len(part) > 1]
    if batch.blocks is None:  # blocks come in random order; these are sorted
        parts = [parts[place] for place in torch.randperm(len(parts))]
    if not parts:
        raise DataError(
            f"{kind.label} needs two rows or more of a domain in a batch, and each domain of this one has a single "
            "row; choose a larger batch size, or fewer domains a batch (groups_per_batch)"
        )
    return parts


def predicted_by_part(method: Method, batch: DomainBatch, parts: Callable[[DomainBatch], list[DomainBatch]]) -> Tensor:
    """Predictions for a batch, each of its parts predicted by itself; in the order of the batch."""
    rows = torch.arange(len(batch), device=batch.inputs.device)
    found = parts(replace(batch, targets=rows))
    outputs = torch.cat([method.predict(part.inputs).output for part in found])
    return torch.empty_like(outputs).index_copy_(0, torch.cat([part.targets for part in found]), outputs)


def mean_terms(found: Sequence[Terms]) -> Terms:
    """The terms of the parts on average, as numbers to read."""
    return {name: torch.stack([terms[name].detach() for terms in found]).mean() for name in found[0]}
