"""CSV and Parquet files of any size, some rows at a time, as if they were read whole.

A file is looked through once before anything is given: then it is known how many rows there are, of which type each
column is as a whole, and where cells are empty. A table of some rows has the types of the whole file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gated_domains.data.errors import decoding
from gated_domains.data.readers.table_files import (
    PARQUET_SUFFIXES,
    CsvForm,
    arrow_source,
    bare_suffix,
    no_letter,
    odd_row,
    plain_names,
    unpacked,
    without_row_labels,
)

if TYPE_CHECKING:
    import pyarrow as pa

# In the order in which Arrow tries them; text holds everything.
_LADDER = (
    "null",
    "int64",
    "bool",
    "date32[day]",
    "time32[s]",
    "timestamp[s]",
    "timestamp[s, tz=UTC]",
    "timestamp[ns]",
    "timestamp[ns, tz=UTC]",
    "double",
    "string",
)


@dataclass(frozen=True)
class TableBlocks(ABC):
    """A file that was looked through: its columns as they are written, their types, rows, and empty cells."""

    path: Path
    written: tuple[str, ...]
    names: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    rows: int
    empty: Mapping[str, int]
    """Empty cells, by column."""

    def tables(self, most: int) -> Iterator[tuple[int, pa.Table]]:
        """Tables of so many rows, the last of what is left, each with the row that it begins with."""
        import pyarrow as pa

        start = 0
        with decoding(self.path):
            for batches in recut(self._batches(most), most):
                table = pa.Table.from_batches(batches).rename_columns(list(self.names))
                yield start, table
                start += table.num_rows

    @abstractmethod
    def _batches(self, most: int) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow has them, some at a time."""


def look_through(path: Path, *, text: Iterable[str] = ()) -> TableBlocks:
    """The file, known as a whole but not in memory; ``text`` columns of a CSV are kept as they are written."""
    with decoding(path):
        if bare_suffix(path) in PARQUET_SUFFIXES:
            return _ParquetBlocks.looked_through(path)
        return _CsvBlocks.looked_through(path, list(text))


