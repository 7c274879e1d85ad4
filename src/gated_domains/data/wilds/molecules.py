"""OGB's molecules from its raw CSV files: 438 thousand graphs, packed without a Python object for any.

OGB's own reader keeps what it made of them as a pickle and unpickles that at every start; nothing is unpickled here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, decoding, row_name
from gated_domains.data.molecules.graphs import ATOM_FEATURES, BOND_FEATURES, Graphs

_AT_ONCE = 20_000  # molecules packed together: places take four times the memory of what goes there
_SPLITS = {"train": "train", "val": "valid", "test": "test"}
_NOT_LABELS = ("smiles", "mol_id")


@dataclass(frozen=True, eq=False)
class Molecules:
    """Graphs, answers (rows, labels; NaN where unknown), the number of the scaffold, and of the part (-1: none)."""

    graphs: Graphs
    labels: NDArray[np.float32]
    label_names: tuple[str, ...]
    scaffolds: NDArray[np.int64]
    parts: NDArray[np.int8]


def read_molecules(folder: Path) -> Molecules:
    """All molecules in a folder ``ogbg_molpcba`` as OGB unpacks it, in OGB's order."""
    raw = folder / "raw"
    nodes = _column(raw / "num-node-list.csv.gz")
    bonds = _column(raw / "num-edge-list.csv.gz")
    if len(bonds) != len(nodes):
        raise DataError(
            f"{raw}: num-node-list.csv.gz has {len(nodes):,} molecules and num-edge-list.csv.gz {len(bonds):,}; "
            "fetch them again"
        )
    labels = _labels(raw / "graph-label.csv.gz", len(nodes))
    scaffolds = _scaffolds(raw / "scaffold_group.npy", len(nodes))
    parts = _parts(folder / "split" / "scaffold", len(nodes))
    return Molecules(read_graphs(raw, nodes, bonds), labels, _label_names(folder, labels.shape[1]), scaffolds, parts)


def read_graphs(raw: Path, nodes: NDArray[np.int64], bonds: NDArray[np.int64]) -> Graphs:
    """Graphs from atoms and bonds one after the other. A bond stands there once, in a graph twice, as OGB has it."""
    atoms = _table(raw / "node-feat.csv.gz", ATOM_FEATURES, np.int16, int(nodes.sum()))
    ends = _table(raw / "edge.csv.gz", 2, np.int16, int(bonds.sum()))
    features = _table(raw / "edge-feat.csv.gz", BOND_FEATURES, np.int16, int(bonds.sum()))
    outside = (ends < 0) | (ends >= np.repeat(nodes, bonds)[:, None])
    if outside.any():
        row = int(np.argmax(outside.any(axis=1)))
        raise DataError(
            f"{raw / 'edge.csv.gz'}: {row_name(row)} joins atoms that its molecule does not have; fetch it again"
        )
    lengths = 2 + ATOM_FEATURES * nodes + 2 * (2 + BOND_FEATURES) * bonds
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = np.empty(offsets[-1], np.int16)
    values[offsets[:-1]], values[offsets[:-1] + 1] = nodes, 2 * bonds
    first_atom, first_bond = (np.concatenate([[0], np.cumsum(counts)]) for counts in (nodes, bonds))
    for start in range(0, len(nodes), _AT_ONCE):
        some = slice(start, min(start + _AT_ONCE, len(nodes)))
        of_atoms = slice(first_atom[some.start], first_atom[some.stop])
        of_bonds = slice(first_bond[some.start], first_bond[some.stop])
        _pack(values, offsets[some], nodes[some], bonds[some], atoms[of_atoms], ends[of_bonds], features[of_bonds])
    return Graphs(values, offsets)


def _pack(
    values: NDArray[np.int16],
    offsets: NDArray[np.int64],
    nodes: NDArray[np.int64],
    bonds: NDArray[np.int64],
    atoms: NDArray[np.int16],
    ends: NDArray[np.int16],
    features: NDArray[np.int16],
) -> None:
    """Write the parts of some molecules to their places: atoms, sources, targets, features of edges."""
    at = offsets + 2
    values[_places(at, ATOM_FEATURES * nodes)] = atoms.ravel()
    at = at + ATOM_FEATURES * nodes
    values[_places(at, 2 * bonds)] = ends.ravel()  # there and back: u v
    at = at + 2 * bonds
    values[_places(at, 2 * bonds)] = ends[:, ::-1].ravel()  # v u
    at = at + 2 * bonds
    values[_places(at, 2 * BOND_FEATURES * bonds)] = np.repeat(features, 2, axis=0).ravel()


