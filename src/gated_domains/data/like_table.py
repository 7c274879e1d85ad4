"""A new table by the columns of training: what each held then decides how it is read, not what it looks like now."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.data.inputs import Features, Inputs, Table, refuse_non_finite
from gated_domains.data.labels import Reading, as_domains
from gated_domains.data.loading import OPTIONS, target_name, with_target
from gated_domains.data.matching import KnownColumn, read_known, targets_like
from gated_domains.data.new_data import NewData
from gated_domains.data.readers.cells import as_numbers, is_number, kept_values, plain_values
from gated_domains.data.readers.table_files import read_table_file, values_named

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class TableForm(Protocol):
    """How a new table becomes what a model expects: all that can be settled before the table is read."""

    @property
    def reading(self) -> Reading:
        """How it is read."""
        ...

    @property
    def text(self) -> list[str]:
        """Columns that are kept as they are written."""
        ...

    @property
    def inputs(self) -> list[str]:
        """Columns that the model sees, in its order."""
        ...

    def without_domain(self) -> TableForm:
        """The same, but for the domain, which is let be."""
        ...

    def check(self, names: list[str]) -> None:
        """Refuse a table with these columns where it cannot be read so."""
        ...

    def read(self, path: Path, table: pa.Table, *, start: int = 0) -> NewData:
        """What the table holds; ``start`` is the row of its first line in the file."""
        ...


def read_in_form(path: Path, form: TableForm) -> NewData:
    """A CSV or Parquet file as a whole."""
    table = read_table_file(path, text=form.text)
    with values_named(path):
        form.check(table.column_names)
        return form.read(path, table)


@dataclass(frozen=True)
class LikeTable:
    """A CSV or Parquet file for a model that sees its columns; see ``read_like``."""

    schema: Schema
    said: Reading
    reading: Reading
    targets: bool

    @classmethod
    def of(cls, schema: Schema, said: Reading, *, targets: bool) -> LikeTable:
        """As training read it, but for what may be said otherwise now."""
        said.refuse_all_but(*OPTIONS, what="a table")
        return cls(schema, said, schema.settle(said), targets)

    @property
    def text(self) -> list[str]:
        """What was a name in training is kept as written, though all names of this file may look like numbers."""
        names = [column.name for column in self.schema.columns() if column.levels is not None]
        return names + answers_in_text(self.schema, self.reading, targets=self.targets)

    @property
    def inputs(self) -> list[str]:
        """The columns of training, in their order."""
        return [column.name for column in self.schema.columns()]

    def without_domain(self) -> LikeTable:
        """The same, but for the domain, which is let be."""
        return replace(self, reading=replace(self.reading, domain=None))

    def check(self, names: list[str]) -> None:
        """What somebody names must be there, and be no input."""
        check_said(names, self.said, self.inputs)

    def read(self, path: Path, table: pa.Table, *, start: int = 0) -> NewData:
        """What the table holds."""
        notes: list[str] = []
        kept = table.select([name for name in table.column_names if name not in self.reading.drop])
        with rows_to_score(kept, self.reading, notes) if self.targets else nullcontext(kept) as rows:
            samples = self.samples(rows, notes)
            return _of_columns(path, rows, samples, notes, self.schema, self.reading, targets=self.targets)

    def samples(self, table: pa.Table, notes: list[str]) -> Inputs:
        """The inputs of the model."""
        return Table(read_known(table, self.schema.columns(), notes))


def answers_in_text(schema: Schema, reading: Reading, *, targets: bool) -> list[str]:
    """The column of the classes, where it is read."""
    wanted = targets and schema.class_names is not None and reading.target is not None
    return [reading.target] if wanted and reading.target is not None else []


def check_said(names: list[str], said: Reading, inputs: Collection[str]) -> None:
    """What somebody names must be there, and be nothing that the model takes for an input."""
    named = (("target", said.target), ("domain", said.domain), ("keep-together", said.keep_together))
    for option, chosen in (*named, *(("metadata", name) for name in said.metadata)):
        if chosen is not None and chosen not in names:
            raise DataError(f"there is no column {chosen!r} (--{option}){did_you_mean(chosen, names)}")
        if chosen in inputs and option not in ("metadata", "keep-together"):
            raise DataError(f"column {chosen!r} (--{option}) is an input of the model; name another")


def _of_columns(
    path: Path, table: pa.Table, inputs: Inputs, notes: list[str], schema: Schema, reading: Reading, *, targets: bool
) -> NewData:
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


def rows_to_score(table: pa.Table, reading: Reading, notes: list[str]) -> AbstractContextManager[pa.Table]:
    """The rows that have a target, as ``with_target`` gives them."""
    name = target_name(table.column_names, reading.target)
    if name not in table.column_names:
        raise DataError(
            f"there is no column {name!r}, the target in training{did_you_mean(name, table.column_names)}; without "
            "targets nothing can be scored, only predicted (--target names another column)"
        )
    return with_target(table, name, drop=reading.drop_missing_target, notes=notes)


def new_targets(table: pa.Table, schema: Schema, reading: Reading) -> NDArray[Any]:
    """The targets, of classes that training had."""
    name = target_name(table.column_names, reading.target)
    column, what = table.column(name), f"target {name!r}"
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
        notes.append(domain_with_holes(name, empty, len(column)))
        return None, ()
    return as_domains(plain_values(column, name), what=f"domain {name!r}")


def domain_with_holes(name: str, empty: int, rows: int) -> str:
    """What is noted of a domain that is not known of every row."""
    return f"column {name!r}, the domain, is empty in {empty:,} of {rows:,} rows and is passed over"


class LikeNumbers(LikeTable):
    """A CSV or Parquet file for a model of vectors: its columns of numbers, where there are as many; see ``read_like``.

    The target, the domain and what is kept beside are none of them, wherever they are named.
    """

    def samples(self, table: pa.Table, notes: list[str]) -> Inputs:
        (width,) = self.schema.encoding.shape
        others = {self.reading.target, self.reading.domain, *self.reading.metadata}
        names = [name for name in table.column_names if name not in others and is_number(table.column(name).type)]
        if len(names) != width:
            raise DataError(
                f"holds a table, but the model was trained on vectors of features, {width:,} numbers each without "
                f"names: columns of numbers would be taken in their order, but there are {len(names):,} "
                f"({listing(names) or 'none'}); leave out what is no input with --drop, or give an .npz"
            )
        values = np.stack([as_numbers(table.column(name)) for name in names], axis=1)
        refuse_non_finite(values, names)
        notes.append(f"the model knows no names of columns: columns are taken in their order, {listing(names, 5)}")
        return Features(values)
