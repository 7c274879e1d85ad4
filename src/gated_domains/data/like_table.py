"""A new table by the columns of training: what each held then decides how it is read, not what it looks like now."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean, first_line, naming
from gated_domains.data.labels import as_domains
from gated_domains.data.matching import targets_like
from gated_domains.data.new_data import NewData
from gated_domains.data.readers.cells import kept_values, plain_values
from gated_domains.data.readers.columns import refuse_empty_target, target_name
from gated_domains.data.readers.known_columns import KnownColumn, read_known
from gated_domains.data.readers.reading import Reading
from gated_domains.data.readers.table_files import read_table_file
from gated_domains.data.schema import Schema
from gated_domains.data.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa


def read_like_table(path: Path, schema: Schema, said: Reading, *, targets: bool) -> NewData:
    """A CSV or Parquet file; see ``read_like``."""
    import pyarrow as pa

    said.refuse_all_but(
        "target", "domain", "positive", "categorical", "drop", "metadata", "keep_together", "task", what="a table"
    )
    reading = schema.settle(said)
    # What was a name in training is kept as it is written, though all names of this file may look like numbers.
    text = [column.name for column in schema.columns() if column.levels is not None]
    if targets and schema.class_names is not None and reading.target is not None:
        text.append(reading.target)
    table = read_table_file(path, text=text)
    try:
        with naming(path):
            check_said(table.column_names, said, {column.name for column in schema.columns()})
            return _of_columns(path, table, schema, reading, targets=targets)
    except pa.ArrowException as error:
        raise DataError(f"{path}: {first_line(error)}; the file holds values that cannot be read") from error


def check_said(names: list[str], said: Reading, inputs: Collection[str]) -> None:
    """What somebody names must be there, and be nothing that the model takes for an input."""
    for option, chosen in (("target", said.target), ("domain", said.domain), *(("metadata", n) for n in said.metadata)):
        if chosen is not None and chosen not in names:
            raise DataError(f"there is no column {chosen!r} (--{option}){did_you_mean(chosen, names)}")
        if chosen in inputs and option != "metadata":
            raise DataError(f"column {chosen!r} (--{option}) is an input of the model; name another")


def _of_columns(path: Path, table: pa.Table, schema: Schema, reading: Reading, *, targets: bool) -> NewData:
    notes: list[str] = []
    table = table.select([name for name in table.column_names if name not in reading.drop])
    inputs = Table(read_known(table, schema.columns(), notes))
    domains, domain_names = new_domains(table, reading.domain, notes, needed=targets)
    return NewData(
        name=path.name,
        inputs=inputs,
        class_names=schema.class_names,
        targets=new_targets(table, schema, reading) if targets else None,
        domains=domains,
        domain_names=domain_names,
        metadata={name: kept_values(table.column(name), name) for name in reading.metadata},
        notes=tuple(notes),
    )


def new_targets(table: pa.Table, schema: Schema, reading: Reading) -> NDArray[Any]:
    """The targets, of classes that training had."""
    name = target_name(table.column_names, reading.target)
    if name not in table.column_names:
        raise DataError(
            f"there is no column {name!r}, the target in training{did_you_mean(name, table.column_names)}; without "
            "targets nothing can be scored, only predicted (--target names another column)"
        )
    column, what = table.column(name), f"target {name!r}"
    refuse_empty_target(column, name)
    if schema.class_names is None:
        return targets_like(KnownColumn(name).read(column, []).values, None, what=what)
    return targets_like(plain_values(column, name), schema.class_names, joined=schema.joined, what=what)


def new_domains(
    table: pa.Table, name: str | None, notes: list[str], *, needed: bool
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """The domains, where their column is there and filled in; to predict, one with holes is passed over."""
    if name is None or name not in table.column_names:
        return None, ()
    column = table.column(name)
    empty = column.null_count
    if empty == len(column) or (empty and not needed):
        notes.append(f"column {name!r}, the domain, is empty in {empty:,} of {len(column):,} rows and is passed over")
        return None, ()
    return as_domains(plain_values(column, name), what=f"domain {name!r}")
