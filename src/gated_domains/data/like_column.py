"""New texts and molecules: a table with a column of them, or task files, as a model expects them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gated_domains.data.errors import DataError, did_you_mean, first_line, listing, naming
from gated_domains.data.like_table import check_said, new_domains, new_targets
from gated_domains.data.matching import targets_like
from gated_domains.data.new_data import NewData
from gated_domains.data.readers.cells import kept_values
from gated_domains.data.readers.one_column import OPTIONS, by_scaffold, input_column, samples_in
from gated_domains.data.readers.reading import Reading
from gated_domains.data.readers.table_files import read_table_file
from gated_domains.data.schema import Schema
from gated_domains.data.text.forms import seen_as
from gated_domains.data.text.task_files import tasks_in

if TYPE_CHECKING:
    import pyarrow as pa


def read_like_column(path: Path, schema: Schema, said: Reading, *, targets: bool) -> NewData:
    """A CSV or Parquet file with a column of texts or SMILES; see ``read_like``."""
    import pyarrow as pa

    what, other = ("texts", "smiles") if schema.of_texts else ("molecules", "text")
    said.refuse_all_but(
        *(name for name in (*OPTIONS, "tokens", "tokenizer") if name != other), what=f"a model that sees {what}"
    )
    reading = schema.settle(said)
    text = [column for column in (reading.text or reading.smiles,) if column is not None]
    if targets and schema.class_names is not None and reading.target is not None:
        text.append(reading.target)
    table = read_table_file(path, text=text)
    try:
        with naming(path):
            _check_column(table.column_names, reading, what)
            check_said(table.column_names, _without_scaffold(table, said, reading), {input_column(reading)})
            return _of_column(path, table, schema, reading, targets=targets)
    except pa.ArrowException as error:
        raise DataError(f"{path}: {first_line(error)}; the file holds values that cannot be read") from error


def read_like_tasks(path: Path, schema: Schema, said: Reading, *, targets: bool) -> NewData:
    """Task files, a label and a text a line; see ``read_like``."""
    said.refuse_all_but("positive", "task", "form", "tokens", "tokenizer", what="task files")
    reading = schema.settle(said)
    found = tasks_in(path)
    with naming(path):
        return NewData(
            name=path.name,
            inputs=seen_as(found.texts, reading),
            class_names=schema.class_names,
            targets=targets_like(found.labels, schema.class_names, joined=schema.joined) if targets else None,
            domains=found.domains,
            domain_names=found.domain_names,
            notes=found.notes,
        )


def _check_column(names: list[str], reading: Reading, what: str) -> None:
    option = "--text" if what == "texts" else "--smiles"
    if reading.text is None and reading.smiles is None:
        raise DataError(f"which column holds the {what}? Name it with {option}; there are {listing(names, 60)}")
    column = input_column(reading)
    if column not in names:
        raise DataError(
            f"there is no column {column!r}, which held the {what} in training{did_you_mean(column, names)}; "
            f"{option} names another"
        )


def _without_scaffold(table: pa.Table, said: Reading, reading: Reading) -> Reading:
    """What was said of columns: a scaffold that is computed has none."""
    return replace(said, domain=None) if by_scaffold(table.column_names, reading) else said


def _of_column(path: Path, table: pa.Table, schema: Schema, reading: Reading, *, targets: bool) -> NewData:
    notes: list[str] = []
    answers = new_targets(table, schema, reading) if targets else None
    samples = samples_in(table, reading)
    domains, domain_names = samples.domains, samples.domain_names
    if domains is None:
        domains, domain_names = new_domains(table, reading.domain, notes, needed=targets)
    return NewData(
        name=path.name,
        inputs=samples.inputs,
        class_names=schema.class_names,
        targets=answers,
        domains=domains,
        domain_names=domain_names,
        metadata={name: kept_values(table.column(name), name) for name in reading.metadata},
        notes=(*notes, *samples.notes),
    )
