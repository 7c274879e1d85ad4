"""Cells of a table -> numbers, names, dates; and what a column is, decided on some of its rows and no others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Column, Numbers, Rows, Table
from gated_domains.data.labels import plain
from gated_domains.data.readers.table_files import CODE, CsvForm

if TYPE_CHECKING:
    import pyarrow as pa

_NAME_LETTERS = 1_000
_SMILES = re.compile(r"[A-Za-z0-9@+\-\[\]()=#$:/\\.%*]+")
_IDENTIFIER_ROWS = 20
_TEXT_LETTERS, _TEXT_WORDS = 60, 6
_FEW_ODD = 0.1  # of the cells of a column of numbers
_IDENTIFIER = re.compile(r"(?i:(.*[\s_.-])?id)|.*(Id|ID)")
_ROW_LABEL = re.compile(r"column 0|Unnamed: 0|index")  # pandas writes one before the first column unless told not to
_MOST_EXACT = 2**53  # larger whole numbers have no float64 of their own
_ON_SOURCES = " (decided on the source rows)"


def is_number(kind: pa.DataType) -> bool:
    """Whether cells of this type are numbers; yes and no are 1 and 0."""
    import pyarrow.types as kinds

    return any(test(kind) for test in (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal))


def as_numbers(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers, NaN where a cell is empty."""
    import pyarrow.types as kinds

    if kinds.is_boolean(values.type):
        values = values.cast("int8")
    return np.asarray(values.cast("float64", safe=False).to_numpy(), np.float64)


def is_date(kind: pa.DataType) -> bool:
    """Whether cells of this type are days, with or without a time."""
    import pyarrow.types as kinds

    return bool(kinds.is_temporal(kind) and not kinds.is_time(kind) and not kinds.is_duration(kind))


def as_days(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Days since 1970, NaN where a cell is empty."""
    whole = values.cast("timestamp[us]", safe=False).cast("int64")  # what is finer is let go
    return np.asarray(whole.to_numpy(zero_copy_only=False).astype(np.float64) / 86_400e6, np.float64)


def number(text: str) -> float:
    """The number that a text is, else NaN."""
    try:
        return float(text) if len(text) < 400 else np.nan
    except ValueError:
        return np.nan


def day(text: str) -> float:
    """The day that a text is, counted since 1970, else NaN."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return np.nan
    return (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo and timezone.utc)) / timedelta(days=1)


def as_levels(values: pa.ChunkedArray, name: str) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Names as indices into the different ones; -1 where a cell is empty."""
    import pyarrow.types as kinds

    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if kinds.is_nested(values.type):
        raise DataError(f"column {name!r} holds {values.type} in each cell; one value a cell is needed (--drop {name})")
    raw = values.dictionary_encode().combine_chunks()
    names = raw.dictionary.to_pylist()
    if not kinds.is_string(values.type):
        names = [plain(level) for level in names]
    codes = raw.indices.fill_null(-1).to_numpy().astype(np.int32)
    # In the order of the alphabet, not of appearance: the same data in another order must give the same columns.
    # Not by an array of text, which has as many places for every name as the longest one needs.
    levels = sorted(set(names))
    place = {level: number for number, level in enumerate(levels)}
    return np.array([*(place[name] for name in names), -1], np.int32)[codes], tuple(levels)


def plain_values(values: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """A target or a domain as plain numbers or text; an empty cell is NaN or an empty string."""
    import pyarrow.types as kinds

    if kinds.is_boolean(values.type):
        values = values.cast("string")
    if is_number(values.type):
        kept_whole = values.null_count == 0 and str(values.type).lstrip("u").startswith("int")
        return np.asarray(values.to_numpy()) if kept_whole else as_numbers(values)
    codes, levels = as_levels(values, name)
    longest = max(levels, key=len, default="")
    if len(longest) > _NAME_LETTERS:
        raise DataError(
            f"column {name!r} holds {len(longest):,} letters in one cell ({longest[:40]!r} ...); "
            f"classes and domains have names of at most {_NAME_LETTERS}: is this the right column?"
        )
    return np.array([*levels, ""])[codes]


def kept_values(values: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Metadata as they are; text as objects, for it may be of any length."""
    if is_number(values.type):
        return plain_values(values, name)
    codes, levels = as_levels(values, name)
    return np.array([*levels, ""], dtype=object)[codes]


