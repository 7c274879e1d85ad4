"""New data of any size, some rows at a time: what ``read_like`` would read whole, in parts that fit into memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gated_domains.data.dataset import Schema
from gated_domains.data.encoding import ImageEncoding
from gated_domains.data.errors import decoding
from gated_domains.data.labels import Reading
from gated_domains.data.like_blocks import images_in_blocks, table_in_blocks, whole
from gated_domains.data.loading import follow_card, is_card, located, read_table, reader_of
from gated_domains.data.named import DATASETS
from gated_domains.data.npz import array_headers
from gated_domains.data.npz_blocks import npz_folder_in_blocks, npz_in_blocks
from gated_domains.data.parts import Blocks
from gated_domains.data.readers import arrays, folders
from gated_domains.data.readers.table_files import COMPRESSED_SUFFIXES, PARQUET_SUFFIXES, bare_suffix

LARGE = 1 << 26
"""Bytes from which on data are read in parts: of a CSV file as it lies there, of others once they are unpacked."""
_PACKED = 64  # a compressed CSV file counts so many times what it takes up: nothing in it says how large it is
_CELL = 8  # bytes of a cell of Parquet
_PART = 1 << 27  # bytes of a part, about, once it is encoded
_MOST_BYTES = 1 << 30  # of a part, even where a thousand rows would be more
_MOST_ROWS = {"images": 1 << 10, "words": 1 << 13, "tokens": 1 << 13, "bits": 1 << 13, "graphs": 1 << 13}
_MOST_ELSE = 1 << 16
_STEP = 1 << 10  # rows that a part is a multiple of: it then falls into whole batches


def blocks_like(
    what: str | os.PathLike[str],
    schema: Schema,
    *,
    reading: Reading | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    rows: int | None = None,
) -> Blocks:
    """The data of this name, or in this place, as a model expects them: without targets, in parts of ``rows`` rows.

    Large tables, arrays and folders of images are read a part at a time; every cell is read as it would be with the
    rest of its column beside it, and rows in errors are those of the file. What is small is read whole and falls into
    the same parts: which rows are beside a row is no matter of size. Data that go by a name are one part.
    """
    reading = reading or Reading()
    if isinstance(what, str) and what in DATASETS:
        return whole(what, schema, reading, data_dir=data_dir)
    path = located(what)
    if is_card(path):
        path, reading, notes = follow_card(path, reading)
        return blocks_like(path, schema, reading=reading, data_dir=data_dir, rows=rows).with_notes(notes)
    opener = _opener(path)
    if opener is None:
        return whole(path, schema, reading)
    most = rows or rows_at_a_time(schema)
    if not _is_large(path, schema):
        return whole(path, schema, reading, rows=most)
    return opener(path, schema, reading, most).each(lambda part: replace(part, label_names=schema.label_names))


def rows_at_a_time(schema: Schema) -> int:
    """Rows of a part: a thousand, or as many thousands as there is room for; fewer only where a row is very long."""
    most = _MOST_ROWS.get(schema.encoding.kind, _MOST_ELSE)
    width = max(1, 4 * math.prod(schema.encoding.shape))
    thousands = max(_STEP, min(most, _PART // width) // _STEP * _STEP)
    return max(1, min(thousands, _MOST_BYTES // width))


_Opener = Callable[[Path, Schema, Reading, int], Blocks]


def _opener(path: Path) -> _Opener | None:
    """What reads this file or folder in parts; None for what is read whole at any size."""
    if path.is_file() and path.suffix.lower() in folders.IMAGE_SUFFIXES:
        return None
    readers: dict[object, _Opener] = {
        read_table: table_in_blocks,
        folders.read_folder: images_in_blocks,
        arrays.read_npz: npz_in_blocks,
        arrays.read_npz_folder: npz_folder_in_blocks,
    }
    return readers.get(reader_of(path))


def _is_large(path: Path, schema: Schema) -> bool:
    if path.is_file():
        return _file_bytes(path) >= LARGE
    if arrays.is_folder_of_domains(path):
        return sum(map(_array_bytes, arrays.domain_files(path))) >= LARGE
    if not isinstance(schema.encoding, ImageEncoding):
        return False
    size = schema.encoding.height * schema.encoding.width * 3
    return len(folders.scan_loose(path)[0]) * size >= LARGE


def _file_bytes(path: Path) -> int:
    """Bytes of a file once it is unpacked, about."""
    packed = path.suffix.lower() in COMPRESSED_SUFFIXES
    if bare_suffix(path) in PARQUET_SUFFIXES:
        return -1 if packed else _parquet_bytes(path)  # read from its end, it must be unpacked as a whole
    if path.suffix.lower() == ".npz":
        return _array_bytes(path)
    return path.stat().st_size * (_PACKED if packed else 1)


def _parquet_bytes(path: Path) -> int:
    """What the cells take up: a column of one value repeated is nothing on disk."""
    import pyarrow.parquet as pq

    with decoding(path), pq.ParquetFile(path) as file:
        cells = file.metadata.num_rows * file.metadata.num_columns
    return max(path.stat().st_size, _CELL * cells)


def _array_bytes(path: Path) -> int:
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in array_headers(path).values())
