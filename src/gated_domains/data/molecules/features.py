"""A molecule as a graph: nine numbers of each atom and three of each bond, those that OGB's molecules have.

Each number is a place in a list below; what is in none of them stands at the end of its list. A bond stands there
twice, once in each direction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError

Int16 = NDArray[np.int16]
Graph = tuple[Int16, Int16, Int16]

_CHIRALITIES = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
_HYBRIDISATIONS = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
_BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
_STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")

# How many values each number can take, the last of most lists being "none of these": sizes of embedding tables.
ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_SIZES = (5, 6, 2)


def rdkit() -> Any:
    """RDKit's ``Chem``, or what to install."""
    try:
        from rdkit import Chem, RDLogger
    except ImportError as error:
        cure = "pip install 'gated-domains[wilds]'"
        raise DataError(f"molecules are read by RDKit, which is not installed; {cure}") from error
    RDLogger.DisableLog("rdApp.*")  # it writes a page about every SMILES it doubts; we say what is wrong ourselves
    return Chem


def molecule_of(smiles: str) -> Any:
    """RDKit's molecule, or a DataError that says which SMILES is none."""
    molecule = rdkit().MolFromSmiles(smiles)
    if molecule is None:
        raise DataError(f"{smiles!r} is no molecule that RDKit can read; correct it, or leave the row out")
    return molecule


def graph_of(smiles: str) -> Graph:
    """Atoms (nodes, 9), bonds as pairs of atoms (2, edges) and their numbers (edges, 3), all int16."""
    molecule = molecule_of(smiles)
    if molecule.GetNumAtoms() == 0:
        raise DataError(f"{smiles!r} has no atoms; leave the row out")
    return graph_of_molecule(molecule)


def graph_of_molecule(molecule: Any) -> Graph:
    """The graph of one of RDKit's molecules, which has an atom at least; see ``graph_of``."""
    atoms = [_atom(atom) for atom in molecule.GetAtoms()]
    pairs: list[tuple[int, int]] = []
    bonds: list[tuple[int, ...]] = []
    for bond in molecule.GetBonds():
        start, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        pairs += [(start, end), (end, start)]
        bonds += [_bond(bond)] * 2
    edges = np.array(pairs, np.int16).reshape(-1, 2).T.copy()
    return np.array(atoms, np.int16), edges, np.array(bonds, np.int16).reshape(-1, len(BOND_SIZES))


def _atom(atom: Any) -> tuple[int, ...]:
    number = atom.GetAtomicNum()
    charge = atom.GetFormalCharge()
    return (
        number - 1 if 1 <= number <= 118 else 118,
        _place(_CHIRALITIES, str(atom.GetChiralTag())),
        min(atom.GetTotalDegree(), 11),
        charge + 5 if -5 <= charge <= 5 else 11,
        min(atom.GetTotalNumHs(), 9),
        min(atom.GetNumRadicalElectrons(), 5),
        _place(_HYBRIDISATIONS, str(atom.GetHybridization())),
        int(atom.GetIsAromatic()),
        int(atom.IsInRing()),
    )


def _bond(bond: Any) -> tuple[int, ...]:
    stereo = str(bond.GetStereo())
    if stereo not in _STEREO:
        # OGB's list ends without "none of these"; what newer RDKit adds to it (atropisomers) is stereo of some kind.
        stereo = "STEREOANY"
    return _place(_BONDS, str(bond.GetBondType())), _STEREO.index(stereo), int(bond.GetIsConjugated())


def _place(known: tuple[str, ...], name: str) -> int:
    return known.index(name) if name in known else len(known)
