"""Bemis-Murcko scaffolds: the rings of a molecule and what joins them. Molecules with one scaffold are one domain."""

from __future__ import annotations

from typing import Any

from gated_domains.data.molecules.features import rdkit

SCAFFOLD = "scaffold"
"""The domain that is computed where no column is called so."""
NO_RING = "(no ring)"


def scaffold_of(molecule: Any, *, doubtful: bool = False) -> str:
    """The scaffold of one of RDKit's molecules, as SMILES; molecules without a ring go together.

    RDKit cuts nothing out of a molecule that it finds ``doubtful``, which is then its own scaffold.
    """
    from rdkit.Chem.Scaffolds import MurckoScaffold

    if doubtful:
        return str(rdkit().MolToSmiles(molecule))
    return str(MurckoScaffold.MurckoScaffoldSmiles(mol=molecule)) or NO_RING
