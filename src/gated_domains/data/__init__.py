"""What is learned from: samples with a target and a domain, split so that nothing leaks. Knows no method."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gated_domains.data.batches import DomainBatch, place
    from gated_domains.data.dataset import DomainDataset
    from gated_domains.data.encoding import encoding_from, fit_encoding
    from gated_domains.data.errors import DataError
    from gated_domains.data.labels import Reading
    from gated_domains.data.like import NewData, Schema, read_like, schema_of
    from gated_domains.data.loading import load_data, load_dataset
    from gated_domains.data.named import DATASETS
    from gated_domains.data.sampling import DomainBalanced, DomainBlocks, InOrder, Shared, Shuffled, sampler_for
    from gated_domains.data.splits import HoldOut, all_sources, hold_outs
    from gated_domains.data.synthetic import Mixture

# Imported when first asked for: batches bring torch, which reading and checking data do without.
_HOMES = {
    "DATASETS": "loading",
    "DataError": "errors",
    "DomainBalanced": "sampling",
    "DomainBatch": "batches",
    "DomainBlocks": "sampling",
    "DomainDataset": "dataset",
    "HoldOut": "splits",
    "InOrder": "sampling",
    "Mixture": "synthetic",
    "NewData": "new_data",
    "Reading": "labels",
    "Schema": "dataset",
    "Shared": "sampling",
    "Shuffled": "sampling",
    "all_sources": "splits",
    "encoding_from": "encoding",
    "fit_encoding": "encoding",
    "hold_outs": "splits",
    "load_data": "loading",
    "load_dataset": "loading",
    "place": "batches",
    "read_like": "like",
    "sampler_for": "sampling",
    "schema_of": "dataset",
}

__all__ = [
    "DATASETS",
    "DataError",
    "DomainBalanced",
    "DomainBatch",
    "DomainBlocks",
    "DomainDataset",
    "HoldOut",
    "InOrder",
    "Mixture",
    "NewData",
    "Reading",
    "Schema",
    "Shared",
    "Shuffled",
    "all_sources",
    "encoding_from",
    "fit_encoding",
    "hold_outs",
    "load_data",
    "load_dataset",
    "place",
    "read_like",
    "sampler_for",
    "schema_of",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"gated_domains.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gated_domains.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
