"""Which rows are looked at: a few of every domain to be shown, training rows to compare with bases, rows to score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Rows
from gated_domains.data.splits import HoldOut

MOST_SHOWN = 1_200
MOST_DOMAINS = 20
MOST_UNSEEN = 5
"""Unseen domains that are shown where there are more domains than ``MOST_DOMAINS``."""
ALL = "all"
"""What rows are of whose domains nobody knows."""
OF_NO_DOMAIN = -1


class Limits(NamedTuple):
    """How many training rows are compared with bases, and how many rows of each part are scored."""

    compared: int = 20_000
    scored: int = 2_000


class _Domain(NamedTuple):
    name: str
    unseen: bool
    number: int
    """That it has in the data."""
    rows: Rows


@dataclass(frozen=True, eq=False, kw_only=True)
class Sampled:
    """The rows that are looked at as a small data set, and which of them are for what.

    ``origin`` says where its rows lie in the whole; all other rows are rows of ``data``. Sources come first in
    ``domain_names``. ``shown_domains`` and ``compared_domains`` are indices into them, the latter ``OF_NO_DOMAIN`` for
    a row of a source that is not among them.
    """

    data: DomainDataset
    origin: Rows
    domain_names: tuple[str, ...]
    unseen: NDArray[np.bool_]
    shown: Rows
    shown_domains: NDArray[np.int64]
    compared: Rows
    compared_domains: NDArray[np.int64]
    validation: Rows
    held_out: Rows


def sample(dataset: DomainDataset, split: HoldOut, *, limits: Limits | None = None, seed: int = 0) -> Sampled:
    """The same rows whenever the same split is asked for, and never more than the limits however many there are."""
    limits = limits or Limits()
    if not len(split.train):
        raise DataError(f"{dataset.name}: there are no training rows to look at; take a split that has some")
    listed = _listed(dataset, split)
    parts = _balanced([domain.rows for domain in listed], MOST_SHOWN, seed)
    shown = np.concatenate(parts)
    compared = drawn(split.train, limits.compared, seed)
    validation, held_out = (drawn(rows, limits.scored, seed) for rows in (split.validation, split.test))
    origin = np.unique(np.concatenate([shown, compared, validation, held_out]))
    place = np.full(max(1, len(dataset.domain_names)), OF_NO_DOMAIN)
    for index, domain in enumerate(listed):
        if not domain.unseen:
            place[domain.number] = index
    return Sampled(
        data=replace(dataset, published=None).take(origin),  # a sample of rows has no published parts
        origin=origin,
        domain_names=tuple(domain.name for domain in listed),
        unseen=np.array([domain.unseen for domain in listed]),
        shown=np.searchsorted(origin, shown),
        shown_domains=np.repeat(np.arange(len(listed)), [len(part) for part in parts]),
        compared=np.searchsorted(origin, compared),
        compared_domains=place[_domains(dataset)[compared]],
        validation=np.searchsorted(origin, validation),
        held_out=np.searchsorted(origin, held_out),
    )


def drawn(rows: Rows, most: int, seed: int) -> Rows:
    """So many of the rows, by chance but always the same, in order."""
    return rows if len(rows) <= most else np.sort(np.random.default_rng(seed).permutation(rows)[:most])


def whole_groups(labels: NDArray[Any], most: int, rng: np.random.Generator) -> Rows:
    """Rows of whole groups at random, in order: as near to ``most`` as groups come; all rows where they are no more."""
    if len(labels) <= most:
        return np.arange(len(labels))
    _, member, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))
    return np.flatnonzero(np.isin(member, order[: groups_for(sizes[order], most)]))


def groups_for(sizes: NDArray[np.int64], rows: int) -> int:
    """How many groups of these sizes, in this order, have at most so many rows; two at least."""
    return max(2, int(np.searchsorted(sizes.cumsum(), rows, side="right")))


def shares(sizes: Sequence[int], total: int) -> list[int]:
    """How many each may give so that all give alike, ``total`` at most; what a small one lacks others make up for."""
    given = [0] * len(sizes)
    left = total
    for done, place in enumerate(sorted(range(len(sizes)), key=lambda place: sizes[place])):
        given[place] = min(sizes[place], left // (len(sizes) - done))
        left -= given[place]
    return given


def _balanced(rows: Sequence[Rows], total: int, seed: int) -> list[Rows]:
    most = shares([len(own) for own in rows], total)
    return [drawn(own, count, seed + place) for place, (own, count) in enumerate(zip(rows, most, strict=True))]


def _listed(dataset: DomainDataset, split: HoldOut) -> list[_Domain]:
    """The domains that are shown, sources first; the largest where they are too many."""
    sources, unseen = _sizes(dataset, split.train), _sizes(dataset, split.test)
    if np.count_nonzero(sources) + np.count_nonzero(unseen) > MOST_DOMAINS:
        sources, unseen = _largest(sources, MOST_DOMAINS), _largest(unseen, MOST_UNSEEN)
    names, domains = dataset.domain_names or (ALL,), _domains(dataset)
    found = [
        _Domain(names[number], False, int(number), split.train[domains[split.train] == number])
        for number in np.flatnonzero(sources)
    ]
    for number in np.flatnonzero(unseen):
        # A publisher may set rows of the sources aside, too.
        name = f"{names[number]} (held out)" if sources[number] else names[number]
        found.append(_Domain(name, True, int(number), split.test[domains[split.test] == number]))
    return found


def _sizes(dataset: DomainDataset, rows: Rows) -> NDArray[np.int64]:
    return np.bincount(_domains(dataset)[rows], minlength=max(1, len(dataset.domain_names)))


def _largest(sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The sizes of the largest, 0 for all others."""
    kept = np.zeros_like(sizes)
    chosen = np.argsort(-sizes, kind="stable")[:count]
    kept[chosen] = sizes[chosen]
    return kept


def _domains(dataset: DomainDataset) -> NDArray[np.int64]:
    return np.zeros(len(dataset), np.int64) if dataset.domains is None else dataset.domains
