"""A share of a data set, for a first try: of every part of a published division, or of every larger domain, alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError

_FEW = 20  # rows a domain, on average; drawn from each, a share of fewer would be none or all


def a_share_of(dataset: DomainDataset, share: float, *, seed: int = 0) -> DomainDataset:
    """The share of the rows, drawn by chance, in their order; it says so in its notes."""
    if not 0 < share < 1:
        raise DataError(f"--fraction must lie between 0 and 1, got {share}; leave it out for all rows")
    strata = np.zeros(len(dataset), np.int64)
    if dataset.published is not None:
        strata = dataset.published.parts.astype(np.int64)
    elif dataset.domains is not None and len(dataset) >= _FEW * len(np.unique(dataset.domains)):
        strata = dataset.domains if dataset.official_test is None else 2 * dataset.domains + dataset.official_test
    order = np.lexsort((np.random.default_rng(seed).random(len(dataset)), strata))
    _, starts, counts = np.unique(strata[order], return_index=True, return_counts=True)
    kept = [order[start : start + max(1, round(share * n))] for start, n in zip(starts, counts, strict=True)]
    rows = np.sort(np.concatenate(kept))
    part = _without_empty_domains(dataset.take(rows))
    note = f"a share of {share:g} of the data was drawn for a first try: {len(rows):,} of {len(dataset):,} rows"
    return replace(part, notes=(*dataset.notes, note))


def _without_empty_domains(dataset: DomainDataset) -> DomainDataset:
    """The same rows; a domain that has none of them left is none to be held out."""
    if dataset.domains is None:
        return dataset
    present, domains = np.unique(dataset.domains, return_inverse=True)
    names = tuple(dataset.domain_names[place] for place in present)
    return replace(
        dataset, domains=domains.reshape(-1), domain_names=names, scored_whole=dataset.scored_whole & set(names)
    )
