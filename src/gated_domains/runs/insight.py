"""What a gated run shows of itself, in ``insight.npz`` of its folder: numbers and text, for whoever draws it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, written_whole
from gated_domains.data.npz import read_arrays

INSIGHT = "insight.npz"
FORMAT = 1
# By array, the kinds of numpy and the shapes it may have, in the letters of the class below; * is any number.
_NUMBER, _WHOLE, _TEXT, _EMPTY = "iuf", "iu", "U", "empty"
_FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "domain_names": (_TEXT, ("D",)),
    "unseen": ("b", ("D",)),
    "class_names": (_TEXT, ("C",)),
    "rows": (_WHOLE, ("R",)),
    "domains": (_WHOLE, ("R",)),
    "targets": (_NUMBER + "b", ("R", "R *")),
    "predicted": (_NUMBER, ("R", _EMPTY)),
    "beta": (_NUMBER, ("R M",)),
    "coverage": (_NUMBER, ("R", _EMPTY)),
    "map_rows": (_NUMBER, ("R 2",)),
    "map_bases": (_NUMBER, ("V 2",)),
    "map_basis_of": (_WHOLE, ("V",)),
    "map_kind": (_TEXT, ("",)),
    "mmd": (_NUMBER, ("D+M D+M",)),
    "domain_share": (_NUMBER, ("M D",)),
    "class_share": (_NUMBER, ("M C",)),
    "mass": (_NUMBER, ("M",)),
    "dropping": (_NUMBER, ("M 2",)),
    "nearest": (_WHOLE, ("M K",)),
    "nearest_domains": (_WHOLE, ("M K",)),
    "nearest_targets": (_NUMBER + "b", ("M K", "M K *")),
    "nearest_pictures": ("u", ("M K * * 1", "M K * * 3", _EMPTY)),
    "nearest_texts": (_TEXT, ("M K", _EMPTY)),
    "nearest_columns": (_TEXT, ("F",)),
    "nearest_values": (_TEXT, ("M K F", _EMPTY)),
    "pictures": ("u", ("R * * 1", "R * * 3", _EMPTY)),
    "texts": (_TEXT, ("R", _EMPTY)),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Insight:
    """A sample of rows as the gates see them, and what each of M bases stands for.

    R sampled rows of D domains (the unseen ones last in ``domain_names``) and C classes; M bases of N vectors; K rows
    nearest to each basis. Arrays that a kind of data does not have are empty.
    """

    domain_names: NDArray[Any]
    """(D,)"""
    unseen: NDArray[np.bool_]
    """(D,): whether a domain was held out."""
    class_names: NDArray[Any]
    """(C,), empty where no classes are predicted."""
    rows: NDArray[np.int64]
    """(R,): where the sample lies in the data."""
    domains: NDArray[np.int64]
    """(R,): into ``domain_names``."""
    targets: NDArray[Any]
    """(R,) or (R, labels)."""
    predicted: NDArray[Any]
    """(R,): the class or number predicted; empty for labels."""
    beta: NDArray[np.float32]
    """(R, M)"""
    coverage: NDArray[np.float32]
    """(R,), or empty."""
    map_rows: NDArray[np.float32]
    """(R, 2): the view that gates see, in the plane, together with the bases."""
    map_bases: NDArray[np.float32]
    """(V, 2): vectors of the bases, in the same plane."""
    map_basis_of: NDArray[np.int64]
    """(V,): of which basis."""
    map_kind: NDArray[Any]
    """(): ``t-SNE`` or ``UMAP``."""
    mmd: NDArray[np.float32]
    """(D + M, D + M): ``||mu_a - mu_b||`` in the kernel's space, domains first."""
    domain_share: NDArray[np.float32]
    """(M, D): of the weight that a basis gets from training rows, the part of each domain; rows sum to 1 (or 0)."""
    class_share: NDArray[np.float32]
    """(M, C): likewise of each class."""
    mass: NDArray[np.float32]
    """(M,): mean weight over training rows."""
    dropping: NDArray[np.float32]
    """(M, 2): the score on validation rows and on held-out rows when the basis is dropped, less the score with all."""
    nearest: NDArray[np.int64]
    """(M, K): the training rows nearest to each basis, nearest first."""
    nearest_domains: NDArray[np.int64]
    """(M, K)"""
    nearest_targets: NDArray[Any]
    """(M, K) or (M, K, labels)"""
    nearest_pictures: NDArray[np.uint8]
    """(M, K, height, width, channels) with 1 or 3 channels, at most 48 pixels; or empty."""
    nearest_texts: NDArray[Any]
    """(M, K): the beginning of a text, or of a molecule's name; or empty."""
    nearest_columns: NDArray[Any]
    """(F,): names of the columns of a table; or empty."""
    nearest_values: NDArray[Any]
    """(M, K, F): their values as text; or empty."""
    pictures: NDArray[np.uint8]
    """(R, height, width, channels): small pictures of the sampled rows, at most 28 pixels; or empty."""
    texts: NDArray[Any]
    """(R,): what a text or a row of a table says in a few words; or empty."""

    @property
    def bases(self) -> int:
        """M."""
        return self.beta.shape[1]

    def write(self, folder: Path) -> Path:
        """Write ``insight.npz`` into a run folder, whole or not at all."""
        path = folder / INSIGHT
        arrays = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        with written_whole(path) as draft:
            np.savez_compressed(draft, format=np.array(FORMAT), **arrays)  # type: ignore[arg-type]
        return path

    @classmethod
    def read(cls, folder: Path) -> Insight | None:
        """What a run folder has; None where it has none."""
        path = folder / INSIGHT
        if not path.exists():
            return None
        arrays = read_arrays(path)
        found = arrays.pop("format", None)
        if found is None or found.shape or found.dtype.kind not in _WHOLE or int(found) != FORMAT:
            raise DataError(f"{path} has format {found}, this version reads {FORMAT}; delete it to have it made again")
        wanted = {field.name for field in fields(cls)}
        if missing := sorted(wanted - arrays.keys()):
            raise DataError(f"{path} lacks {missing[0]!r}; delete it to have it made again")
        _check_forms(path, arrays)
        _check_indices(path, arrays)
        return cls(**{name: arrays[name] for name in wanted})


