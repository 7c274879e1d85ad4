"""SMILES -> RDKit's molecules, and what is made of them: computed once, and found again on disk by the SMILES."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, RowError, cache_dir, written_whole
from gated_domains.data.inputs import digest_of_bytes
from gated_domains.data.molecules.features import graph_of_molecule, rdkit
from gated_domains.data.molecules.fingerprints import BITS, fingerprint_of
from gated_domains.data.molecules.graphs import packed
from gated_domains.data.molecules.scaffolds import scaffold_of
from gated_domains.data.npz import read_arrays
from gated_domains.data.progress import progress

Arrays = dict[str, NDArray[Any]]
_FORMAT = 1
_MANY = 2_000  # molecules, from which on it takes long enough to be told of


def computed(smiles: Sequence[str], wanted: Sequence[str]) -> Arrays:
    """Of every molecule ``fingerprints`` (bits), ``graphs`` (values and offsets) or ``scaffolds`` (codes and names).

    With them come ``digests``, equal for the same molecule however it is written, and the rows that are ``doubtful``.
    """
    chemistry = rdkit()
    key = _key(smiles, chemistry.rdBase.rdkitVersion)
    files = {name: cache_dir() / "molecules" / f"{key}-{name}.npz" for name in ("molecules", *wanted)}
    kept = {name: found for name, path in files.items() if (found := _kept(path, len(smiles))) is not None}
    absent = [name for name in files if name not in kept]
    if absent:
        made = _made(smiles, absent)
        for name in absent:
            with written_whole(files[name]) as draft:
                np.savez(draft, **made[name])  # type: ignore[arg-type]
        kept |= made
    return {name: values for part in kept.values() for name, values in part.items()}


def _made(smiles: Sequence[str], wanted: Sequence[str]) -> dict[str, Arrays]:
    """Every part that is wanted, in one go through the molecules."""
    parts = {name: _PARTS[name]() for name in wanted}
    with _told(len(smiles)) as advance:
        for molecule, doubtful in _molecules(smiles):
            for part in parts.values():
                part.add(molecule, doubtful)
            advance(1)
    return {name: part.arrays() for name, part in parts.items()}


def _molecules(smiles: Sequence[str]) -> Iterator[tuple[Any, bool]]:
    """Each molecule, and whether it is doubtful; what cannot be read is refused, with how many there are."""
    for row, text in enumerate(smiles):
        molecule, doubtful = _parsed(text)
        if molecule is None:
            others = sum(_parsed(other)[0] is None for other in smiles[row + 1 :])
            found = "is empty" if not text.strip() else f"holds {text[:80]!r}, which RDKit cannot read as a molecule"
            raise RowError(partial(_unreadable, found), row=row, count=others + 1, of=len(smiles))
        yield molecule, doubtful


def _unreadable(found: str, where: str, count: int, of: int) -> str:
    return f"{where} {found} (such rows: {count:,}); correct or drop those rows"


def _parsed(text: str) -> tuple[Any, bool]:
    """RDKit's molecule, or None; with more bonds at an atom than RDKit allows it is read as written, and doubtful."""
    chemistry = rdkit()
    molecule = chemistry.MolFromSmiles(text)
    if molecule is not None:
        return (molecule if molecule.GetNumAtoms() else None), False
    molecule = chemistry.MolFromSmiles(text, sanitize=False)
    if molecule is None or not molecule.GetNumAtoms():
        return None, False
    steps = chemistry.SanitizeFlags
    allowed = steps.SANITIZE_ALL ^ steps.SANITIZE_PROPERTIES ^ steps.SANITIZE_CLEANUP
    molecule.UpdatePropertyCache(strict=False)
    failed = chemistry.SanitizeMol(molecule, allowed, catchErrors=True)
    return (None if failed != steps.SANITIZE_NONE else molecule), True


class _Molecules:
    """What tells molecules apart, and which are doubtful."""

    def __init__(self) -> None:
        self.digests: list[int] = []
        self.doubtful: list[bool] = []

    def add(self, molecule: Any, doubtful: bool) -> None:
        self.digests.append(digest_of_bytes(rdkit().MolToSmiles(molecule).encode()))
        self.doubtful.append(doubtful)

    def arrays(self) -> Arrays:
        return {"digests": np.array(self.digests, np.uint64), "doubtful": np.flatnonzero(self.doubtful)}


class _Fingerprints:
    def __init__(self) -> None:
        self.rows: list[NDArray[np.uint8]] = []

    def add(self, molecule: Any, doubtful: bool) -> None:
        self.rows.append(np.packbits(fingerprint_of(molecule)))

    def arrays(self) -> Arrays:
        return {"bits": np.array(self.rows, np.uint8).reshape(-1, BITS // 8)}


class _Graphs:
    def __init__(self) -> None:
        self.rows: list[NDArray[np.int16]] = []

    def add(self, molecule: Any, doubtful: bool) -> None:
        self.rows.append(packed(*graph_of_molecule(molecule)))

    def arrays(self) -> Arrays:
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in self.rows])]).astype(np.int64)
        return {"values": np.concatenate(self.rows), "offsets": offsets}


class _Scaffolds:
    def __init__(self) -> None:
        self.codes: list[int] = []
        self.names: dict[str, int] = {}

    def add(self, molecule: Any, doubtful: bool) -> None:
        name = scaffold_of(molecule, doubtful=doubtful)
        self.codes.append(self.names.setdefault(name, len(self.names)))

    def arrays(self) -> Arrays:
        # Not as an array of text, which has as many places for every name as the longest one needs.
        letters = np.frombuffer("\n".join(self.names).encode(), np.uint8)
        return {"scaffolds": np.array(self.codes, np.int64), "scaffold_names": letters}


_PARTS: Mapping[str, Callable[[], Any]] = {
    "molecules": _Molecules,
    "fingerprints": _Fingerprints,
    "graphs": _Graphs,
    "scaffolds": _Scaffolds,
}


def _told(count: int) -> AbstractContextManager[Callable[[int], None]]:
    return progress("reading molecules", count) if count >= _MANY else nullcontext(lambda steps: None)


def _kept(path: Path, rows: int) -> Arrays | None:
    """What lies in the cache; None where nothing does, or something broken."""
    if not path.is_file():
        return None
    try:
        found = read_arrays(path)
    except DataError:
        return None
    first = next(name for name in ("digests", "bits", "offsets", "scaffolds") if name in found)
    return found if len(found[first]) - (first == "offsets") == rows else None


def _key(smiles: Sequence[str], version: str) -> str:
    hashed = hashlib.blake2b(f"{_FORMAT} {version} {len(smiles)}\n".encode(), digest_size=16)
    hashed.update("\n".join(smiles).encode("utf-8", "replace"))
    return hashed.hexdigest()