def _places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places from each start on, as many as its length, one stretch after the other."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


def _table(path: Path, columns: int, dtype: Any, rows: int) -> NDArray[Any]:
    """A CSV file without a header as one array, block by block."""
    import pyarrow as pa
    from pyarrow import csv

    kinds = {f"f{place}": pa.from_numpy_dtype(dtype) for place in range(columns)}
    table, filled = np.empty((rows, columns), dtype), 0
    with (
        decoding(path),
        csv.open_csv(
            path,
            read_options=csv.ReadOptions(column_names=list(kinds), block_size=1 << 24),
            convert_options=csv.ConvertOptions(column_types=kinds, null_values=["", "nan", "NaN"]),
        ) as reader,
    ):
        for batch in reader:
            if filled + len(batch) > rows:
                raise DataError(
                    f"{path} has more than the {rows:,} rows that the lists of sizes ask for; fetch it again"
                )
            for place, column in enumerate(batch.columns):
                if column.null_count and np.dtype(dtype).kind != "f":
                    raise DataError(f"{path} has a cell without a number; fetch it again")
                table[filled : filled + len(batch), place] = column.to_numpy(zero_copy_only=False)
            filled += len(batch)
    if filled != rows:
        raise DataError(f"{path} has {filled:,} rows instead of {rows:,}; it is cut short, fetch it again")
    return table


def _column(path: Path) -> NDArray[np.int64]:
    """A CSV file of one column of whole numbers."""
    import pyarrow as pa
    from pyarrow import csv

    with decoding(path):
        found = csv.read_csv(
            path,
            read_options=csv.ReadOptions(column_names=["f0"]),
            convert_options=csv.ConvertOptions(column_types={"f0": pa.int64()}),
        )["f0"]
        if found.null_count or (found.to_numpy() < 0).any():
            raise DataError(f"{path} must hold whole numbers from 0 on; fetch it again")
        return found.to_numpy()


def _labels(path: Path, rows: int) -> NDArray[np.float32]:
    """Answers, NaN where nobody knows; as many columns as the file has, 128 in the published one."""
    import gzip

    with decoding(path), gzip.open(path, "rt") as file:
        columns = file.readline().count(",") + 1
    return _table(path, columns, np.float32, rows)


def _label_names(folder: Path, count: int) -> tuple[str, ...]:
    """The assays' names from the head of ``mapping/mol.csv.gz``, where that is there; else their numbers."""
    import csv
    import gzip

    path = folder / "mapping" / "mol.csv.gz"
    if path.is_file():
        with decoding(path), gzip.open(path, "rt") as file:
            names = tuple(name for name in next(csv.reader(file), []) if name not in _NOT_LABELS)
        if len(names) == count == len(set(names)):
            return names
    return tuple(f"assay {number}" for number in range(1, count + 1))


def _scaffolds(path: Path, rows: int) -> NDArray[np.int64]:
    with decoding(path):
        found = np.load(path, allow_pickle=False)
    if found.shape[:1] != (rows,) or found.size != rows or found.dtype.kind not in "iu":
        raise DataError(f"{path} must hold one whole number for each of {rows:,} molecules, got {found.shape}")
    return found.reshape(-1).astype(np.int64)


def _parts(folder: Path, rows: int) -> NDArray[np.int8]:
    """The part of every molecule, as indices into train, val, test."""
    parts = np.full(rows, -1, np.int8)
    for number, name in enumerate(_SPLITS.values()):
        path = folder / f"{name}.csv.gz"
        index = _column(path)
        if len(index) and index.max() >= rows:
            raise DataError(f"{path} names molecule {index.max():,}, and there are {rows:,}; fetch it again")
        if (parts[index] >= 0).any() or len(np.unique(index)) < len(index):
            raise DataError(f"{path} names a molecule that it or another part already has; fetch it again")
        parts[index] = number
    return parts


PART_NAMES = tuple(_SPLITS)
