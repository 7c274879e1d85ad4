"""The columns of a table -> standardised numbers, with every statistic from the training rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.encoding.base import Encoding
from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Features, Inputs, Rows
from gated_domains.data.tables import Categories, Column, Numbers, Table

if TYPE_CHECKING:
    from torch import Tensor

MOST_LEVELS = 200  # the most frequent ones; of the others nothing much could be learned
FURTHEST = 20.0  # standard deviations; a value out of all proportion at a new site must not drown the others
FAR = 3.0  # standard deviations of training, beyond which the median of a column is a matter of units
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class NumberCode:
    """``(x - mean) / scale``, within 20; a missing one is 0, the mean. ``flag``: one more, 1 where it is missing.

    Without a scale the column was constant wherever it was known; then the flag is all there is.
    """

    name: str
    mean: float
    scale: float | None
    flag: bool

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) and (self.flag if self.scale is None else 0 < self.scale < np.inf)):
            raise DataError(f"column {self.name!r}: a mean of {self.mean} and a scale of {self.scale} make no sense")

    @classmethod
    def fit(cls, column: Numbers, rows: Rows) -> NumberCode | None:
        """None where the training rows hold fewer than two different values: there is nothing to tell apart."""
        values, missing = column.values[rows], column.missing[rows]
        known = values[~missing]
        varies = bool(len(known)) and bool(known.min() < known.max())
        if not varies and (missing.all() or not missing.any()):
            return None
        # Scaled first: the square of a large value would overflow.
        size = float(np.abs(known).max()) or 1.0
        mean, scale = float((known / size).mean()) * size, float((known / size).std()) * size
        return cls(column.name, mean, (scale or 1.0) if varies else None, bool(missing.any()))

    @property
    def names(self) -> list[str]:
        """What each encoded number stands for."""
        return [self.name] * (self.scale is not None) + [f"{self.name} is missing"] * self.flag

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"name": self.name, "mean": self.mean, "scale": self.scale, "flag": self.flag}

    def checked(self, column: Column) -> Numbers:
        """The column, refused where it holds something else than in training."""
        if not isinstance(column, Numbers):
            raise DataError(f"column {self.name!r} held numbers in training, and now holds names")
        return column

    def encode(self, column: Column, rows: slice) -> NDArray[np.float32]:
        column = self.checked(column)
        values, missing = column.values[rows], column.missing[rows]
        columns: list[NDArray[Any]] = [missing] if self.flag else []
        if self.scale is not None:
            with np.errstate(over="ignore"):
                standard = np.clip((values - self.mean) / self.scale, -FURTHEST, FURTHEST)
            standard[missing] = 0.0
            columns.insert(0, standard)
        return np.stack(columns, axis=1).astype(np.float32)


@dataclass(frozen=True)
class CategoryCode:
    """One column a level seen in training; a level never seen is 0 in all of them, a missing one has its own."""

    name: str
    levels: tuple[str, ...]
    flag: bool

    @classmethod
    def fit(cls, column: Categories, rows: Rows) -> CategoryCode | None:
        """None where the training rows hold fewer than two different levels."""
        codes = column.values[rows]
        counts = np.bincount(codes[codes >= 0], minlength=len(column.levels))
        seen = np.argsort(-counts, kind="stable")[: min(MOST_LEVELS, int((counts > 0).sum()))]
        flag = bool((codes < 0).any())
        if len(seen) + flag < 2:
            return None
        return cls(column.name, tuple(column.levels[level] for level in np.sort(seen)), flag)

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"name": self.name, "levels": list(self.levels), "flag": self.flag}

    @property
    def names(self) -> list[str]:
        """What each encoded number stands for."""
        return [f"{self.name} = {level}" for level in self.levels] + [f"{self.name} is missing"] * self.flag

    def checked(self, column: Column) -> Categories:
        """The column, refused where it holds something else than in training."""
        if not isinstance(column, Categories):
            raise DataError(f"column {self.name!r} held names in training, and now holds numbers")
        return column

    def places(self, levels: Sequence[str], *, unseen: int) -> list[int]:
        """Where each of these levels stands among those of training."""
        place = {level: number for number, level in enumerate(self.levels)}
        return [place.get(level, unseen) for level in levels]

    def encode(self, column: Column, rows: slice) -> NDArray[np.float32]:
        column = self.checked(column)
        # The last two: missing, and a level never seen.
        missing, unseen = len(self.levels), len(self.levels) + 1
        lookup = np.array([*self.places(column.levels, unseen=unseen), missing])
        hot = np.eye(unseen + 1, dtype=np.float32)[lookup[column.values[rows]]]
        return hot[:, : len(self.levels) + self.flag]


Code = NumberCode | CategoryCode


class TableEncoding(Encoding):
    """Every column by its own code, side by side. Columns that say nothing in the training rows are left out."""

    kind = "table"

    def __init__(self, codes: Sequence[Code], left_out: Sequence[str] = ()) -> None:
        self.codes, self.left_out = tuple(codes), tuple(left_out)

    @classmethod
    def fit(cls, table: Table, rows: Rows) -> TableEncoding:
        """Codes from these rows of the table, and from no others."""
        codes: list[Code] = []
        left_out = []
        for column in table.columns:
            code = NumberCode.fit(column, rows) if isinstance(column, Numbers) else CategoryCode.fit(column, rows)
            if code is None:
                left_out.append(column.name)
            else:
                codes.append(code)
        if not codes:
            raise DataError(f"every column is constant in the training rows: {listing(left_out)}")
        return cls(codes, left_out)

    @property
    def names(self) -> tuple[str, ...]:
        """What each encoded number stands for."""
        return tuple(name for code in self.codes for name in code.names)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.names),)

    def columns_of(self, inputs: Inputs) -> dict[str, Column]:
        """The columns of a table by name, refused where one of training is missing."""
        if not isinstance(inputs, Table):
            raise DataError(f"this encoding was made for a table, got {inputs.describe()}")
        columns = {column.name: column for column in inputs.columns}
        absent = [code.name for code in self.codes if code.name not in columns]
        if absent:
            raise DataError(f"columns seen in training are missing here: {listing(absent)}")
        return columns

    def far_columns(self, inputs: Inputs) -> tuple[str, ...]:
        """Columns of numbers whose median is more than 3 standard deviations from the mean of training, by name."""
        columns, far = self.columns_of(inputs), []
        for code in self.codes:
            if isinstance(code, NumberCode) and code.scale is not None:
                values = code.checked(columns[code.name]).values
                known = values[~np.isnan(values)]
                if len(known) and abs(float(np.median(known)) - code.mean) > FAR * code.scale:
                    far.append(code.name)
        return tuple(far)

    def prepare(self, inputs: Inputs) -> Features:
        columns = self.columns_of(inputs)
        values = np.empty((len(inputs), *self.shape), np.float32)
        for rows in _slices(len(inputs)):
            np.concatenate([code.encode(columns[code.name], rows) for code in self.codes], axis=1, out=values[rows])
        return Features(values)

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.float()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "codes": [code.describe() for code in self.codes], "left_out": list(self.left_out)}

    @classmethod
    def from_description(cls, *, codes: Sequence[Mapping[str, Any]], left_out: Sequence[str]) -> TableEncoding:
        """The encoding that ``describe`` described."""
        return cls([_code(code) for code in codes], left_out)


def _code(fields: Mapping[str, Any]) -> Code:
    if "levels" in fields:
        return CategoryCode(fields["name"], tuple(fields["levels"]), fields["flag"])
    return NumberCode(**fields)


def _slices(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + _ROWS_AT_ONCE, rows)) for start in range(0, rows, _ROWS_AT_ONCE))