def recut(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[list[pa.RecordBatch]]:
    """The same rows in lists of batches that have ``most`` rows together, but for the last."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while count + batch.num_rows >= most:
            cut = most - count
            yield [*held, batch.slice(0, cut)]
            held, count, batch = [], 0, batch.slice(cut)
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
    if held:
        yield held


@dataclass(frozen=True)
class _CsvBlocks(TableBlocks):
    form: CsvForm

    @classmethod
    def looked_through(cls, path: Path, text: list[str]) -> _CsvBlocks:
        form = CsvForm.found(path, text=text)
        types: Mapping[str, pa.DataType] = {}
        while True:
            seen = _Seen()
            try:
                for batch in _csv_batches(path, form, types=types):
                    seen.add(batch)
                if form.encoding == "utf-8" and seen.has_bytes:
                    raise UnicodeError
            except UnicodeDecodeError as error:
                raise no_letter(path, error) from error
            except ValueError as error:
                if "Expected" in str(error):
                    raise _exactly(path, form, types) from error
                if form.encoding == "utf-8" and (isinstance(error, UnicodeError) or "invalid UTF8" in str(error)):
                    # Letters outside UTF-8, further down than the head.
                    form, types = CsvForm.found(path, text=text, encoding="cp1252"), {}
                    continue
                types = _further_down(path, form, seen.types or types, seen.rows, error)
                continue
            names = plain_names(path, list(seen.types), rows=seen.rows)
            empty = {name: seen.empty[written] for name, written in zip(names, seen.types, strict=True)}
            return cls(path, tuple(seen.types), tuple(names), dict(seen.types), seen.rows, empty, form)

    def _batches(self, most: int) -> Iterator[pa.RecordBatch]:
        return _csv_batches(self.path, self.form, types=self.types)


class _Seen:
    """What is known of the rows so far."""

    def __init__(self) -> None:
        self.rows = 0
        self.types: dict[str, pa.DataType] = {}
        self.empty: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        if not self.types:
            # A name that occurs twice would be one key here: spaces keep both, and ``plain_names`` refuses them.
            names = _distinct(batch.schema.names)
            self.types = dict(zip(names, batch.schema.types, strict=True))
            self.empty = dict.fromkeys(names, 0)
        self.rows += batch.num_rows
        for name, column in zip(self.types, batch.columns, strict=True):
            self.empty[name] += column.null_count

    @property
    def has_bytes(self) -> bool:
        """Whether Arrow, which says nothing of letters that are not UTF-8, gave bytes."""
        from pyarrow import types as kinds

        return any(kinds.is_binary(kind) for kind in self.types.values())


def _distinct(names: Sequence[str]) -> list[str]:
    """Names, each of which is there once: spaces, which are taken off again, tell the same ones apart."""
    return [name + " " * names[:place].count(name) for place, name in enumerate(names)]


def _csv_batches(
    path: Path,
    form: CsvForm,
    *,
    types: Mapping[str, pa.DataType],
    skipped: int = 0,
    threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv as arrow_csv

    with arrow_source(path, form.encoding, opened=unpacked) as source:
        reader = arrow_csv.open_csv(source(), **form.options(threads=threads, types=types, skipped=skipped))
        try:
            any_rows = False
            for batch in reader:
                any_rows = True
                yield batch
            if not any_rows:  # a header alone
                yield _no_rows(reader.schema)
        finally:
            del reader  # it holds the source


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)


def _further_down(
    path: Path, form: CsvForm, types: Mapping[str, pa.DataType], rows: int, error: ValueError
) -> Mapping[str, pa.DataType]:
    """Types that also hold the values after so many rows, which are of others; the fault itself where none would."""
    after = next(_csv_batches(path, form, types={}, skipped=rows), None)
    if after is None or not types:
        raise error

    def converts(name: str, kind: pa.DataType) -> bool:
        try:
            next(_csv_batches(path, form, types={name: kind}, skipped=rows))
        except ValueError:
            return False
        return True

    found = dict(zip(_distinct(after.schema.names), after.schema.types, strict=True))
    higher = raised(types, found, converts)
    if higher == types:
        raise error
    return higher


def _exactly(path: Path, form: CsvForm, types: Mapping[str, pa.DataType]) -> Exception:
    """The fault once more, on one thread: only then is said which row is the odd one."""
    try:
        for _ in _csv_batches(path, form, types=types, threads=False):
            pass
    except ValueError as exact:
        return odd_row(path, exact)
    return RuntimeError(f"{path} changed while it was read")


@dataclass(frozen=True)
class _ParquetBlocks(TableBlocks):
    @classmethod
    def looked_through(cls, path: Path) -> _ParquetBlocks:
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            written = without_row_labels(schema.names)
            names = plain_names(path, written, rows=rows)
            empty = dict.fromkeys(written, 0)
            # Not from the statistics in the file, which another program wrote, and may have left out.
            for batch in file.iter_batches(batch_size=1 << 16, columns=written):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    empty[name] += column.null_count
        types = {name: schema.field(name).type for name in written}
        return cls(path, tuple(written), tuple(names), types, rows, dict(zip(names, empty.values(), strict=True)))

    def _batches(self, most: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=min(most, 1 << 16), columns=list(self.written))


def raised(
    known: Mapping[str, pa.DataType], found: Mapping[str, pa.DataType], converts: Callable[[str, pa.DataType], bool]
) -> dict[str, pa.DataType]:
    """The types ``known`` of rows so far, raised to hold rows that by themselves would be of the types ``found``.

    ``converts(column, type)`` tells whether these rows are of a type; it is asked where the higher of both is the one
    known, and something does not fit all the same: 0 and 1 are ints, then true and false, and 2 is neither any more.
    """
    higher = {name: _higher(kind, found.get(name, kind)) for name, kind in known.items()}
    if higher != known:
        return higher
    odd = [name for name, kind in known.items() if found.get(name, kind) != kind and not converts(name, kind)]
    return {name: _next(kind) if name in odd else kind for name, kind in known.items()}


def _higher(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    return other if _place(other) > _place(one) else one


def _place(kind: pa.DataType) -> int:
    return _LADDER.index(str(kind)) if str(kind) in _LADDER else len(_LADDER) - 1


def _next(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    by_name = {
        "bool": pa.bool_(),
        "date32[day]": pa.date32(),
        "time32[s]": pa.time32("s"),
        "timestamp[s]": pa.timestamp("s"),
        "timestamp[s, tz=UTC]": pa.timestamp("s", "UTC"),
        "timestamp[ns]": pa.timestamp("ns"),
        "timestamp[ns, tz=UTC]": pa.timestamp("ns", "UTC"),
        "double": pa.float64(),
        "string": pa.string(),
    }
    return by_name.get(_LADDER[min(_place(kind) + 1, len(_LADDER) - 1)], pa.string())
