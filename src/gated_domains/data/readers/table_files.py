"""CSV and Parquet files, plain or compressed -> columns."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gated_domains.data.errors import DataError, RowError, decoding, first_line, listing, naming, row_name
from gated_domains.data.memory import available_bytes
from gated_domains.data.readers.arrow_streams import lending

if TYPE_CHECKING:
    import pyarrow as pa

CSV_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zip")
# Besides those that Arrow knows ("", NA, NaN, null, ...): how other programs write that a value is missing.
_ALSO_MISSING = ["?", "None", "none", "<NA>", "NaT", "."]
_SEPARATORS = ",;\t|"
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_DECIMAL_POINT = re.compile(r"[-+]?\d*\.\d+")
_IN_THE_WAY = re.compile(r"/$|^__MACOSX/|(^|/)\.[^/]*$")  # folders, and what a Mac adds to a zip
CODE = re.compile(r"0\d+")  # 007, a postcode: a name, though it could be read as a number
_LOOKED_AT = 1_000  # rows
_HEAD = 1 << 20
_BLOCK = 1 << 22


def is_table_file(path: Path) -> bool:
    """Whether the name is that of a table: ``.csv``, ``.csv.gz``, ``.parquet``, ..."""
    return bare_suffix(path) in CSV_SUFFIXES + PARQUET_SUFFIXES


def read_table_file(path: Path, *, text: Iterable[str] = ()) -> pa.Table:
    """The file as an Arrow table with distinct, stripped column names. Damage is named, with its row where known.

    The ``text`` columns of a CSV are kept as they are written, though they may look like numbers or dates.
    """
    with decoding(path):
        table = _read_parquet(path) if bare_suffix(path) in PARQUET_SUFFIXES else _read_csv(path, text)
    return table.rename_columns(plain_names(path, table.column_names, rows=table.num_rows))


@contextmanager
def values_named(path: Path) -> Iterator[None]:
    """Around what is made of a table: faults name its file, and the line of a CSV file where it can be found."""
    import pyarrow as pa

    try:
        with naming(path):
            yield
    except RowError as error:
        raise error.named_by(partial(_row_and_line, path)) from error
    except pa.ArrowException as error:  # and no others: what is wrong with our own code must not be blamed on the file
        raise DataError(f"{path}: {first_line(error)}; the file holds values that cannot be read") from error


def _row_and_line(path: Path, row: int) -> str:
    line = None if bare_suffix(path) in PARQUET_SUFFIXES else line_of(path, row)
    return row_name(row) + (f", line {line:,} of the file" if line is not None else "")


def line_of(path: Path, row: int) -> int | None:
    """The line of a CSV file on which the row with this index ends, the header being on line 1; None if not found.

    Empty lines are no rows, and a row with line breaks in quotes takes several lines.
    """
    with unpacked(path) as file:
        head = file.read(_HEAD)
    encoding, separator, _ = _sniff(path, head)
    with unpacked(path) as file:
        lines = csv.reader(io.TextIOWrapper(file, encoding, "replace", newline=""), delimiter=separator)
        try:
            rows = (lines.line_num for cells in lines if cells)
            return next(islice(rows, row + 1, None), None)
        except csv.Error:
            return None


def plain_names(path: Path, written: list[str], *, rows: int) -> list[str]:
    """The names of columns, stripped; refused where two are the same, or where no rows follow them."""
    names = [name.strip() or f"column {place}" for place, name in enumerate(written)]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{path}: two columns are called {repeated[0]!r}; give each its own name")
    if rows == 0:
        raise DataError(f"{path}: there is a header ({listing(names)}) but no rows")
    return names


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() in COMPRESSED_SUFFIXES:
        # Parquet is read from its end: what is compressed once more must be unpacked first, into Arrow's own memory.
        unpacked_file = pa.BufferOutputStream()
        with _opened(path) as file:
            shutil.copyfileobj(file, unpacked_file, _BLOCK)
        table = pq.read_table(pa.BufferReader(unpacked_file.getvalue()))
    else:
        table = pq.read_table(pa.OSFile(os.fsencode(path)))
    return table.select(without_row_labels(table.column_names))


def without_row_labels(names: list[str]) -> list[str]:
    """Columns less those that pandas keeps its row labels in."""
    return [name for name in names if not re.fullmatch(r"__index_level_\d+__", name)]


def _read_csv(path: Path, text: Iterable[str]) -> pa.Table:
    from pyarrow import types as kinds

    with _opened(path) as file:
        head = file.read(_HEAD)
    form = _sniff(path, head)
    try:
        table = _parsed(path, head, *form, text=text)
        # Letters outside UTF-8, further down than the head: Arrow gives bytes then, and says nothing.
        is_utf8 = not any(kinds.is_binary(field.type) for field in table.schema)
    except ValueError as error:  # unless the column must be text
        if "invalid UTF8" not in str(error):
            raise
        is_utf8 = False
    return table if is_utf8 or form[0] != "utf-8" else _parsed(path, head, "cp1252", *form[1:], text=text)


def _parsed(
    path: Path, head: bytes, encoding: str, separator: str, decimal_point: str, *, text: Iterable[str]
) -> pa.Table:
    from pyarrow import csv as arrow_csv

    form = CsvForm.of(head, encoding, separator, decimal_point, text=text)

    def read(*, threads: bool = True, types: dict[str, pa.DataType] | None = None) -> pa.Table:
        with arrow_source(path, encoding, opened=_opened) as source:
            return arrow_csv.read_csv(source(), **form.options(threads=threads, types=types))

    try:
        types = _likely_types(head, form)
        if types:
            # Arrow keeps all text until it has seen every value of a column whose type it must find out by itself.
            with suppress(ValueError):
                return read(types=types)
        return read()
    except UnicodeDecodeError as error:
        raise no_letter(path, error) from error
    except ValueError as error:
        if "Expected" not in str(error):
            raise
        # Again on one thread: only then does the message say which row is the odd one.
        try:
            return read(threads=False)
        except ValueError as exact:
            raise odd_row(path, exact) from exact


def no_letter(path: Path, error: UnicodeDecodeError) -> DataError:
    """A byte that stands for nothing in the encoding of the file."""
    found = f"byte {error.object[error.start]:#04x} is no letter"
    return DataError(f"{path}: {found} in UTF-8, UTF-16 or Windows-1252; save the file as UTF-8")


def odd_row(path: Path, error: ValueError) -> DataError:
    """A row with more or fewer cells than the header."""
    return DataError(f"{path}: {first_line(error)}; every row must have as many cells as the header")


@dataclass(frozen=True)
class CsvForm:
    """How a CSV file is written, and the columns of it that are ``names``, whatever they look like."""

    encoding: str
    separator: str
    decimal_point: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, head: bytes, encoding: str, separator: str, decimal_point: str, *, text: Iterable[str]) -> CsvForm:
        """The form, with the columns of codes such as 007 among the names."""
        return cls(encoding, separator, decimal_point, (*_codes(head, encoding, separator), *text))

    @classmethod
    def found(cls, path: Path, *, text: Iterable[str], encoding: str | None = None) -> CsvForm:
        """The form of a file, told by its head but for an ``encoding`` that is known better."""
        with unpacked(path) as file:
            head = file.read(_HEAD)
        told, *rest = _sniff(path, head)
        return cls.of(head, encoding or told, *rest, text=text)

    def options(
        self, *, threads: bool = True, types: Mapping[str, pa.DataType] | None = None, skipped: int = 0
    ) -> dict[str, Any]:
        """What Arrow is told; ``types`` of columns where they are known, and rows to be ``skipped``."""
        from pyarrow import csv as arrow_csv

        return {
            "read_options": arrow_csv.ReadOptions(
                use_threads=threads, block_size=_BLOCK, skip_rows_after_names=skipped
            ),
            "parse_options": arrow_csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            "convert_options": arrow_csv.ConvertOptions(
                null_values=[*arrow_csv.ConvertOptions().null_values, *_ALSO_MISSING],
                strings_can_be_null=True,
                decimal_point=self.decimal_point,
                column_types={**(types or {}), **dict.fromkeys(self.names, "string")},
            ),
        }

    def typed(self, cells: Sequence[str]) -> pa.ChunkedArray:
        """Cells of one column, of the type that Arrow finds in them."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        content = io.StringIO()
        csv.writer(content, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([cell] for cell in cells)
        quoted = content.getvalue()
        table = arrow_csv.read_csv(
            pa.BufferReader(quoted.encode()),
            read_options=arrow_csv.ReadOptions(column_names=["cells"], block_size=max(_BLOCK, 2 * len(quoted))),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(decimal_point=self.decimal_point),
        )
        return table.column("cells")


def _codes(head: bytes, encoding: str, separator: str) -> list[str]:
    """Columns with cells such as 007 among the first rows: names, whose zeros must not be lost."""
    lines = head.decode(encoding, "replace").lstrip("\ufeff").splitlines()[:_LOOKED_AT]
    rows = _rows(lines, separator)
    header = rows[0] if rows else []
    return [
        name
        for place, name in enumerate(header)
        if any(len(row) > place and CODE.fullmatch(row[place]) for row in rows[1:])
    ]


def _likely_types(head: bytes, form: CsvForm) -> dict[str, pa.DataType]:
    """What the columns of a long file hold in its head. None where nothing can be told: the file is short, or odd."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    if len(head) < _HEAD:
        return {}
    try:
        with lending(io.BytesIO(head[: head.rfind(b"\n") + 1]), form.encoding) as lend:
            table = arrow_csv.read_csv(lend(), **form.options())
    except ValueError:  # cut inside quotes, or damaged: the whole file will tell
        return {}
    return {field.name: field.type for field in table.schema if not pa.types.is_null(field.type)}


def _sniff(path: Path, head: bytes) -> tuple[str, str, str]:
    """The encoding, the separator and the decimal point, from the head of the file."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    else:
        if b"\x00" in head:
            raise DataError(f"{path}: the file holds zero bytes; this is no text file, whatever its name says")
        encoding = "utf-8" if _is_utf8(head) else "cp1252"
    text = head.decode(encoding, "replace").lstrip("\ufeff")
    lines = [line for line in text.splitlines()[:20] if line.strip()]
    if not lines:
        raise DataError(f"{path}: the file is empty")

    def cells(separator: str) -> int:
        """Cells of every line, where all lines agree; 1 where they do not."""
        counts = {len(row) for row in _rows(lines, separator)}
        return counts.pop() if len(counts) == 1 else 1

    by_header = {separator: lines[0].count(separator) + 1 for separator in _SEPARATORS}
    separator = max(_SEPARATORS, key=lambda separator: (cells(separator), by_header[separator], separator == ","))
    found = [cell.strip() for row in _rows(lines, separator)[1:] for cell in row]
    with_comma = separator != "," and any(_DECIMAL_COMMA.fullmatch(cell) for cell in found)
    return encoding, separator, "," if with_comma and not any(map(_DECIMAL_POINT.fullmatch, found)) else "."


def _rows(lines: list[str], separator: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=separator))
    except csv.Error:
        return []


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 and len(head) == _HEAD  # a character cut in two by the end of the head
    return True


