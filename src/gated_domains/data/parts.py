"""Blocks: data in parts, one after the other, with faults worded as of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from gated_domains.data.errors import RowError
from gated_domains.data.inputs import Features, Images
from gated_domains.data.new_data import NewData

Part = TypeVar("Part")


@dataclass(frozen=True, eq=False)
class Blocks:
    """Data as parts, in order, of ``rows`` together. They can be gone through more than once."""

    rows: int
    parts: Callable[[], Iterator[NewData]]
    in_parts: bool = True
    """Whether they are read one after the other; what is small has been read already."""

    def __iter__(self) -> Iterator[NewData]:
        return self.parts()

    def with_notes(self, notes: tuple[str, ...]) -> Blocks:
        """The same parts, with something to know about all of them."""
        return self.each(lambda part: replace(part, notes=(*notes, *part.notes)))

    def each(self, change: Callable[[NewData], NewData]) -> Blocks:
        """The same parts, each changed."""
        return Blocks(self.rows, lambda: map(change, self), self.in_parts)


def read_parts(
    parts: Iterable[tuple[int, Part]], read: Callable[[int, Part], NewData], *, of: int, columns: Sequence[str] = ()
) -> Iterator[NewData]:
    """What is read of each part and the row it starts at, of so many rows in all.

    After rows that cannot be used, the parts that are left are looked at for more of them: which fault is told, and how
    many rows it counts, is then what it would be had all been read at once, ``columns`` in this order.
    """
    faults: list[RowError] = []
    for start, part in parts:
        try:
            data = read(start, part)
        except RowError as error:
            faults.append(error.among(row=start + error.row, count=error.count, of=of))
            continue
        if not faults:
            yield data
        del data  # not held while the next is read
    if faults:
        raise _first_of(faults, columns)


def in_parts_of(found: Iterable[NewData], rows: int) -> Iterator[NewData]:
    """The same rows in parts of so many, the last of what is left."""
    held: list[NewData] = []
    count = 0
    for data in found:
        start = 0
        while start < len(data):
            end = min(len(data), start + rows - count)
            held.append(data if end - start == len(data) else data.take(np.arange(start, end)))
            count, start = count + end - start, end
            if count == rows:
                yield _joined(held)
                held, count = [], 0
        del data  # not held while the next is read
    if held:
        yield _joined(held)


def _joined(parts: Sequence[NewData]) -> NewData:
    """Several parts of arrays, which have the same domains, as one."""
    if len(parts) == 1:
        return parts[0]
    inputs, domains = parts[0].inputs, [part.domains for part in parts if part.domains is not None]
    assert isinstance(inputs, (Features, Images))
    values = np.concatenate([part.inputs.read(np.arange(len(part))) for part in parts])
    return replace(parts[0], inputs=type(inputs)(values), domains=np.concatenate(domains))


def _first_of(faults: Sequence[RowError], columns: Sequence[str]) -> RowError:
    def rank(fault: RowError) -> tuple[int, int]:
        place = columns.index(fault.column) if fault.column in columns else len(columns)
        return place, fault.stage

    least = min(map(rank, faults))
    same = [fault for fault in faults if rank(fault) == least]
    return same[0].among(row=same[0].row, count=sum(fault.count for fault in same), of=same[0].of)
