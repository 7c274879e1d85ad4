"""CSV and Parquet files, plain or compressed -> columns."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gated_domains.data.errors import DataError, decoding, first_line, listing
from gated_domains.data.memory import available_bytes

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
    return _bare_suffix(path) in CSV_SUFFIXES + PARQUET_SUFFIXES


def read_table_file(path: Path, *, text: Iterable[str] = ()) -> pa.Table:
    """The file as an Arrow table with distinct, stripped column names. Damage is named, with its row where known.

    The ``text`` columns of a CSV are kept as they are written, though they may look like numbers or dates.
    """
    with decoding(path):
        table = _read_parquet(path) if _bare_suffix(path) in PARQUET_SUFFIXES else _read_csv(path, text)
    names = [name.strip() or f"column {place}" for place, name in enumerate(table.column_names)]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{path}: two columns are called {repeated[0]!r}; give each its own name")
    if table.num_rows == 0:
        raise DataError(f"{path}: there is a header ({listing(names)}) but no rows")
    return table.rename_columns(names)


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _opened(path) as file:
        # Parquet is read from its end: what is compressed once more must be unpacked first.
        table = pq.read_table(pa.BufferReader(file.read()) if path.suffix.lower() in COMPRESSED_SUFFIXES else file)
    # pandas keeps its row labels as a column of this name.
    kept = [name for name in table.column_names if not re.fullmatch(r"__index_level_\d+__", name)]
    return table.select(kept)


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

    missing = [*arrow_csv.ConvertOptions().null_values, *_ALSO_MISSING]

    names = dict.fromkeys([*_codes(head, encoding, separator), *text], "string")

    def read(file: object, *, threads: bool = True, types: dict[str, pa.DataType] | None = None) -> pa.Table:
        return arrow_csv.read_csv(
            file,
            read_options=arrow_csv.ReadOptions(use_threads=threads, block_size=_BLOCK, encoding=encoding),
            parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                null_values=missing,
                strings_can_be_null=True,
                decimal_point=decimal_point,
                column_types={**(types or {}), **names},
            ),
        )

    try:
        types = _likely_types(head, read)
        if types:
            # Arrow keeps all text until it has seen every value of a column whose type it must find out by itself.
            with _opened(path) as file, suppress(ValueError):
                return read(file, types=types)
        with _opened(path) as file:
            return read(file)
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} is no letter"
        raise DataError(f"{path}: {found} in UTF-8, UTF-16 or Windows-1252; save the file as UTF-8") from error
    except ValueError as error:
        if "Expected" not in str(error):
            raise
        # Again on one thread: only then does the message say which row is the odd one.
        try:
            with _opened(path) as file:
                return read(file, threads=False)
        except ValueError as exact:
            raise DataError(f"{path}: {first_line(exact)}; every row must have as many cells as the header") from exact


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


def _likely_types(head: bytes, read: Callable[[object], pa.Table]) -> dict[str, pa.DataType]:
    """What the columns of a long file hold in its head. None where nothing can be told: the file is short, or odd."""
    import pyarrow as pa

    if len(head) < _HEAD:
        return {}
    try:
        table = read(pa.BufferReader(head[: head.rfind(b"\n") + 1]))
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
def _opened(path: Path) -> Iterator[Any]:
    """The file's bytes, uncompressed as they are read."""
    with _unpacked(path) as stream:
        if path.suffix.lower() in COMPRESSED_SUFFIXES:
            yield io.BufferedReader(_Bounded(stream, path), _BLOCK)
        else:
            yield stream


@contextmanager
def _unpacked(path: Path) -> Iterator[Any]:
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


def _bare_suffix(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED_SUFFIXES else path.suffix.lower()
