"""Arrays that were taken from weights once and are kept in a run folder, so that a figure is drawn without them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, written_whole
from gated_domains.data.npz import read_arrays

_Kept = TypeVar("_Kept", bound="KeptArrays")


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptArrays:
    """Named arrays in one small file."""

    FILE: ClassVar[str] = ""

    def write(self, folder: Path) -> Path:
        """Write them into a run folder, whole or not at all."""
        path = folder / self.FILE
        arrays = {each.name: np.asarray(getattr(self, each.name)) for each in fields(self)}
        with written_whole(path) as draft:
            np.savez_compressed(draft, **arrays)  # type: ignore[arg-type]
        return path

    @classmethod
    def read(cls: type[_Kept], folder: Path) -> _Kept | None:
        """What a run folder has; None where it has none."""
        path = folder / cls.FILE
        if not path.exists():
            return None
        arrays = read_arrays(path)
        wanted = {each.name for each in fields(cls)}
        if wanted != arrays.keys():
            raise DataError(f"{path} holds {', '.join(sorted(arrays))}; delete it to have it made again")
        return cls(**arrays)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassPlane(KeptArrays):
    """R held-out rows as a body sees them: in the plane, and how well C classes hold together."""

    FILE: ClassVar[str] = "class_plane.npz"

    rows: NDArray[np.float32]
    """(R, 2)"""
    labels: NDArray[np.int64]
    """(R,): into the classes."""
    classes: NDArray[Any]
    """(C,): their names."""
    in_features: NDArray[np.float64]
    """(C,): the mean silhouette of the rows of each class, in the space of the features."""
    in_plane: NDArray[np.float64]
    """(C,): likewise in the plane."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DomainPlane(KeptArrays):
    """R rows of D domains and V vectors of M bases in one plane."""

    FILE: ClassVar[str] = "domain_plane.npz"

    rows: NDArray[np.float32]
    """(R, 2)"""
    domains: NDArray[np.int64]
    """(R,): into the names."""
    names: NDArray[Any]
    """(D,): text."""
    unseen: NDArray[np.bool_]
    """(D,)"""
    bases: NDArray[np.float32]
    """(V, 2)"""
    basis_of: NDArray[np.int64]
    """(V,)"""
    width: NDArray[np.float64]
    """(M,): root mean square distance of its vectors from their mean, over that of the source rows from theirs."""
    away: NDArray[np.float64]
    """(M,): distance of its mean from the nearest source row, over the same."""
