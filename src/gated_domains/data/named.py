"""Data sets that go by a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.labels import Reading
from gated_domains.data.wilds.sets import names as wilds_names
from gated_domains.data.wilds.sets import wilds_set

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Known:
    """A data set that goes by a name. ``takes`` are the fields of a ``Reading`` that mean something to it."""

    what: str
    load: Callable[[Path | None, int, Reading], DomainDataset]
    embedded: bool
    takes: tuple[str, ...] = ()


def _module(name: str) -> Any:
    """A module of data sets, imported when one of them is asked for."""
    return import_module(f"gated_domains.data.{name}")


def _wilds(name: str) -> Known:
    """One of the eight data sets of WILDS, read as the ``wilds`` package has it."""

    def load(data_dir: Path | None, seed: int, reading: Reading) -> DomainDataset:
        from gated_domains.data.wilds import load_wilds

        return load_wilds(name, data_dir=data_dir, reading=reading)

    chosen, _ = wilds_set(name)
    return Known(chosen.what, load, False, takes=chosen.options)


DATASETS = {
    "digits": Known(
        "five domains of digits, in the package: two real, three made from real parts",
        lambda data_dir, seed, reading: _module("digits").digits(seed=seed),
        True,
    ),
    "digits5": Known(
        "the paper's five: MNIST, MNIST-M, SVHN, USPS, SYN, from a data directory",
        lambda data_dir, seed, reading: _module("digits5").digits5(data_dir=data_dir),
        False,
    ),
    "digits5-small": Known(
        "the same with 1,500 + 500 images a domain, from a data directory",
        lambda data_dir, seed, reading: _module("digits5").digits5(data_dir=data_dir, small=True),
        False,
    ),
    "synthetic": Known(
        "mixtures of known elementary distributions, made in code",
        lambda data_dir, seed, reading: _module("synthetic").synthetic(seed=seed).dataset,
        True,
    ),
    "spurious": Known(
        "sites where an attribute goes with the class, and one where not, made in code",
        lambda data_dir, seed, reading: _module("spurious").spurious(seed=seed),
        True,
    ),
    **{name: _wilds(name) for name in wilds_names()},
}
