"""Morgan fingerprints: which neighbourhoods of atoms a molecule has, as 2,048 zeros and ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, row_name
from gated_domains.data.inputs import Features, Rows

RADIUS, BITS = 2, 2_048


class Bits(Features):
    """Vectors of zeros and ones, a byte each; a model gets float32. ``digests``: of what they were made of, if known.

    Two molecules may well have the same fingerprint; they are copies where they have the same SMILES.
    """

    kind = "bits"

    def __init__(self, values: NDArray[Any], *, digests: NDArray[np.uint64] | None = None) -> None:
        if values.ndim != 2 or values.shape[1] == 0 or values.dtype != np.uint8:
            raise DataError(f"bits must be bytes of shape (rows, bits), got {values.dtype} of shape {values.shape}")
        if values.size and values.max() > 1:
            row = int(np.argmax(values.max(axis=1) > 1))
            raise DataError(f"bits must be 0 or 1, but {row_name(row)} holds {values[row].max()}")
        self.values, self._digests = values, digests

    def digests(self) -> NDArray[np.uint64]:
        return super().digests() if self._digests is None else self._digests

    def take(self, rows: Rows) -> Bits:
        return Bits(self.values[rows], digests=None if self._digests is None else self._digests[rows])

    def describe(self) -> str:
        return f"fingerprints, {self.values.shape[1]:,} bits each"


def fingerprint_of(molecule: Any) -> NDArray[np.uint8]:
    """The Morgan fingerprint of one of RDKit's molecules: neighbourhoods up to two bonds away."""
    from rdkit.Chem import rdFingerprintGenerator

    if not _generators:
        _generators.append(rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=BITS))
    return np.asarray(_generators[0].GetFingerprintAsNumPy(molecule), np.uint8)


_generators: list[Any] = []  # made once: it is not free
