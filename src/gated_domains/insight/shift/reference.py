"""Reference: rows of the sources that a new site is compared with, as a model sees them; in a file beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, written_whole
from gated_domains.data.inputs import Rows
from gated_domains.data.npz import read_arrays
from gated_domains.insight.sampling import drawn, shares, whole_groups

MOST_ROWS = 2_000
FORMAT = 1
# Numbers that are kept at most, where views are wide: 32 MiB.
_MOST_NUMBERS = 1 << 23
# By array, the kinds of numpy and the shape it has: R rows, G numbers a view, M bases.
_FORMS = {
    "view": ("f", "RG"),
    "domains": ("i", "R"),
    "residual": ("f", "R"),
    "coverage": ("f", "R"),
    "beta": ("f", "RM"),
    "confidence": ("f", "R"),
    "correct": ("b", "R"),
    "groups": ("i", "R"),
}
_ABOUT = ("format", "of", "domain_names", "trained_on")
_MAY_BE_EMPTY = ("confidence", "correct", "groups")


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """R rows of the sources: what gates see of them (G numbers each), and what a model of M bases says.

    ``confidence`` (the probability of the class predicted) and ``correct`` are empty where no classes are predicted, or
    the truth is not known. Rows with the same number in ``groups`` belong together (to a patient); empty: every row is
    a group of its own. ``trained_on``: whether the model was trained on these very rows.
    """

    view: NDArray[np.float32]
    domains: NDArray[np.int64]
    """(R,): into ``domain_names``."""
    domain_names: tuple[str, ...]
    residual: NDArray[np.float32]
    coverage: NDArray[np.float32]
    beta: NDArray[np.float32]
    confidence: NDArray[np.float32]
    correct: NDArray[np.bool_]
    trained_on: bool
    groups: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.view)

    @property
    def words(self) -> str:
        """What rows these are."""
        return "rows it was trained on" if self.trained_on else "validation rows of its sources"

    def write(self, path: Path, *, of: str) -> None:
        """Keep it, whole or not at all; ``of`` tells which weights it was made with."""
        arrays = {name: getattr(self, name) for name in _FORMS}
        about = {
            "format": np.array(FORMAT),
            "of": np.array(of),
            "domain_names": np.array(self.domain_names, np.str_),
            "trained_on": np.array(self.trained_on),
        }
        with written_whole(path) as draft:
            np.savez_compressed(draft, **arrays, **about)  # type: ignore[arg-type]

    @classmethod
    def read(cls, path: Path, *, of: str) -> Reference | None:
        """What is kept there; None where nothing is, or what is was made with other weights."""
        if not path.is_file():
            return None
        try:
            arrays = read_arrays(path)
        except DataError as error:
            raise DataError(f"{error}; delete it to have it made again") from error
        about = {name: arrays.pop(name) for name in _ABOUT if name in arrays}
        if len(about) < len(_ABOUT) or any(about[name].ndim for name in ("format", "of", "trained_on")):
            raise _wrong(path, "lacks what says what it is of")
        if about["format"].dtype.kind != "i" or int(about["format"]) != FORMAT:
            raise _wrong(path, f"has format {about['format']}, this version reads {FORMAT}")
        if str(about["of"]) != of:
            return None
        names = tuple(map(str, np.atleast_1d(about["domain_names"])))
        _check(path, arrays, names)
        made = cls(**{name: arrays[name] for name in _FORMS}, domain_names=names, trained_on=bool(about["trained_on"]))
        return replace(made, domains=made.domains.astype(np.int64), groups=made.groups.astype(np.int64))


def balanced(
    domains: NDArray[np.int64],
    *,
    width: int,
    groups: NDArray[np.int64] | None = None,
    most: int = MOST_ROWS,
    seed: int = 0,
) -> Rows:
    """Indices of random rows, as many of every domain as far as there are; fewer where views are wide.

    Rows of the same group are taken together.
    """
    places = [np.flatnonzero(domains == number) for number in np.unique(domains)]
    counts = shares([len(own) for own in places], max(2, min(most, _MOST_NUMBERS // width)))
    chosen = [
        drawn(own, count, seed + number)
        if groups is None
        else own[whole_groups(groups[own], count, np.random.default_rng(seed + number))]
        for number, (own, count) in enumerate(zip(places, counts, strict=True))
    ]
    return np.sort(np.concatenate(chosen))


def _check(path: Path, arrays: dict[str, NDArray[Any]], names: tuple[str, ...]) -> None:
    """Refuse arrays that do not go together."""
    for name, (kinds, form) in _FORMS.items():
        array = arrays.get(name)
        if array is None:
            raise _wrong(path, f"lacks {name!r}")
        if name in _MAY_BE_EMPTY and array.shape == (0,) and array.dtype.kind in kinds:
            continue
        if array.ndim != len(form) or array.dtype.kind not in kinds or len(array) != len(arrays["view"]):
            raise _wrong(path, f"has {name!r} of shape {array.shape} and type {array.dtype}, which does not go with it")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise _wrong(path, f"has {name!r} with NaN or infinity")
    domains = arrays["domains"]
    if not len(domains) or not names or domains.min() < 0 or domains.max() >= len(names):
        raise _wrong(path, "names other domains than it has rows of")


def _wrong(path: Path, what: str) -> DataError:
    return DataError(f"{path} {what}; delete it to have it made again")
