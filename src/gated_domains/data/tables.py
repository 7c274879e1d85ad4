"""The columns of a table as inputs: numbers and categories, either of which may be missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, RowError, listing
from gated_domains.data.inputs import Inputs, Rows, digest


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers; NaN where one is missing.

    ``dates``: they stand for days, counted since 1970. ``words`` stood in cells of the column, and count as missing.
    """

    name: str
    values: NDArray[np.float64]
    dates: bool = False
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        infinite = np.isinf(self.values)
        if infinite.any():
            first = int(np.argmax(infinite))
            found = self.values[first]

            def say(where: str, count: int, of: int) -> str:
                return (
                    f"column {self.name!r}, {where}, is {found} (such rows: {count:,}); mend or "
                    f"empty the cell, or leave the column out with --drop {self.name}"
                )

            count = int(infinite.sum())
            raise RowError(say, row=first, count=count, of=len(self.values), column=self.name, stage=1)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where there is no value."""
        return np.isnan(self.values)


@dataclass(frozen=True, eq=False)
class Categories:
    """A column of names, as indices into ``levels``; -1 where one is missing."""

    name: str
    values: NDArray[np.int32]
    levels: tuple[str, ...]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where there is no value."""
        return self.values < 0


Column = Numbers | Categories


def _few(column: Column, rows: Rows) -> Column:
    if isinstance(column, Numbers):
        return replace(column, values=column.values[rows])
    return replace(column, values=column.values[rows])


_DOMAIN_WORDS = (
    "domain|site|hospital|clinic|centre|center|ward|institution|institute|cohort|study|source|dataset|batch|camera|"
    "scanner|device|machine|sensor|station|country|region|state|city|location|customer|client|store|shop|branch|plant|"
    "factory|lab|laboratory|subject|patient|user|environment|env"
)
_DOMAIN_NAME = re.compile(
    rf"(.*[\s_.-])?({_DOMAIN_WORDS})s?([\s_.-]?(id|name|code|no|nr|number|label))?", re.IGNORECASE
)
_ROWS_A_DOMAIN = 5  # on average, at least


def likely_domains(columns: Sequence[Column]) -> dict[str, int]:
    """Columns that may name the domains, and how many values each has.

    The name holds a word such as site, hospital or camera; the values are names or whole numbers, at least two of them
    and at least five rows for each on average.
    """
    found = {}
    for column in columns:
        if _DOMAIN_NAME.fullmatch(column.name) is None:
            continue
        known = column.values[~column.missing]
        if (known != np.round(known)).any():
            continue
        values = len(np.unique(known))
        if values >= 2 and len(known) >= _ROWS_A_DOMAIN * values:
            found[column.name] = values
    return found


class Table(Inputs):
    """Columns of equal length. Equal rows are not taken for copies: two people may well have the same age and sex."""

    kind = "table"
    repeats_are_copies = False

    def __init__(self, columns: Sequence[Column]) -> None:
        if not columns:
            raise DataError("no column is left to learn from, besides the target and the domain")
        self.columns = tuple(columns)
        lengths = {column.name: len(column.values) for column in columns}
        if len(set(lengths.values())) > 1:
            found = listing(f"{name} {length:,}" for name, length in lengths.items())
            raise DataError(f"columns have different lengths: {found}")

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def nbytes(self) -> int:
        return sum(column.values.nbytes for column in self.columns)

    def read(self, rows: Rows) -> NDArray[Any]:
        """Numbers, and categories by their index, side by side; missing ones are NaN and -1."""
        return np.stack([column.values[rows].astype(np.float64) for column in self.columns], axis=1)

    def digests(self) -> NDArray[np.uint64]:
        step = 1 << 14
        parts = (self.read(np.arange(start, min(start + step, len(self)))) for start in range(0, len(self), step))
        return np.fromiter((digest(row) for part in parts for row in part), np.uint64, len(self))

    def take(self, rows: Rows) -> Table:
        return Table([_few(column, rows) for column in self.columns])

    def describe(self) -> str:
        categories = sum(isinstance(column, Categories) for column in self.columns)
        numbers = len(self.columns) - categories
        parts = {"numbers": numbers, "categories": categories}
        return "a table of " + " and ".join(
            f"{count:,} column{'s' * (count > 1)} of {kind}" for kind, count in parts.items() if count
        )