def _check_forms(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse arrays that do not go together."""
    beta, nearest = arrays["beta"], arrays["nearest"]
    sides = {"1": 1, "2": 2, "3": 3, "R": arrays["rows"].size, "D": arrays["domain_names"].size}
    sides |= {"C": arrays["class_names"].size, "V": arrays["map_basis_of"].size, "F": arrays["nearest_columns"].size}
    sides |= {"M": beta.shape[1] if beta.ndim == 2 else 0, "K": nearest.shape[1] if nearest.ndim == 2 else 0}
    sides["D+M"] = sides["D"] + sides["M"]
    for name, (kinds, forms) in _FORMS.items():
        array = arrays[name]
        kind = not array.size or array.dtype.kind in kinds
        if not kind or not any(_has_form(array, form, sides) for form in forms):
            known = ", ".join(f"{letter} {side}" for letter, side in sides.items() if letter.isalpha())
            wanted = " or ".join(f"({form})" for form in forms)
            raise _wrong(path, name, f"has shape {array.shape} and type {array.dtype}, not {wanted} with {known}")
    for name in ("domain_names", "beta"):
        if not arrays[name].size:
            raise _wrong(path, name, "is empty")
    for name in ("pictures", "nearest_pictures"):
        if arrays[name].size and arrays[name].dtype != np.uint8:
            raise _wrong(path, name, f"has type {arrays[name].dtype}, not uint8")


def _has_form(array: NDArray[Any], form: str, sides: dict[str, int]) -> bool:
    if form == _EMPTY:
        return not array.size
    letters = form.split()
    return len(letters) == array.ndim and all(
        letter == "*" or side == sides[letter] for letter, side in zip(letters, array.shape, strict=True)
    )


def _check_indices(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse numbers of domains and classes that have no name; -1 is none of them."""
    counts = {"domains": arrays["domain_names"].size, "nearest_domains": arrays["domain_names"].size}
    if classes := arrays["class_names"].size:
        counts |= dict.fromkeys(("targets", "predicted", "nearest_targets"), classes)
    for name, count in counts.items():
        array = arrays[name]
        whole = array.dtype.kind in _WHOLE
        if array.size and (not whole or array.max() >= count or (array.dtype.kind == "i" and array.min() < -1)):
            raise _wrong(path, name, f"should be whole numbers below {count}")


def _wrong(path: Path, name: str, what: str) -> DataError:
    return DataError(f"{path}: {name!r} {what}; delete it to have it made again")