class _Bounded(io.RawIOBase):
    """A stream that is refused when more comes out of it than there is memory: a few bytes may unpack to any number."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.stream, self.path, self.left = stream, path, available_bytes()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self.stream.read(len(buffer))
        buffer[: len(content)] = content
        self.left -= len(content)
        if self.left < 0:
            raise DataError(f"{self.path}: unpacked, it is larger than the memory of this machine; split it up")
        return len(content)


@contextmanager
def arrow_source(
    path: Path, encoding: str, *, opened: Callable[[Path], AbstractContextManager[Any]]
) -> Iterator[Callable[[], Any]]:
    """Yield a function that returns a source of the file's text for Arrow; do not keep what it returns (``lending``).

    A plain file in UTF-8 is read by Arrow alone, any other through the Python file that ``opened`` gives.
    """
    import pyarrow as pa

    if encoding == "utf-8" and path.suffix.lower() not in COMPRESSED_SUFFIXES:
        yield partial(pa.OSFile, os.fsencode(path))
    else:
        with opened(path) as file, lending(file, encoding) as lend:
            yield lend


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file's bytes, uncompressed as they are read."""
    with unpacked(path) as stream:
        if path.suffix.lower() in COMPRESSED_SUFFIXES:
            yield io.BufferedReader(_Bounded(stream, path), _BLOCK)
        else:
            yield stream


@contextmanager
def unpacked(path: Path) -> Iterator[Any]:
    """The file's bytes, uncompressed as they are read, however many they are."""
    suffix = path.suffix.lower()
    if suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if not _IN_THE_WAY.search(name)]
            outside = [name for name in members if name.startswith("/") or ".." in name.replace("\\", "/").split("/")]
            if outside:
                raise DataError(f"{path}: the member {outside[0]!r} leads out of the archive; it is not read")
            if len(members) != 1:
                raise DataError(
                    f"{path}: a zip with one table is needed, this one holds {listing(members) or 'nothing'}"
                )
            with archive.open(members[0]) as file:
                yield file
    elif suffix == ".zst":
        import pyarrow as pa

        with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
            yield stream
    else:
        opener: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(suffix, open)
        with opener(path, "rb") as file:
            yield file


def bare_suffix(path: Path) -> str:
    """The suffix, less that of a compression."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED_SUFFIXES else path.suffix.lower()
