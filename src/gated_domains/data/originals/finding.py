"""Which files make up a domain, and where under a folder they lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from gated_domains.data.archives import is_archive
from gated_domains.data.originals.idx import read_mnist
from gated_domains.data.originals.matlab import (
    read_digit_five_mnist,
    read_digit_five_mnistm,
    read_digit_five_syn,
    read_digit_five_usps,
    read_svhn,
)
from gated_domains.data.originals.parts import Parts
from gated_domains.data.originals.png import read_mnistm_folders, read_mnistm_lists
from gated_domains.data.originals.usps import read_usps_h5, read_usps_libsvm, read_usps_text


@dataclass(frozen=True)
class Recipe:
    """One way to get a domain: a reader, and the files it takes, in order; each goes by any of several names."""

    read: Callable[..., Parts]
    files: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return " + ".join(names[0] for names in self.files)


def _idx(name: str) -> tuple[str, ...]:
    dotted = name.replace("-idx", ".idx")
    return (f"{name}.gz", name, f"{dotted}.gz", dotted)


# Names in small letters. Of several recipes the first whose files are all there is taken: originals before collections.
RECIPES: Mapping[str, tuple[Recipe, ...]] = {
    "mnist": (
        Recipe(
            read_mnist,
            (
                _idx("train-images-idx3-ubyte"),
                _idx("train-labels-idx1-ubyte"),
                _idx("t10k-images-idx3-ubyte"),
                _idx("t10k-labels-idx1-ubyte"),
            ),
        ),
        Recipe(read_digit_five_mnist, (("mnist_data.mat",),)),
    ),
    "mnistm": (
        Recipe(read_mnistm_lists, (("mnist_m_train_labels.txt",), ("mnist_m_test_labels.txt",))),
        Recipe(read_mnistm_folders, (("mnist-m/training",), ("mnist-m/testing",))),
        Recipe(read_digit_five_mnistm, (("mnistm_with_label.mat",),)),
    ),
    "svhn": (
        Recipe(read_svhn, (("train_32x32.mat",), ("test_32x32.mat",))),
        Recipe(read_svhn, (("svhn_train_32x32.mat",), ("svhn_test_32x32.mat",))),
    ),
    "usps": (
        Recipe(read_usps_libsvm, (("usps.bz2", "usps"), ("usps.t.bz2", "usps.t"))),
        Recipe(read_usps_text, (("zip.train.gz", "zip.train"), ("zip.test.gz", "zip.test"))),
        Recipe(read_usps_h5, (("usps.h5",),)),
        Recipe(read_digit_five_usps, (("usps_28x28.mat",),)),
    ),
    "syn": (
        Recipe(read_svhn, (("synth_train_32x32.mat",), ("synth_test_32x32.mat",))),
        Recipe(read_digit_five_syn, (("syn_number.mat",),)),
    ),
}

_PICKLES = (".pkl", ".pickle", ".pkl.gz", ".pickle.gz", ".pt", ".pth", ".pt.gz")
# Other pictures under MNIST's file names; they often lie in a folder beside it.
_NOT_MNIST = ("fashion", "kmnist", "emnist", "qmnist")
_MNISTM = ("mnist-m", "mnist_m", "mnistm")
_TRAINING = ("training", "train", "trainset")
_TESTING = ("testing", "test", "testset")


@dataclass
class Found:
    """What lies under a folder: files and folders of originals by their name in ``RECIPES``, archives, pickles."""

    originals: dict[str, list[Path]] = field(default_factory=dict)
    archives: list[Path] = field(default_factory=list)
    pickles: list[Path] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Take in what was found elsewhere, after what is here."""
        for name, paths in other.originals.items():
            self.originals.setdefault(name, []).extend(paths)

    def files_of(self, domain: str) -> tuple[Recipe, tuple[Path, ...]] | None:
        """The first recipe whose files are all here, with those files: from one folder, where one has them all."""
        for recipe in RECIPES[domain]:
            choices = [[path for name in names for path in self.originals.get(name, ())] for names in recipe.files]
            if not all(choices):
                continue
            for folder in dict.fromkeys(path.parent for path in choices[0]):
                together = [next((path for path in paths if path.parent == folder), None) for paths in choices]
                if all(path is not None for path in together):
                    return recipe, tuple(path for path in together if path is not None)
            return recipe, tuple(paths[0] for paths in choices)
        return None


def find(folder: Path) -> Found:
    """Look through a folder and all below it. Shallow places come first; links to folders are not followed."""
    paths: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(parent, name) for name in names]
    found, top = Found(), folder.resolve().name
    for path in sorted(paths, key=lambda path: (len(path.parts), str(path))):
        name = original_name(f"{top}/{path.relative_to(folder).as_posix()}")
        if name is not None:
            place = path if name == path.name.lower() else path.parent.parent
            places = found.originals.setdefault(name, [])
            if place not in places[-1:]:  # thousands of images of one folder follow each other
                places.append(place)
        elif is_archive(path):
            found.archives.append(path)
        elif path.name.lower().endswith(_PICKLES):
            found.pickles.append(path)
    return found


def original_name(path: str, domains: tuple[str, ...] = tuple(RECIPES)) -> str | None:
    """The name in ``RECIPES`` that a file has, or whose folder it lies in; None for a file that no recipe asks for."""
    *folders, name = path.lower().split("/")
    if any(word in folder for folder in folders for word in _NOT_MNIST):
        return None
    if name in _wanted(domains):
        return name
    in_mnistm = any(word in folder for folder in folders for word in _MNISTM)
    if in_mnistm and name.endswith(".png") and len(folders) > 1 and folders[-1] in tuple("0123456789"):
        split = folders[-2]
        key = "mnist-m/training" if split in _TRAINING else "mnist-m/testing" if split in _TESTING else None
        return key if key in _wanted(domains) else None
    return None


def is_needed(path: str, domains: tuple[str, ...]) -> bool:
    """Whether a member of an archive is an original of one of these domains, or one of MNIST-M's listed images."""
    listed = path.lower().split("/")[-2:-1] in (["mnist_m_train"], ["mnist_m_test"])
    return (listed and "mnistm" in domains) or original_name(path, domains) is not None


@lru_cache
def _wanted(domains: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        name for domain in domains for recipe in RECIPES[domain] for names in recipe.files for name in names
    )


def _refuse(error: OSError) -> None:
    raise error
