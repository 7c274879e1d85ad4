"""Groups: what stands for the domains in training and scoring, where that is not the domains themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.data.inputs import Rows

DOMAIN, CLASS = "domain", "class"
_MOST_GROUPS = 0.5  # as a share of the rows


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups that some rows fall into. ``index`` is that of every row of the data set, -1 for one of no group."""

    names: tuple[str, ...]
    index: Rows
    sizes: tuple[int, ...]
    """How many of the chosen rows each has, always one at least."""

    def __len__(self) -> int:
        return len(self.names)


def groups_among(dataset: DomainDataset, rows: Rows, by: Sequence[str] = ()) -> Groups | None:
    """The groups of these rows by their domains, or by columns: of the metadata, ``domain``, ``class``; None without.

    Numbers count up from 0 over the groups that these rows have: a domain held out has none.
    """
    if not by and dataset.domains is None:
        return None
    coded = [_coded(dataset, name) for name in (by or (DOMAIN,))]
    values, sizes = [known for known, _ in coded], [len(known) for known, _ in coded]
    joint = np.asarray(np.ravel_multi_index([codes for _, codes in coded], sizes))
    present, counts = np.unique(joint[rows], return_counts=True)
    if by and len(present) > max(2, _MOST_GROUPS * len(rows)):
        raise DataError(
            f"{listing(by)} make {len(present):,} groups of {len(rows):,} rows: almost every row is one of its own; "
            "name columns of fewer values (--group-by)"
        )
    place = np.searchsorted(present, joint).clip(max=len(present) - 1)
    index = np.where(present[place] == joint, place, -1).astype(np.int64)
    parts = np.unravel_index(present, sizes)
    texts = [[str(known[code]) for code in part] for known, part in zip(values, parts, strict=True)]
    return Groups(tuple(", ".join(words) for words in zip(*texts, strict=True)), index, tuple(counts.tolist()))


def _coded(dataset: DomainDataset, name: str) -> tuple[Sequence[Any] | NDArray[Any], Rows]:
    """The values of a column, and which of them each row has."""
    if name == DOMAIN:
        if dataset.domains is None:
            raise DataError(f"{dataset.name} has no domains to group by; name the column that holds them (--domain)")
        return dataset.domain_names, dataset.domains
    if name == CLASS:
        if dataset.class_names is None:
            here = "labels are" if dataset.task == "labels" else "a number is"
            raise DataError(f"{dataset.name} has no classes to group by: {here} predicted")
        return dataset.class_names, dataset.targets
    if name not in dataset.metadata:
        known = [DOMAIN, CLASS, *dataset.metadata]
        raise DataError(
            f"{dataset.name} has no column {name!r} to group by{did_you_mean(name, known)}; "
            "a column of a table is kept with --metadata"
        )
    values, codes = np.unique(np.asarray(dataset.metadata[name]).astype(str), return_inverse=True)
    return values, codes.reshape(-1)
