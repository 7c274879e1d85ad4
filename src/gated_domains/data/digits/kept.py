"""The made data set on disk: read when it is whole and ours, made again when it is not."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits.drawing import SIDE
from gated_domains.data.digits.parts import Domain
from gated_domains.data.errors import CACHE_VARIABLE, DataError, cache_dir, explain, written_whole
from gated_domains.data.npz import read_arrays

RECIPE = 1  # to be raised with any change that changes a pixel
_MAKERS = ("numpy", "pillow", "matplotlib", "scikit-learn")  # whose versions may change a pixel too
_FORM: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {  # type of each array, and shape of one of its rows
    "images": (np.uint8, (SIDE, SIDE, 3)),
    "labels": (np.int64, ()),
    "domains": (np.int64, ()),
    "official_test": (np.bool_, ()),
}


@dataclass(frozen=True, eq=False)
class Made:
    """All domains, one after the other."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    domains: NDArray[np.int64]
    official_test: NDArray[np.bool_]

    @classmethod
    def of(cls, domains: tuple[Domain, ...]) -> Made:
        return cls(
            images=np.concatenate([domain.images for domain in domains]),
            labels=np.concatenate([domain.labels for domain in domains]),
            domains=np.repeat(np.arange(len(domains), dtype=np.int64), [len(domain.labels) for domain in domains]),
            official_test=np.concatenate([domain.for_test for domain in domains]),
        )


def recipe() -> str:
    """All that an image depends on but the seed."""
    return ", ".join([f"digits {RECIPE}", *(f"{maker} {version(maker)}" for maker in _MAKERS)])


def kept_at(seed: int) -> Path:
    """Where the data set of a seed is kept."""
    short = hashlib.blake2b(recipe().encode(), digest_size=4).hexdigest()
    return cache_dir() / f"digits-v{RECIPE}-seed{seed}-{short}.npz"


def read(path: Path) -> Made | None:
    """What a kept file holds; None when there is none, or when it is damaged or holds something else."""
    try:
        return _checked(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (DataError, OSError) as error:
        reason = explain(error) if isinstance(error, OSError) else str(error)
        _say(f"{path} cannot be used ({reason}); making it again")
        return None


def _checked(path: Path) -> Made:
    arrays = read_arrays(path)
    if set(arrays) != {"recipe", *_FORM}:
        raise DataError("it holds something else")
    if str(made_by := arrays.pop("recipe")) != recipe():
        raise DataError(f"it was made by {made_by}")
    for name, (kind, shape) in _FORM.items():
        if arrays[name].dtype != kind or arrays[name].shape != (len(arrays["labels"]), *shape):
            raise DataError(f"its {name} are {arrays[name].dtype} of shape {arrays[name].shape}")
    return Made(**arrays)


def write(path: Path, made: Made) -> None:
    """Keep what was made for next time, or say why that cannot be."""
    try:
        with written_whole(path) as draft:
            np.savez(
                draft,
                recipe=np.array(recipe()),
                images=made.images,
                labels=made.labels,
                domains=made.domains,
                official_test=made.official_test,
            )
    except OSError as error:
        _say(
            f"digits could not be kept for next time. {explain(error)} "
            f"(the folder is {path.parent}; {CACHE_VARIABLE} names another)"
        )


def _say(words: str) -> None:
    from rich.console import Console

    Console(file=sys.stderr).print(words, highlight=False, markup=False, soft_wrap=True)
