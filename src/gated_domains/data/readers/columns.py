"""Columns of a table file -> target, domain, metadata and inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, RowError, did_you_mean, listing
from gated_domains.data.labels import as_domains, as_targets
from gated_domains.data.readers.cells import kept_values, plain_values
from gated_domains.data.readers.deciding import Cells, ReadTable
from gated_domains.data.readers.reading import Reading
from gated_domains.data.readers.table_files import (
    PARQUET_SUFFIXES,
    CsvForm,
    bare_suffix,
    read_table_file,
    values_named,
)
from gated_domains.data.tables import Column, likely_domains

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = (
    *("target", "domain", "positive", "categorical", "drop", "metadata", "keep_together", "task"),
    "drop_missing_target",
)
"""Reading options that apply to a table."""
_TARGET_NAMES = ("target", "label", "y", "class")


def read_table(path: Path, reading: Reading) -> DomainDataset:
    """A data set from a CSV or Parquet file: of its columns, or of one that holds texts or molecules."""
    if reading.text is not None or reading.smiles is not None:
        from gated_domains.data.readers.one_column import read_one_column

        return read_one_column(path, reading)
    reading.refuse_all_but(*OPTIONS, what="a table")
    table = read_table_file(path)
    with values_named(path):
        return _from_columns(path, table, reading)


def _from_columns(path: Path, table: pa.Table, reading: Reading) -> DomainDataset:
    target = target_name(table.column_names, reading.target)
    check_names(table.column_names, target, reading, {"--categorical": reading.categorical})
    notes: list[str] = []
    with with_target(table, target, drop=reading.drop_missing_target, notes=notes) as table:
        targets, class_names = targets_in(table, target, reading, notes)
        domains, domain_names = domains_in(table, reading.domain)
        metadata = metadata_in(table, reading)
        form = None if bare_suffix(path) in PARQUET_SUFFIXES else CsvForm.found(path, text=())
        inputs = ReadTable.of(
            [
                Cells.of(name, table.column(name), categorical=name in reading.categorical, form=form)
                for name in table.column_names
                if name not in {target, reading.domain, *reading.drop, *metadata}
            ]
        )
        notes += inputs.about.values()
        if reading.domain is None:
            notes += _domain_notes(inputs.columns, reading.categorical)
        return DomainDataset(
            name=path.name,
            inputs=inputs,
            targets=targets,
            class_names=class_names,
            classes_found=reading.positive is None,
            domains=domains,
            domain_names=domain_names,
            metadata=metadata,
            keep_together=reading.keep_together,
            notes=tuple(notes),
            reading=replace(reading, target=target),
        )


@contextmanager
def with_target(table: pa.Table, name: str, *, drop: bool, notes: list[str]) -> Iterator[pa.Table]:
    """The rows that have a target; one without is refused, unless such rows are to be dropped, with a note.

    Faults inside the block are of the rows that are left, and name those of the file.
    """
    missing = _is_missing(table.column(name))
    count = int(missing.sum())
    if count == len(missing):
        raise DataError(f"column {name!r}, the target, is empty in every row; name another (--target)")
    if count and not drop:
        raise RowError(
            lambda where, count, of: (
                f"column {name!r}, the target, is empty or marked as missing (NA, ?, ...) in {where} (such rows: "
                f"{count:,} of {of:,}); fill them in, or leave those rows out with --drop-missing-target"
            ),
            row=int(np.argmax(missing)),
            count=count,
            of=len(missing),
            column=name,
        )
    if not count:
        yield table
        return
    notes.append(f"{count:,} of {len(missing):,} rows have no target ({name!r}) and are left out")
    kept = np.flatnonzero(~missing)
    try:
        yield table.filter(~missing)
    except RowError as error:
        raise error.among(row=int(kept[error.row]), count=error.count, of=error.of) from error


def _is_missing(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where a cell is empty, NaN, or an empty string."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    missing = values.is_null(nan_is_null=True)
    if kinds.is_string(values.type) or kinds.is_large_string(values.type):
        missing = pc.or_(missing, pc.equal(values, "").fill_null(True))
    return np.asarray(missing.to_numpy(), np.bool_)


def _domain_notes(columns: Sequence[Column], kept: Collection[str]) -> Iterator[str]:
    """What is noted of inputs that look like domains; nothing of those that are ``kept`` as categories by name."""
    for name, values in likely_domains(columns).items():
        if name not in kept:
            yield (
                f"column {name!r} looks like a domain ({values:,} values) and is used as an input; --domain "
                f"{quote(name)} makes it the domain, --categorical {quote(name)} keeps it as an input without this note"
            )


def domains_in(table: pa.Table, name: str | None) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """The domains in the column of this name, if one is named."""
    if name is None:
        return None, ()
    return as_domains(plain_values(table.column(name), name), what=f"domain {name!r}")


def targets_in(
    table: pa.Table, name: str, reading: Reading, notes: list[str]
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """The targets in the column of this name, and their classes; it is noted where nobody named it."""
    if reading.target is None:
        notes.append(f"column {name!r} is taken for the target, by its name (--target chooses another)")
    values = plain_values(table.column(name), name)
    return as_targets(values, positive=reading.positive, task=reading.task, what=f"target {name!r}")


def metadata_in(table: pa.Table, reading: Reading) -> dict[str, NDArray[Any]]:
    """The columns that are kept beside the inputs."""
    return {name: kept_values(table.column(name), name) for name in _kept(reading)}


def _kept(reading: Reading) -> tuple[str, ...]:
    together = () if reading.keep_together is None else (reading.keep_together,)
    return tuple(dict.fromkeys((*reading.metadata, *together)))


def target_name(names: list[str], chosen: str | None) -> str:
    """The column chosen as the target, else the one that is called so."""
    if chosen is not None:
        return chosen
    usual = [name for name in names if name.casefold() in _TARGET_NAMES]
    if len(usual) == 1:
        return usual[0]
    raise DataError(f"which column is to be predicted? Name it with --target; there are {listing(names, 60)}")


def check_names(names: list[str], target: str, reading: Reading, inputs: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a name that no column has, and a column with two parts. ``inputs`` are named by options of their own."""
    roles = {
        "--target": (target,),
        "--domain": (reading.domain,) if reading.domain else (),
        **inputs,
        "--drop": reading.drop,
        "--metadata": _kept(reading),
    }
    taken: dict[str, str] = {}
    for option, chosen in roles.items():
        for name in chosen:
            if name not in names:
                raise DataError(f"there is no column {name!r} ({option}){did_you_mean(name, names)}")
            if name in taken:
                raise DataError(f"column {name!r} is named by {taken[name]} and by {option}; it can have one part only")
            taken[name] = option