@dataclass(frozen=True, eq=False)
class Cells:
    """A column before it is decided what it is: ``numbers`` (or ``dates``), or ``codes`` into text ``levels``.

    ``form`` is that of the CSV file whose text it is: fewer rows of it may be numbers or dates throughout. The text of
    other files is text. ``whole`` are integers that float64 cannot represent exactly. ``categorical``: declared as
    categories by the user.
    """

    name: str
    categorical: bool = False
    numbers: NDArray[np.float64] | None = None
    whole: NDArray[np.int64] | None = None
    dates: bool = False
    codes: NDArray[np.int32] | None = None
    levels: tuple[str, ...] = ()
    form: CsvForm | None = None

    @classmethod
    def of(cls, name: str, values: pa.ChunkedArray, *, categorical: bool, form: CsvForm | None) -> Cells:
        """The column of a table, as Arrow found it in all rows."""
        import pyarrow.types as kinds

        if values.type == "null":
            return cls(name, categorical=categorical)
        if not categorical and is_date(values.type):
            return cls(name, numbers=as_days(values), dates=True)
        if not categorical and is_number(values.type):
            return cls(name, numbers=as_numbers(values), whole=_large_numbers(values))
        codes, levels = as_levels(values, name)
        return cls(name, categorical, codes=codes, levels=levels, form=form if kinds.is_string(values.type) else None)

    def take(self, rows: Rows) -> Cells:
        """Some of the cells."""
        return replace(
            self,
            numbers=None if self.numbers is None else self.numbers[rows],
            whole=None if self.whole is None else self.whole[rows],
            codes=None if self.codes is None else self.codes[rows],
        )

    def decide(self, rows: Rows | None = None) -> tuple[Column | None, str | None]:
        """The column as inputs, None where it cannot help on a new domain; with a note where there is one.

        What it is, is decided on ``rows``; cells of others that do not fit count as missing.
        """
        if self.numbers is not None:
            return self._as_numbers(self.numbers, self.whole, rows, dates=self.dates)
        if self.codes is None:
            return None, f"column {self.name!r} is empty and is left out"
        if self.categorical:
            return Categories(self.name, self.codes, self.levels), None
        codes = self.codes if rows is None else self.codes[rows]
        present = np.unique(codes[codes >= 0])
        if rows is not None and self.form is not None:
            typed = self._typed(present, self.form)
            if typed is not None:
                return self._as_numbers(*typed[:2], rows, dates=typed[2])
        mended, note = _mostly_numbers(self.name, self.codes, self.levels, rows)
        if mended is not None:
            return mended, note
        _refuse_text(self.name, codes, [self.levels[code] for code in present])
        if len(codes) >= _IDENTIFIER_ROWS and 2 * len(present) > len(codes):
            return None, (
                f"column {self.name!r} has {len(present):,} different values in {len(codes):,} rows; it is taken for "
                "an identifier and left out"
            )
        return Categories(self.name, self.codes, self.levels), None

    def known_in(self, rows: Rows) -> bool:
        """Whether anything is known of these rows."""
        if self.numbers is not None:
            return not np.isnan(self.numbers[rows]).all()
        return self.codes is not None and bool((self.codes[rows] >= 0).any())

    def _as_numbers(
        self, values: NDArray[np.float64], whole: NDArray[np.int64] | None, rows: Rows | None, *, dates: bool
    ) -> tuple[Column | None, str | None]:
        if dates:
            note = f"column {self.name!r} holds dates; a model sees them as days since 1970"
            return Numbers(self.name, values, dates=True), note
        if _is_identifier(self.name, values, whole, rows):
            return None, (
                f"column {self.name!r} has a new whole number for each row; it is taken for an identifier and left out"
            )
        return Numbers(self.name, values), None

    def _typed(
        self, present: NDArray[np.int32], form: CsvForm
    ) -> tuple[NDArray[np.float64], NDArray[np.int64] | None, bool] | None:
        """The cells as numbers, or dates, where all of the levels that are present are such; None where not."""
        levels = [self.levels[code] for code in present]
        values = form.typed(levels)
        dates = is_date(values.type)
        if any(CODE.fullmatch(level) for level in levels) or not (dates or is_number(values.type)):
            return None
        # Cells of other rows may be anything; an infinite one is not a number either.
        others = (day(level) if dates else number(level.replace(form.decimal_point, ".")) for level in self.levels)
        parsed = np.array([*others, np.nan])
        parsed[~np.isfinite(parsed)] = np.nan
        parsed[present] = as_days(values) if dates else as_numbers(values)
        whole = _large_numbers(values)
        if whole is not None:
            of_level = np.zeros(len(parsed), np.int64)
            of_level[present] = whole
            whole = of_level[self.codes]
        return parsed[self.codes], whole, dates


