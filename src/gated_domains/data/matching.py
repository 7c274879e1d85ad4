"""New data -> what training knew: names of classes and levels however a file writes them, and columns by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.common.validation import nearest
from gated_domains.data.errors import DataError, RowError, did_you_mean, listing, row_name
from gated_domains.data.inputs import Categories, Column, Numbers
from gated_domains.data.labels import as_targets, known_values, plain
from gated_domains.data.readers.cells import as_days, as_levels, as_numbers, day, is_date, is_number, number

if TYPE_CHECKING:
    import pyarrow as pa

_JOINED = " or "  # between the classes that were made one
_CODE = re.compile(r"0\d+")  # 007 is no other way to write 7


def places_of(written: Sequence[str], known: Sequence[str]) -> list[int]:
    """The place of each name among the known ones, -1 where it is none of them.

    A name that is not there as it is written may be there in another form, ``1`` for ``1.0``, ``True`` for ``true``:
    which form a file shows depends on what else stands in its column.
    """
    exact = {name: place for place, name in enumerate(known)}
    by_value: dict[object, int] = {}
    for name, place in exact.items():
        value = _value(name)
        by_value[value] = -1 if value in by_value or value is None else place  # in two forms: two names
    return [exact[name] if name in exact else by_value.get(_value(name), -1) for name in written]


def _value(name: str) -> object:
    """What is the same in every form of a name: a number, or yes and no. None for other names."""
    if name.casefold() in ("true", "false"):
        return name.casefold()
    try:
        return None if _CODE.fullmatch(name) or len(name) > 40 else float(name)
    except ValueError:
        return None


def targets_like(
    values: NDArray[Any],
    class_names: Sequence[str] | None,
    *,
    joined: bool = False,
    what: str = "target",
    places: Sequence[str] | None = None,
) -> NDArray[Any]:
    """Targets of new data as a model knows them: indices into the classes of training, or numbers where it has none.

    ``joined``: training made several classes one, called ``1 or 2``. ``places`` say in an error where a row comes from.
    """
    values = known_values(values, what)
    if class_names is None:
        return _numbers(values, what)
    levels, index = np.unique(values, return_inverse=True)
    written = [plain(level) for level in levels]
    place = np.array(_classes(written, class_names, joined=joined), np.int64)
    unknown = place[index] < 0
    if unknown.any():
        row = int(np.argmax(unknown))
        found = written[index[row]]
        hint = did_you_mean(found, class_names)
        raise RowError(
            lambda where, count, of: (
                f"the {what} of {where} is {found!r}, which training never had (such rows: {count:,}){hint}"
            ),
            row=row,
            count=int(unknown.sum()),
            of=len(unknown),
            column=what,
            name=row_name if places is None else places.__getitem__,
        )
    return place[index]


def _classes(written: Sequence[str], class_names: Sequence[str], *, joined: bool) -> list[int]:
    spellings = {name: place for place, name in enumerate(class_names)}
    if joined:
        parts = {part: place for name, place in spellings.items() for part in name.split(_JOINED)}
        spellings = {**parts, **spellings}
    owners = [*spellings.values(), -1]
    places = [owners[found] for found in places_of(written, list(spellings))]
    if joined:  # a class may itself have " or " in its name
        places = [
            place if place >= 0 else _around(name, class_names) for name, place in zip(written, places, strict=True)
        ]
    return places


def _around(name: str, class_names: Sequence[str]) -> int:
    edged = [f"{_JOINED}{other}{_JOINED}" for other in class_names]
    return next((place for place, other in enumerate(edged) if f"{_JOINED}{name}{_JOINED}" in other), -1)


def _numbers(values: NDArray[Any], what: str) -> NDArray[Any]:
    if values.dtype.kind not in "biuf":
        found = f"the {what} of {row_name(0)} is {plain(values[0])!r}"
        raise DataError(f"{found}, but the model predicts a number; write numbers")
    return as_targets(values, task="regression", what=what)[0]


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
