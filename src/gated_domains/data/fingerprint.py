"""A short text that stands for a data set: what was made from other data must never be taken for what is needed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.inputs import Inputs
from gated_domains.data.tables import Categories, Table
from gated_domains.data.text.inputs import Text


def fingerprint(dataset: DomainDataset, digests: NDArray[np.uint64] | None = None) -> str:
    """Thirty-two hexadecimal digits, equal for equal data, in every process and wherever the data lie.

    They change with any input, target, class, domain, test row set aside, or group that is kept together; not with the
    data set's name, its notes, or metadata that nothing depends on. ``digests`` are those of its inputs, where they are
    known already.
    """
    hashed = hashlib.blake2b(digest_size=16)
    together = dataset.keep_together
    groups = None if together is None else dataset.metadata.get(together)
    words = {
        "inputs": _form(dataset.inputs),
        "class_names": dataset.class_names,
        "domain_names": dataset.domain_names,
        "scored_whole": sorted(dataset.scored_whole),
        "keep_together": together,
        "groups": None if groups is None else groups.tolist(),
    }
    if dataset.label_names is not None:
        words["label_names"] = dataset.label_names
    if dataset.published is not None:
        published = dataset.published
        words["published"] = [published.part_names, published.metric, published.statistic]
        words["published groups"] = [grouping.names for grouping in published.groupings]
    arrays: dict[str, NDArray[Any] | None] = {
        "samples": dataset.inputs.digests() if digests is None else digests,
        "targets": dataset.targets.astype(np.float64 if dataset.class_names is None else np.int64),
        "domains": None if dataset.domains is None else dataset.domains.astype(np.int64),
        "official_test": dataset.official_test,
    }
    if dataset.published is not None:
        arrays["parts"] = dataset.published.parts
        for number, grouping in enumerate(dataset.published.groupings):
            arrays[f"grouping {number}"] = grouping.index
    _feed(hashed, json.dumps(words, default=str).encode())
    for name, values in arrays.items():
        _feed(hashed, name.encode())
        _feed(hashed, b"none" if values is None else _bytes(values))
    return hashed.hexdigest()


def _form(inputs: Inputs) -> Any:
    """What the digests of samples do not tell: their shape; of a table, what the numbers in its columns stand for."""
    if isinstance(inputs, Table):
        return [
            [column.name, type(column).__name__, column.levels if isinstance(column, Categories) else None]
            for column in inputs.columns
        ]
    if isinstance(inputs, Text):
        return inputs.form()
    if inputs.ragged:
        return [inputs.kind]
    first = inputs.read(np.arange(1))  # files are digested as they are, whatever size they are fitted to
    return [inputs.kind, first.shape[1:], first.dtype.name]


def _bytes(values: NDArray[Any]) -> bytes:
    """The same on every machine, whichever end of a number it begins with."""
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()


def _feed(hashed: hashlib.blake2b, content: bytes) -> None:
    """The length first, so that no part can pass for the end of another."""
    hashed.update(len(content).to_bytes(8, "little"))
    hashed.update(content)
