"""A folder as OGB unpacks its molecules into, written by hand: what tests of its readers share."""

from __future__ import annotations

import gzip
from itertools import accumulate
from pathlib import Path

import numpy as np

ATOM_SIZES, BOND_SIZES = (119, 4, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)


def write_ogb(folder: Path, *, molecules: int = 40, tasks: int = 128, seed: int = 0) -> Path:
    """Random molecules, some of one atom without a bond, with answers of which more than half are unknown."""
    chance = np.random.default_rng(seed)
    nodes = chance.integers(1, 12, molecules)
    nodes[:2] = 1
    bonds = [0 if count == 1 else int(count - 1 + chance.integers(0, 3)) for count in nodes]
    write_rows(folder / "raw" / "num-node-list.csv.gz", [[count] for count in nodes])
    write_rows(folder / "raw" / "num-edge-list.csv.gz", [[count] for count in bonds])
    atoms = [[chance.integers(size) for size in ATOM_SIZES] for _ in range(nodes.sum())]
    write_rows(folder / "raw" / "node-feat.csv.gz", atoms)
    ends = [chance.integers(count, size=2) for count, some in zip(nodes, bonds, strict=True) for _ in range(some)]
    write_rows(folder / "raw" / "edge.csv.gz", ends)
    write_rows(folder / "raw" / "edge-feat.csv.gz", [[chance.integers(size) for size in BOND_SIZES] for _ in ends])
    answers = [[chance.choice(["", "0.0", "1.0"], p=[0.6, 0.2, 0.2]) for _ in range(tasks)] for _ in nodes]
    write_rows(folder / "raw" / "graph-label.csv.gz", answers)
    np.save(folder / "raw" / "scaffold_group.npy", chance.integers(0, 9, molecules))
    order = chance.permutation(molecules)
    cut = [0, *accumulate((molecules * 8 // 10, molecules // 10)), molecules]
    for part, start, stop in zip(("train", "valid", "test"), cut[:-1], cut[1:], strict=True):
        write_rows(folder / "split" / "scaffold" / f"{part}.csv.gz", [[row] for row in order[start:stop]])
    (folder / "RELEASE_v1.txt").write_text("")
    return folder


def write_rows(path: Path, rows: list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(str(cell) for cell in row) + "\n" for row in rows)


def read_rows(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt") as file:
        return [line.rstrip("\n").split(",") for line in file]
