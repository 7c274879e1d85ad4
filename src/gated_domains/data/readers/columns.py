"""Columns of a table file -> target, domain, metadata and inputs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, RowError, did_you_mean, listing, row_name
from gated_domains.data.labels import as_domains, as_targets
from gated_domains.data.readers.cells import (
    as_days,
    as_levels,
    as_numbers,
    is_date,
    is_number,
    kept_values,
    number,
    plain_values,
)
from gated_domains.data.readers.reading import Reading
from gated_domains.data.readers.table_files import CODE, read_table_file, values_named
from gated_domains.data.tables import Categories, Column, Numbers, Table, likely_domains

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = (
    *("target", "domain", "positive", "categorical", "drop", "metadata", "keep_together", "task"),
    "drop_missing_target",
)
"""What may be said of a table."""
_TARGET_NAMES = ("target", "label", "y", "class")
_SMILES = re.compile(r"[A-Za-z0-9@+\-\[\]()=#$:/\\.%*]+")
_IDENTIFIER_ROWS = 20
_TEXT_LETTERS, _TEXT_WORDS = 60, 6
_FEW_ODD = 0.1  # of the cells of a column of numbers
_IDENTIFIER = re.compile(r"(?i:(.*[\s_.-])?id)|.*(Id|ID)")
_ROW_LABEL = re.compile(r"column 0|Unnamed: 0|index")  # pandas writes one before the first column unless told not to


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
        columns = []
        for name in table.column_names:
            if name in {target, reading.domain, *reading.drop, *metadata}:
                continue
            column = _column(name, table.column(name), categorical=name in reading.categorical, notes=notes)
            if column is not None:
                columns.append(column)
        if reading.domain is None:
            notes += _domain_notes(columns, reading.categorical)
        return DomainDataset(
            name=path.name,
            inputs=_table(columns, notes),
            targets=targets,
            class_names=class_names,
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
        yield table.take(kept)
    except RowError as error:
        raise error.among(row=int(kept[error.row]), count=error.count, of=error.of) from error


def _is_missing(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where a cell is empty, NaN, or a text of no letters."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    missing = values.is_null(nan_is_null=True)
    if kinds.is_string(values.type):
        missing = pc.or_(missing, pc.equal(values, "").fill_null(True))
    return np.asarray(missing.to_numpy(), np.bool_)


def _domain_notes(columns: Sequence[Column], kept: Collection[str]) -> Iterator[str]:
    """What is noted of inputs that look like domains; nothing of those that are ``kept`` as categories by name."""
    for name, values in likely_domains(columns).items():
        if name not in kept:
            yield (
                f"column {name!r} looks like a domain ({values:,} values) and is taken for an input; --domain {name} "
                f"holds it apart, --categorical {name} keeps it as an input without this note"
            )


def _table(columns: list[Column], notes: list[str]) -> Table:
    if not columns:
        why = "; ".join(["no column is left to learn from, besides the target and the domain", *notes])
        raise DataError(why)
    return Table(columns)


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


def _column(name: str, values: pa.ChunkedArray, *, categorical: bool, notes: list[str]) -> Column | None:
    """The column as inputs, or None with a note where it cannot help on a new domain."""
    if values.type == "null":
        notes.append(f"column {name!r} is empty and is left out")
        return None
    if is_date(values.type) and not categorical:
        notes.append(f"column {name!r} holds dates; a model sees them as days since 1970")
        return Numbers(name, as_days(values), dates=True)
    if is_number(values.type) and not categorical:
        numbers = Numbers(name, as_numbers(values))
        if _is_identifier(name, numbers.values):
            notes.append(
                f"column {name!r} has a new whole number for each row; it is taken for an identifier and left out"
            )
            return None
        return numbers
    codes, levels = as_levels(values, name)
    if not categorical:
        mended = _mostly_numbers(name, codes, levels, notes)
        if mended is not None:
            return mended
        _refuse_text(name, codes, levels)
        if len(codes) >= _IDENTIFIER_ROWS and 2 * len(levels) > len(codes):
            notes.append(f"column {name!r} has {len(levels):,} different values in {len(codes):,} rows; it is taken "
                         "for an identifier and left out")  # fmt: skip
            return None
    return Categories(name, codes, levels)


def _mostly_numbers(name: str, codes: NDArray[np.int32], levels: tuple[str, ...], notes: list[str]) -> Numbers | None:
    """A column of numbers with a few cells that are none ("unknown", a slip), which count as missing, with a note."""
    if any(CODE.fullmatch(level) for level in levels):
        return None
    parsed = np.array([*(number(level) for level in levels), np.nan])
    values = parsed[codes]
    odd = np.isnan(values) & (codes >= 0)
    if not (codes >= 0).any() or odd.sum() > _FEW_ODD * (codes >= 0).sum():
        return None
    row = int(np.argmax(odd))
    notes.append(
        f"column {name!r} holds numbers, but {int(odd.sum()):,} cells are none (the first, in {row_name(row)}, is "
        f"{levels[codes[row]][:40]!r}) and count as missing; --categorical {name} takes all of them for names"
    )
    return Numbers(name, values, words=tuple(np.array(levels, object)[np.unique(codes[odd])]))


def _is_identifier(name: str, values: NDArray[np.float64]) -> bool:
    """Whether these are whole numbers that only tell rows apart, by their name and by being all different."""
    if len(values) < 2 or np.isnan(values).any() or (values != np.round(values)).any():
        return False
    if _ROW_LABEL.fullmatch(name):
        return bool((np.diff(values) == 1).all())
    return _IDENTIFIER.fullmatch(name) is not None and len(np.unique(values)) == len(values)


def _refuse_text(name: str, codes: NDArray[np.int32], levels: tuple[str, ...]) -> None:
    """Text and molecules are read by other means than columns of names: say by which."""
    known = max(1, int((codes >= 0).sum()))
    if known < 2 or len(levels) < 2:
        return
    mostly_new = 2 * len(levels) > known
    sample = levels[:: max(1, len(levels) // 500)]
    letters, words = np.mean([len(level) for level in sample]), np.mean([level.count(" ") + 1 for level in sample])
    drop = f"or leave the column out (--drop {name})"
    like_smiles = mostly_new and all(_SMILES.fullmatch(level) for level in sample) and letters > 8
    if (mostly_new and name.casefold() in ("smiles", "smile")) or (
        like_smiles and any("(" in level or "=" in level for level in sample)
    ):
        raise DataError(
            f"column {name!r} holds molecules (SMILES, such as {sample[0][:40]!r}); name it with --smiles {name} to "
            f"learn from them, {drop}"
        )
    if (mostly_new and letters > _TEXT_LETTERS) or (words > _TEXT_WORDS and len(levels) >= _IDENTIFIER_ROWS):
        raise DataError(
            f"column {name!r} holds text (such as {sample[0][:40]!r}); name it with --text {name} to learn from it, "
            f"{drop}"
        )