def _large_numbers(values: pa.ChunkedArray) -> NDArray[np.int64] | None:
    """Whole numbers that no float64 holds exactly; None where there are none of them. An empty cell is 0."""
    if not str(values.type).startswith("int"):
        return None
    whole = np.asarray(values.fill_null(0).to_numpy(), np.int64)
    return whole if (np.abs(whole) > _MOST_EXACT).any() else None


class ReadTable(Table):
    """The table of a file, which keeps its cells: what its columns are can be decided again on fewer rows.

    ``about`` has what was noted of columns, by name.
    """

    def __init__(self, columns: Sequence[Column], cells: Sequence[Cells], about: Mapping[str, str]) -> None:
        super().__init__(columns)
        self.cells, self.about = tuple(cells), dict(about)

    @classmethod
    def of(cls, cells: Sequence[Cells]) -> ReadTable:
        """The table, decided on all rows."""
        decided = {each.name: each.decide() for each in cells}
        about = {name: note for name, (_, note) in decided.items() if note is not None}
        columns = [column for column, _ in decided.values() if column is not None]
        if not columns:
            why = "; ".join(["no column is left to learn from, besides the target and the domain", *about.values()])
            raise DataError(why)
        return cls(columns, cells, about)

    def take(self, rows: Rows) -> ReadTable:
        cells = {each.name: each.take(rows) for each in self.cells}
        before = {each.name: each for each in self.cells}
        columns = [
            _sharing(taken, cells[column.name]) if _shares(column, before[column.name]) else taken
            for column, taken in zip(self.columns, super().take(rows).columns, strict=True)
        ]
        return ReadTable(columns, list(cells.values()), self.about)

    def decided_on(self, rows: Rows) -> ReadTable:
        """The same rows with columns as these rows alone have them; this table itself where that changes nothing."""
        before = {column.name: column for column in self.columns}
        columns: list[Column] = []
        about = dict(self.about)
        for cells in self.cells:
            old = before.get(cells.name)
            new, note = cells.decide(rows) if cells.known_in(rows) else (old, None)
            if _same_kind(old, new):
                new = _with_words_of(old, new)
            else:
                about[cells.name] = (note or f"column {cells.name!r} holds {_kind(new)}") + _ON_SOURCES
            columns += [] if new is None else [new]
        if [*map(id, columns)] == [*map(id, self.columns)]:
            return self
        if not columns:
            raise DataError("; ".join(["no column is left to learn from in the source rows", *about.values()]))
        return ReadTable(columns, self.cells, about)


def _shares(column: Column, cells: Cells) -> bool:
    """Whether a column holds the very array of its cells."""
    return column.values is (cells.numbers if isinstance(column, Numbers) else cells.codes)


def _sharing(column: Column, cells: Cells) -> Column:
    """A column with the array of its cells in place of an equal one, which is then freed."""
    if isinstance(column, Numbers):
        return column if cells.numbers is None else replace(column, values=cells.numbers)
    return column if cells.codes is None else replace(column, values=cells.codes)


