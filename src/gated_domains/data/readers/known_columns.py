"""Columns of a new table by what they held in training, not by what they look like now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gated_domains.common.names import nearest
from gated_domains.data.errors import DataError, RowError, listing
from gated_domains.data.matching import places_of
from gated_domains.data.readers.cells import as_days, as_levels, as_numbers, day, is_date, is_number, number
from gated_domains.data.tables import Categories, Column, Numbers

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class KnownColumn:
    """A column of training: names, with the ``levels`` a model knows, or numbers (``levels`` None), or ``dates``.

    ``words`` stood among its numbers, and counted as missing; so they do now. ``may_be_empty``: whether the model takes
    a row of which nothing is known here.
    """

    name: str
    levels: tuple[str, ...] | None = None
    dates: bool = False
    words: tuple[str, ...] = ()
    may_be_empty: bool = True

    @property
    def emptiness(self) -> str:
        """What is noted where no cell of the column is filled in."""
        return f"column {self.name!r} is empty; all its values count as missing"

    def read(self, values: pa.ChunkedArray, notes: list[str]) -> Column:
        """The column as it stands in a new table."""
        if values.null_count == len(values):
            notes.append(self.emptiness)
        if self.levels is not None:
            return self._names(values, self.levels, notes)
        return Numbers(self.name, self._numbers(values), dates=self.dates)

    def _names(self, values: pa.ChunkedArray, known: tuple[str, ...], notes: list[str]) -> Categories:
        codes, levels = as_levels(values, self.name)
        places = places_of(levels, known)
        new = [level for level, place in zip(levels, places, strict=True) if place < 0]
        if new:
            rows = int(np.isin(codes, [code for code, place in enumerate(places) if place < 0]).sum())
            notes.append(
                f"column {self.name!r} holds names that the model does not know, in {rows:,} of {len(codes):,} rows: "
                f"{listing((level[:40] for level in new), 5)}"
            )
        spelled = tuple(known[place] if place >= 0 else level for level, place in zip(levels, places, strict=True))
        return Categories(self.name, codes, spelled)

    def _numbers(self, values: pa.ChunkedArray) -> NDArray[np.float64]:
        if self.dates and is_date(values.type):
            return as_days(values)
        if values.type == "null" or (is_number(values.type) and not self.dates):
            return as_numbers(values)
        codes, levels = as_levels(values, self.name)
        parsed = np.array([*(day(level) if self.dates else number(level) for level in levels), np.nan])
        odd = np.isnan(parsed) & [*(level not in self.words for level in levels), False]
        if odd[codes].any():
            first = int(np.argmax(odd[codes]))
            found = levels[codes[first]][:40]
            cure = "mend the cell, or empty it if nothing is known" if self.may_be_empty else "mend the cell"

            def say(where: str, count: int, of: int) -> str:
                return (
                    f"column {self.name!r} held {'dates' if self.dates else 'numbers'} in training, but holds "
                    f"{found!r} in {where} (such rows: {count:,}); {cure}"
                )

            raise RowError(say, row=first, count=int(odd[codes].sum()), of=len(codes), column=self.name)
        return np.asarray(parsed[codes], np.float64)


def read_known(table: pa.Table, known: Sequence[KnownColumn], notes: list[str]) -> list[Column]:
    """The known columns of a table, in the order of training; others are let be."""
    names = table.column_names
    absent = [column.name for column in known if column.name not in names]
    if absent:
        spare = [name for name in names if name not in {column.name for column in known}]
        hints = "".join(_hints(absent, spare))
        fill = all(column.may_be_empty for column in known)
        cure = "Where nothing is known of one, add it with empty cells" if fill else "Add them; none may be empty"
        raise DataError(
            f"columns that the model was trained on are missing: {listing(absent)}{hints}; there are "
            f"{listing(names, 60)}. {cure}"
        )
    return [column.read(table.column(column.name), notes) for column in known]


def _hints(absent: Sequence[str], spare: Sequence[str]) -> Iterator[str]:
    for name in absent[:3]:
        near = nearest(name, spare)
        if near is not None:
            yield f"; is {near!r} meant for {name!r}?"
