"""Tables and images in parts, each read as a model expects them: see ``blocks_like``."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gated_domains.data.dataset import Schema
from gated_domains.data.labels import Reading
from gated_domains.data.like import files_encoding, read_like, table_form
from gated_domains.data.like_table import LikeTable, TableForm, domain_with_holes
from gated_domains.data.new_data import NewData
from gated_domains.data.parts import Blocks, in_parts_of, read_parts
from gated_domains.data.progress import progress
from gated_domains.data.readers import folders
from gated_domains.data.readers.table_blocks import TableBlocks, look_through
from gated_domains.data.readers.table_files import values_named

if TYPE_CHECKING:
    import pyarrow as pa


def whole(
    what: str | os.PathLike[str],
    schema: Schema,
    said: Reading,
    *,
    rows: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> Blocks:
    """All read at once: one part, or with ``rows`` parts of so many."""
    data = read_like(what, schema, targets=False, reading=said, data_dir=data_dir)
    return Blocks(len(data), lambda: in_parts_of([data], rows or len(data)), in_parts=False)


def table_in_blocks(path: Path, schema: Schema, said: Reading, rows: int) -> Blocks:
    """A CSV or Parquet file, looked through once before its first rows are given."""
    form = table_form(path, schema, said, targets=False)
    with progress(f"looking through {path.name}"):
        file = look_through(path, text=form.text)
    with values_named(path):
        form.check(list(file.names))
    form, notes = _with_domain_if_whole(form, file)
    # A column may be empty in some rows that is not in others.
    wrong = {column.emptiness for column in schema.columns() if file.empty.get(column.name) != file.rows}

    def read(start: int, table: pa.Table) -> NewData:
        with values_named(path):
            data = form.read(path, _as_in_whole(table, form, file), start=start)
        return replace(data, notes=tuple(note for note in data.notes if note not in wrong))

    return Blocks(file.rows, lambda: read_parts(file.tables(rows), read, of=file.rows, columns=form.inputs)).with_notes(
        notes
    )


def _with_domain_if_whole(form: TableForm, file: TableBlocks) -> tuple[TableForm, tuple[str, ...]]:
    """A domain with a hole anywhere is passed over everywhere."""
    domain = form.reading.domain
    if domain is None or not file.empty.get(domain):
        return form, ()
    dropped = isinstance(form, LikeTable) and domain in form.reading.drop
    return form.without_domain(), () if dropped else (domain_with_holes(domain, file.empty[domain], file.rows),)


def _as_in_whole(table: pa.Table, form: TableForm, file: TableBlocks) -> pa.Table:
    """Whole numbers that are kept beside are floats where one of them is missing, in whichever part."""
    import pyarrow as pa

    for name in form.reading.metadata:
        place = table.column_names.index(name)
        if pa.types.is_integer(table.schema.field(place).type) and file.empty[name]:
            table = table.set_column(place, name, table.column(place).cast("float64", safe=False))
    return table


def images_in_blocks(path: Path, schema: Schema, said: Reading, rows: int) -> Blocks:
    """A folder of images, decoded some at a time."""
    encoding = files_encoding(path, schema, said)
    files, others = folders.scan_loose(path)

    def read(start: int, some: list[str]) -> NewData:
        return NewData(
            name=path.resolve().name,
            inputs=folders.ImageFiles(some, height=encoding.height, width=encoding.width).read_all(),
            class_names=schema.class_names,
            metadata={"file": folders.relative(path, some)},
            notes=tuple(folders.passed_over(others)),
        )

    parts = [(first, files[first : first + rows]) for first in range(0, len(files), rows)]
    return Blocks(len(files), lambda: read_parts(parts, read, of=len(files)))
