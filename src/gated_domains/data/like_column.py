"""New texts and molecules: a table with a column of them, or task files, as a model expects them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError, did_you_mean, listing, naming
from gated_domains.data.labels import Reading
from gated_domains.data.like_table import answers_in_text, check_said, new_domains, new_targets, rows_to_score
from gated_domains.data.matching import targets_like
from gated_domains.data.new_data import NewData
from gated_domains.data.readers.cells import kept_values
from gated_domains.data.readers.one_column import OPTIONS, by_scaffold, input_column, samples_in
from gated_domains.data.text.forms import seen_as
from gated_domains.data.text.task_files import tasks_in

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class LikeColumn:
    """A CSV or Parquet file with a column of texts or SMILES; see ``read_like``."""

    schema: Schema
    said: Reading
    reading: Reading
    targets: bool

    @classmethod
    def of(cls, schema: Schema, said: Reading, *, targets: bool) -> LikeColumn:
        """As training read it, but for what may be said otherwise now."""
        what, other = ("texts", "smiles") if schema.of_texts else ("molecules", "text")
        said.refuse_all_but(
            *(name for name in (*OPTIONS, "tokens", "tokenizer") if name != other), what=f"a model that sees {what}"
        )
        return cls(schema, said, schema.settle(said), targets)

    @property
    def text(self) -> list[str]:
        """The column itself, and that of the classes."""
        return self.inputs + answers_in_text(self.schema, self.reading, targets=self.targets)

    @property
    def inputs(self) -> list[str]:
        """The column of texts or SMILES, where it is known."""
        return [column for column in (self.reading.text or self.reading.smiles,) if column is not None]

    def without_domain(self) -> LikeColumn:
        """The same, but for the domain, which is let be."""
        return replace(self, reading=replace(self.reading, domain=None))

    def check(self, names: list[str]) -> None:
        """The column, and what somebody names, must be there; a scaffold that is computed needs no column."""
        _check_column(names, self.reading, "texts" if self.schema.of_texts else "molecules")
        said = replace(self.said, domain=None) if by_scaffold(names, self.reading) else self.said
        check_said(names, said, self.inputs)

    def read(self, path: Path, table: pa.Table, *, start: int = 0) -> NewData:
        """What the table holds."""
        return _of_column(path, table, self, start)


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


def _of_column(path: Path, table: pa.Table, form: LikeColumn, start: int) -> NewData:
    schema, reading = form.schema, form.reading
    notes: list[str] = []
    with rows_to_score(table, reading, notes) if form.targets else nullcontext(table) as table:
        answers = new_targets(table, schema, reading) if form.targets else None
        samples = samples_in(table, reading, start=start)
        domains, domain_names = samples.domains, samples.domain_names
        if domains is None:
            domains, domain_names = new_domains(table, reading.domain, notes, needed=form.targets)
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
