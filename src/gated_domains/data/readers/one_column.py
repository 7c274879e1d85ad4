"""Tables of which one column is what a model sees: texts, or molecules as SMILES."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, RowError, listing
from gated_domains.data.inputs import Inputs
from gated_domains.data.labels import Reading
from gated_domains.data.loading import (
    check_names,
    domains_in,
    metadata_in,
    target_name,
    targets_in,
    with_target,
)
from gated_domains.data.molecules.inputs import read_molecules
from gated_domains.data.molecules.scaffolds import SCAFFOLD
from gated_domains.data.readers.table_files import read_table_file, values_named
from gated_domains.data.text.forms import check_form, notes_on, seen_as
from gated_domains.data.text.inputs import Text

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = (
    *("target", "domain", "positive", "drop", "metadata", "keep_together", "task", "drop_missing_target"),
    *("text", "smiles", "form"),
)
"""What may be said of such a table; of texts also ``tokens`` and ``tokenizer``."""


@dataclass(frozen=True, eq=False)
class Samples:
    """What a column of texts or SMILES holds; the scaffolds of molecules where they were asked for."""

    inputs: Inputs
    notes: tuple[str, ...]
    domains: NDArray[np.int64] | None = None
    domain_names: tuple[str, ...] = ()


def read_one_column(path: Path, reading: Reading) -> DomainDataset:
    """A data set from a CSV or Parquet file with a column of texts (``reading.text``) or SMILES (``.smiles``)."""
    check_reading(reading)
    table = read_table_file(path, text=[input_column(reading)])
    with values_named(path):
        return _dataset(path, table, reading)


def input_column(reading: Reading) -> str:
    """The column that holds the texts or the SMILES."""
    column = reading.text or reading.smiles
    assert column is not None
    return column


def check_reading(reading: Reading) -> None:
    """Refuse what cannot be meant, before anything is read."""
    if reading.text is not None and reading.smiles is not None:
        raise DataError("--text and --smiles name two inputs, and a model sees one of them; leave one out")
    if reading.text is not None:
        reading.refuse_all_but(*OPTIONS, "tokens", "tokenizer", what="a table of texts")
        check_form(reading)
    else:
        reading.refuse_all_but(*OPTIONS, what="a table of molecules")


def samples_in(table: pa.Table, reading: Reading, *, start: int = 0) -> Samples:
    """The texts or molecules of a table; with ``--domain scaffold``, and no column called so, their scaffolds."""
    name = input_column(reading)
    if reading.text is not None:
        texts = _texts(table.column(name))
        return Samples(seen_as(texts, reading), tuple(notes_on(texts)))
    smiles = [(written or "").strip() for written in table.column(name).cast("string").to_pylist()]
    with_scaffolds = by_scaffold(table.column_names, reading)
    try:
        found = read_molecules(smiles, form=reading.form, scaffolds=with_scaffolds, start=start)
    except RowError as error:
        raise error.led_by(f"column {name!r}: ") from error
    except DataError as error:
        raise DataError(f"column {name!r}: {error}") from error
    return Samples(found.inputs, found.notes, found.scaffolds, found.scaffold_names)


def by_scaffold(names: Sequence[str], reading: Reading) -> bool:
    """Whether the domains are scaffolds to be computed."""
    return reading.smiles is not None and reading.domain == SCAFFOLD and SCAFFOLD not in names


def _dataset(path: Path, table: pa.Table, reading: Reading) -> DomainDataset:
    names, column = table.column_names, input_column(reading)
    computed = by_scaffold(names, reading)
    domain = None if computed else reading.domain
    option = "--text" if reading.text is not None else "--smiles"
    notes: list[str] = []
    target = target_name(names, reading.target)
    check_names(names, target, replace(reading, domain=domain), {option: (column,)})
    with with_target(table, target, drop=reading.drop_missing_target, notes=notes) as table:
        targets, class_names = targets_in(table, target, reading, notes)
        metadata = metadata_in(table, reading)
        others = [name for name in names if name not in {column, target, domain, *metadata, *reading.drop}]
        if others:
            notes.append(f"columns beside {column!r} that are left out: {listing(others)} (--metadata keeps one)")
        samples = samples_in(table, reading)
        domains, domain_names = (samples.domains, samples.domain_names) if computed else domains_in(table, domain)
        if computed:
            notes.append(f"domains are Bemis-Murcko scaffolds, computed by RDKit: {len(domain_names):,}")
        return DomainDataset(
            name=path.name,
            inputs=samples.inputs,
            targets=targets,
            class_names=class_names,
            classes_found=reading.positive is None,
            domains=domains,
            domain_names=domain_names,
            metadata=metadata,
            keep_together=reading.keep_together,
            notes=(*notes, *samples.notes),
            reading=replace(reading, target=target),
        )


def _texts(values: pa.ChunkedArray) -> Text:
    """The texts of a column; an empty cell is an empty text. The letters are taken over as they lie in memory."""
    column = values.cast("large_string").fill_null("").combine_chunks()
    _, ends, letters = column.buffers()
    offsets = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    content = np.frombuffer(letters, np.uint8)[offsets[0] : offsets[-1]] if letters else np.empty(0, np.uint8)
    return Text.of_letters(content, offsets - offsets[0])
