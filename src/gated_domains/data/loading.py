"""One function for all data: a name, a file, a folder, or a card; and data sets from the columns of a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.common.validation import nearest
from gated_domains.data.archives import is_archive
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, RowError, did_you_mean, expanded, listing
from gated_domains.data.fraction import a_share_of
from gated_domains.data.inputs import Column, likely_domains
from gated_domains.data.labels import Reading, as_domains, as_targets
from gated_domains.data.named import DATASETS
from gated_domains.data.readers.arrays import is_folder_of_domains, read_npz, read_npz_folder
from gated_domains.data.readers.card import CARD_SUFFIXES, read_card
from gated_domains.data.readers.cells import Cells, ReadTable, kept_values, plain_values
from gated_domains.data.readers.folders import IMAGE_SUFFIXES, read_folder
from gated_domains.data.readers.table_files import (
    PARQUET_SUFFIXES,
    CsvForm,
    bare_suffix,
    is_table_file,
    read_table_file,
    values_named,
)
from gated_domains.data.text.forms import embedded, words_first
from gated_domains.data.text.task_files import holds_task_files, read_task_files

if TYPE_CHECKING:
    import pyarrow as pa


OPTIONS = (
    *("target", "domain", "positive", "categorical", "drop", "metadata", "keep_together", "task"),
    "drop_missing_target",
)
"""Reading options that apply to a table."""
_TARGET_NAMES = ("target", "label", "y", "class")


def load_data(
    what: str | os.PathLike[str],
    reading: Reading | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> DomainDataset:
    """The data set of this name, or in this place. A known name wins over a file so called; ``./digits`` is the file.

    ``seed`` is for data made in code; ``data_dir`` for data sets that lie in a data directory (else
    ``$GATED_DOMAINS_DATA``, else the cache).
    """
    reading = reading or Reading()
    if reading.fraction is not None:
        whole = load_data(what, words_first(replace(reading, fraction=None)), data_dir=data_dir, seed=seed)
        return embedded(a_share_of(whole, reading.fraction), reading)
    if isinstance(what, str) and what in DATASETS:
        reading.refuse_all_but(*DATASETS[what].takes, what=f"the data set {what!r}")
        return DATASETS[what].load(None if data_dir is None else Path(data_dir), seed, reading)
    path = located(what)
    if is_card(path):
        path, reading, notes = follow_card(path, reading)
        dataset = load_data(path, reading, data_dir=data_dir, seed=seed)
        return replace(dataset, notes=(*notes, *dataset.notes))
    return reader_of(path)(path, reading)


def load_dataset(
    source: str | os.PathLike[str],
    *,
    target: str | None = None,
    domain: str | None = None,
    positive: Sequence[object] | None = None,
    reading: Reading | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> DomainDataset:
    """Load a data set by name, or from a file or folder.

    Parameters
    ----------
    source
        A known name such as ``"digits"``, a table, a folder of images, an ``.npz`` file, texts, or a ``.yaml`` card.
    target, domain, positive
        For a table: the column that is predicted, the column that names the domain, and the target values that make up
        the positive class.
    reading
        Everything else about how the data are read; instead of the three arguments above.
    data_dir, seed
        Where named data sets lie, and the random seed of generated ones.

    Returns
    -------
    DomainDataset

    Examples
    --------
    >>> import gated_domains as gd
    >>> gd.load_dataset("digits").domain_names
    ('mnist', 'optical', 'blended', 'numbers', 'street')
    """
    return read_data(source, target, domain, positive, reading, data_dir=data_dir, seed=seed)[0]


def read_data(
    source: str | os.PathLike[str] | DomainDataset,
    target: str | None,
    domain: str | None,
    positive: Sequence[object] | None,
    reading: Reading | None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> tuple[DomainDataset, Reading]:
    """Data as the arguments of a public function name them, and how they are read."""
    named = {"target": target, "domain": domain, "positive": positive}
    given = {name: value for name, value in named.items() if value is not None}
    if given and (reading is not None or isinstance(source, DomainDataset)):
        other = "a reading" if reading is not None else "a data set that is loaded already"
        raise DataError(f"{listing(given)} cannot be given beside {other}; leave them out")
    if isinstance(source, DomainDataset):
        return source, Reading()
    if isinstance(positive, str):
        raise DataError(f"positive must be a list of target values, got {positive!r}; write [{positive!r}]")
    values = None if positive is None else tuple(str(value) for value in positive)
    reading = reading or Reading(target=target, domain=domain, positive=values)
    return load_data(source, reading, data_dir=data_dir, seed=seed), reading


def located(what: str | os.PathLike[str]) -> Path:
    """The file or folder that is meant; refused where there is none."""
    if not os.fspath(what):
        raise DataError(f"no data are named; there are {listing(DATASETS)}, and your own files and folders")
    path = expanded(what)
    if not path.exists():
        beside = _names_in(path.parent)
        near = nearest(path.name, [*DATASETS, *beside])
        if near in beside:
            hint = f"; did you mean {os.path.join(os.path.dirname(what), near)!r}?"
        else:
            hint = did_you_mean(str(what), DATASETS)
        raise DataError(f"{what} is neither a file or folder here nor the name of a data set{hint}")
    return path


def _names_in(folder: Path) -> list[str]:
    """The files and folders that a name may be a slip for; none where the folder cannot be read."""
    try:
        return [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return []


def reader_of(path: Path) -> Callable[[Path, Reading], DomainDataset]:
    """What reads this file or folder, by its name and what lies in it."""
    if path.is_dir():
        if holds_task_files(path):
            return read_task_files
        return read_npz_folder if is_folder_of_domains(path) else read_folder
    if not path.is_file():  # a pipe would wait for ever
        raise DataError(f"{path} is neither a file nor a folder but a pipe or a device; write the data to a file first")
    if path.suffix.lower() == ".npz":
        return read_npz
    if is_table_file(path):
        return read_table
    known = "a folder domain/class/*.png, .csv or .parquet (plain or compressed), .npz, or a .yaml card"
    if is_archive(path):
        if holds_task_files(path):
            return read_task_files
        raise DataError(
            f"{path}: unpack the archive first; {known} can be read (of archives, *.task.train files alone)"
        )
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise DataError(f"{path}: one image is no data set; give the folder that holds domain/class/*.png")
    raise DataError(f"{path}: files of this kind cannot be read; {known} can")


def is_card(path: Path) -> bool:
    """Whether this is a card, not data."""
    return path.suffix.lower() in CARD_SUFFIXES and path.is_file()


def follow_card(path: Path, reading: Reading) -> tuple[Path, Reading, tuple[str, ...]]:
    """Where the data lie that a card stands for, how to read them, and what to say of them."""
    if reading != Reading():
        raise DataError(
            f"{path} already says how its data are to be read; change it there, or name the data themselves"
        )
    what, reading, notes = read_card(path)
    if Path(what).suffix.lower() in CARD_SUFFIXES:
        raise DataError(f"{path}: a card must name data, not another card ({what})")
    return Path(what), reading, notes


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
