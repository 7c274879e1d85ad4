"""One door to all data: a name, a file, a folder, or a card."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gated_domains.common.names import nearest
from gated_domains.data.archives import is_archive
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.data.files import expanded
from gated_domains.data.fraction import a_share_of
from gated_domains.data.readers.arrays import is_folder_of_domains, read_npz, read_npz_folder
from gated_domains.data.readers.card import CARD_SUFFIXES, read_card
from gated_domains.data.readers.columns import read_table
from gated_domains.data.readers.folders import IMAGE_SUFFIXES, read_folder
from gated_domains.data.readers.reading import Reading
from gated_domains.data.readers.table_files import is_table_file
from gated_domains.data.text.forms import embedded, words_first
from gated_domains.data.text.task_files import holds_task_files, read_task_files
from gated_domains.data.wilds.sets import names as wilds_names
from gated_domains.data.wilds.sets import wilds_set


@dataclass(frozen=True)
class Known:
    """A data set that goes by a name. ``takes`` are the fields of a ``Reading`` that mean something to it."""

    what: str
    load: Callable[[Path | None, int, Reading], DomainDataset]
    embedded: bool
    takes: tuple[str, ...] = ()


def _digits(data_dir: Path | None, seed: int, reading: Reading) -> DomainDataset:
    from gated_domains.data.digits import digits

    return digits(seed=seed)


def _digits5(data_dir: Path | None, seed: int, reading: Reading) -> DomainDataset:
    from gated_domains.data.digits5 import digits5

    return digits5(data_dir=data_dir)


def _digits5_small(data_dir: Path | None, seed: int, reading: Reading) -> DomainDataset:
    from gated_domains.data.digits5 import digits5

    return digits5(data_dir=data_dir, small=True)


def _synthetic(data_dir: Path | None, seed: int, reading: Reading) -> DomainDataset:
    from gated_domains.data.synthetic import synthetic

    return synthetic(seed=seed).dataset


def _spurious(data_dir: Path | None, seed: int, reading: Reading) -> DomainDataset:
    from gated_domains.data.spurious import spurious

    return spurious(seed=seed)


def _wilds(name: str) -> Known:
    """One of the eight data sets of WILDS, read as the ``wilds`` package has it."""

    def load(data_dir: Path | None, seed: int, reading: Reading) -> DomainDataset:
        from gated_domains.data.wilds import load_wilds

        return load_wilds(name, data_dir=data_dir, reading=reading)

    chosen, _ = wilds_set(name)
    return Known(chosen.what, load, False, takes=chosen.options)


DATASETS = {
    "digits": Known("five domains of digits, in the package: two real, three made from real parts", _digits, True),
    "digits5": Known("the paper's five: MNIST, MNIST-M, SVHN, USPS, SYN, from a data directory", _digits5, False),
    "digits5-small": Known("the same with 1,500 + 500 images a domain, from a data directory", _digits5_small, False),
    "synthetic": Known("mixtures of known elementary distributions, made in code", _synthetic, True),
    "spurious": Known("sites where an attribute goes with the class, and one where not, made in code", _spurious, True),
    **{name: _wilds(name) for name in wilds_names()},
}


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