def _same_kind(one: Column | None, other: Column | None) -> bool:
    if isinstance(one, Numbers) and isinstance(other, Numbers):
        return one.dates == other.dates
    return type(one) is type(other)


def _with_words_of(old: Column | None, new: Column | None) -> Column | None:
    """The old column; where other words count as missing in the new one, with those."""
    if isinstance(old, Numbers) and isinstance(new, Numbers) and old.words != new.words:
        return replace(old, words=new.words)
    return old


def _kind(column: Column | None) -> str:
    return (
        "dates"
        if isinstance(column, Numbers) and column.dates
        else "numbers"
        if isinstance(column, Numbers)
        else "names"
    )


def _mostly_numbers(
    name: str, codes: NDArray[np.int32], levels: tuple[str, ...], rows: Rows | None
) -> tuple[Numbers | None, str | None]:
    """A column of numbers with a few cells that are none ("unknown", a slip), which count as missing, with a note."""
    values = np.array([*(number(level) for level in levels), np.nan])[codes]
    some = slice(None) if rows is None else rows
    known = codes[some] >= 0
    odd = np.isnan(values[some]) & known
    if any(CODE.fullmatch(levels[code]) for code in np.unique(codes[some][known])):
        return None, None
    if not known.any() or odd.sum() > _FEW_ODD * known.sum():
        return None, None
    words = tuple(levels[code] for code in np.unique(codes[some][odd]))
    if rows is not None:
        values[np.isinf(values) & ~np.isin(np.arange(len(values)), rows)] = np.nan
    note = None
    if words:
        count = int(odd.sum())
        what = "1 cell is not a number" if count == 1 else f"{count:,} cells are not numbers"
        note = (
            f"column {name!r} holds numbers, but {what} (such as {words[0][:40]!r}) and count{'s' * (count == 1)} as "
            f"missing; --categorical {name} treats the column as categories"
        )
    return Numbers(name, values, words=words), note


def _is_identifier(name: str, values: NDArray[np.float64], whole: NDArray[np.int64] | None, rows: Rows | None) -> bool:
    """Whether these are whole numbers that only tell rows apart, by their name or length and by being all different."""
    rows = np.arange(len(values)) if rows is None else rows
    values = values[rows]
    if whole is not None and len(rows) >= _IDENTIFIER_ROWS and (np.abs(whole[rows]) > _MOST_EXACT).all():
        return len(np.unique(whole[rows])) == len(rows)
    by_name = _ROW_LABEL.fullmatch(name) or _IDENTIFIER.fullmatch(name)
    if not by_name or len(values) < 2 or np.isnan(values).any() or (values != np.round(values)).any():
        return False
    if _ROW_LABEL.fullmatch(name):
        return bool((np.diff(values) == np.diff(rows)).all())
    return len(np.unique(values)) == len(values)


def _refuse_text(name: str, codes: NDArray[np.int32], levels: Sequence[str]) -> None:
    """Text and molecules are read by other means than columns of names: say by which."""
    known = max(1, int((codes >= 0).sum()))
    if known < 2 or len(levels) < 2:
        return
    mostly_new = 2 * len(levels) > known
    sample = levels[:: max(1, len(levels) // 500)]
    letters, words = np.mean([len(level) for level in sample]), np.mean([level.count(" ") + 1 for level in sample])
    drop = f"or leave the column out (--drop {name})"
    like_smiles = mostly_new and all(_SMILES.fullmatch(level) for level in sample) and letters > 8
    if (mostly_new and name.casefold() in ("smiles", "smile")) or (
        like_smiles and any("(" in level or "=" in level for level in sample)
    ):
        raise DataError(
            f"column {name!r} holds molecules (SMILES, such as {sample[0][:40]!r}); name it with --smiles {name} to "
            f"learn from them, {drop}"
        )
    if (mostly_new and letters > _TEXT_LETTERS) or (words > _TEXT_WORDS and len(levels) >= _IDENTIFIER_ROWS):
        raise DataError(
            f"column {name!r} holds text (such as {sample[0][:40]!r}); name it with --text {name} to learn from it, "
            f"{drop}"
        )
