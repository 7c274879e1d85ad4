"""A miniature of OGB-MolPCBA: molecules as graphs with 128 assays, most not measured, split by scaffold.

Scaffolds are those of Murcko; the common ones are trained on, the rare ones are held out, by the rule of the original:
scaffolds from the most to the least frequent fill training, then validation, then test. The files are those that OGB
offers for download, one line for each atom and each bond.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.miniatures.files import write_gzip_csv
from gated_domains.data.miniatures.miniature import Miniature, Order
from gated_domains.data.miniatures.molecules import molecules
from gated_domains.data.miniatures.molpcba_tasks import TASKS, answers
from gated_domains.data.molecules.features import graph_of, molecule_of, rdkit
from gated_domains.data.molecules.scaffolds import scaffold_of

_SHARES = {"train": 0.8, "valid": 0.9, "test": 1.0}  # up to where each part is filled


def write(folder: Path, order: Order) -> None:
    """``raw/*.csv.gz``, ``raw/scaffold_group.npy``, ``split/scaffold/*.csv.gz`` and ``mapping/mol.csv.gz``."""
    rdkit()
    smiles = molecules(order.rows, path=order.smiles, rng=order.rng("molecules"))
    labels = answers(smiles, order.rng("assays"))
    graphs = [graph_of(one) for one in smiles]
    raw = folder / "raw"
    write_gzip_csv(raw / "num-node-list.csv.gz", [[len(atoms)] for atoms, _, _ in graphs])
    # Once for each bond: OGB's reader adds the way back.
    write_gzip_csv(raw / "num-edge-list.csv.gz", [[edges.shape[1] // 2] for _, edges, _ in graphs])
    write_gzip_csv(raw / "node-feat.csv.gz", (atom.tolist() for atoms, _, _ in graphs for atom in atoms))
    write_gzip_csv(raw / "edge.csv.gz", (pair for _, edges, _ in graphs for pair in edges[:, ::2].T.tolist()))
    write_gzip_csv(raw / "edge-feat.csv.gz", (bond.tolist() for _, _, bonds in graphs for bond in bonds[::2]))
    shown = [["" if np.isnan(value) else value for value in row] for row in labels.tolist()]
    write_gzip_csv(raw / "graph-label.csv.gz", shown)
    group = _scaffold_groups(smiles)
    with open(raw / "scaffold_group.npy", "wb") as file:
        np.lib.format.write_array(file, group, allow_pickle=False)
    for name, rows in _parts(group).items():
        write_gzip_csv(folder / "split" / "scaffold" / f"{name}.csv.gz", [[row] for row in rows])
    names = [f"PCBA-miniature-{task}" for task in range(TASKS)]
    lines = [[*row, one, f"MINI{number}"] for number, (row, one) in enumerate(zip(shown, smiles, strict=True))]
    write_gzip_csv(folder / "mapping" / "mol.csv.gz", [[*names, "smiles", "mol_id"], *lines])


def _scaffold_groups(smiles: list[str]) -> NDArray[np.int64]:
    """A number for each molecule's scaffold, from the most to the least frequent."""
    scaffolds = [scaffold_of(molecule_of(one)) for one in smiles]
    often = Counter(scaffolds)
    order = sorted(often, key=lambda scaffold: (-often[scaffold], scaffold))
    number = {scaffold: place for place, scaffold in enumerate(order)}
    return np.array([number[scaffold] for scaffold in scaffolds], np.int64)


def _parts(group: NDArray[np.int64]) -> dict[str, list[int]]:
    """Rows of each part; no scaffold is in two."""
    sizes = np.bincount(group)
    end = np.cumsum(sizes) / len(group)  # how full all parts are when a scaffold has been given out
    place = np.searchsorted(list(_SHARES.values()), end - 1e-9, side="left")
    part = place[group]
    return {name: np.flatnonzero(part == number).tolist() for number, name in enumerate(_SHARES)}


MINIATURE = Miniature(
    folder="ogbg_molpcba", release="RELEASE_v1.txt", rows=900, least=200, write=write, takes_smiles=True
)
