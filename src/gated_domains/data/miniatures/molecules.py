"""Molecules for the miniature of MolPCBA: those of a file, or well-known ones and variations of drug-like scaffolds."""

from __future__ import annotations

from importlib.resources import files
from itertools import product
from pathlib import Path

import numpy as np

from gated_domains.data.errors import DataError, listing
from gated_domains.data.molecules.features import rdkit
from gated_domains.data.readers.table_files import read_table_file

# Where {0} and {1} stand, a group may be put. Among drugs some scaffolds are common and most are rare; so here, where
# each is varied less often than the one before.
_SCAFFOLDS = (
    "c1cc({0})ccc1{1}", "c1cc({0})ncc1{1}", "c1cc2cc({0})ccc2cc1{1}", "c1cc2[nH]c({0})cc2cc1{1}",
    "c1cc2nc({0})ccc2cc1{1}", "c1c({0})scc1{1}", "O=C(Nc1ccc({0})cc1)c1ccc({1})cc1", "c1cc({0})ccc1-c1ccc({1})cc1",
    "c1cc2[nH]c({0})nc2cc1{1}", "C1CN({0})CCN1c1ccc({1})cc1", "c1nc({0})ncc1{1}", "O=c1cc({0})c2ccc({1})cc2o1",
    "C1CC({0})CCC1{1}", "O=S(=O)(Nc1ccc({0})cc1)c1ccc({1})cc1", "c1cc2sc({0})nc2cc1{1}", "C1CN({0})CCC1{1}",
    "O=C(c1ccc({0})cc1)c1ccc({1})cc1", "c1cc({0})ccc1Oc1ccc({1})cc1", "c1cc2oc({0})cc2cc1{1}", "c1c({0})n[nH]c1{1}",
    "C1CCc2cc({0})cc({1})c2C1", "c1nc({0})sc1{1}", "c1cc({0})ccc1C=Cc1ccc({1})cc1", "O=C1N({0})c2ccc({1})cc2C1",
    "C1COCCN1c1ccc({0})c({1})c1", "c1cc({0})c2ncc({1})cc2c1", "O=C(Nc1ccc({0})cc1)Nc1ccc({1})cc1",
    "c1cc2c(cc1{0})Nc1cc({1})ccc1S2", "c1oc({0})nc1{1}", "O=c1[nH]c({0})nc2ccc({1})cc12",
    "c1cc2c(cc1{0})[nH]c1ccc({1})cc12", "C1CC2CC({0})CC1N2{1}", "c1nc({0})c2nc[nH]c2n1", "C1c2cc({0})ccc2OCO1",
)  # fmt: skip
_GROUPS = (
    "[H]", "C", "O", "N", "F", "Cl", "Br", "OC", "C(F)(F)F", "C#N", "C(=O)O", "C(=O)N", "S(=O)(=O)N",
    "[N+](=O)[O-]", "CC", "C(C)C", "N(C)C", "C(=O)OC", "SC", "CO", "CN1CCCC1", "NC(C)=O",
)  # fmt: skip
_MOST_ATOMS = 80


def molecules(count: int, *, path: Path | None, rng: np.random.Generator) -> list[str]:
    """So many different molecules as RDKit's canonical SMILES."""
    made = _of_file(path) if path is not None else _varied(count, rng)
    found: list[str] = []
    known: set[str] = set()
    chem = rdkit()
    for smiles in made if path is None else [made[row] for row in rng.permutation(len(made))]:
        molecule = chem.MolFromSmiles(smiles)
        if molecule is None or not 1 < molecule.GetNumAtoms() <= _MOST_ATOMS:
            continue
        plain = chem.MolToSmiles(molecule)
        if plain not in known:
            known.add(plain)
            found.append(plain)
        if len(found) == count:
            return found
    where = "the built-in list" if path is None else str(path)
    raise DataError(f"{where}: there are {len(found):,} different molecules to be had; ask for no more rows than that")


def _varied(count: int, rng: np.random.Generator) -> list[str]:
    """Well-known molecules, then scaffolds with groups, the first scaffolds most often."""
    well_known = files(__package__).joinpath("molecules.smi").read_text("utf-8").splitlines()
    made = [line.split()[0] for line in well_known]
    pairs = list(product(_GROUPS, repeat=2))
    wanted = 1.5 * max(count - len(made), 0)  # some of them turn out to be the same molecule
    share = 1 / np.arange(1, len(_SCAFFOLDS) + 1) ** 0.7
    variations = []
    for scaffold, often in zip(_SCAFFOLDS, share / share.sum(), strict=True):
        chosen = rng.permutation(len(pairs))[: max(round(wanted * often), 4)]
        variations += [scaffold.format(*pairs[pair]) for pair in chosen]
    return made + [variations[place] for place in rng.permutation(len(variations))]


def _of_file(path: Path) -> list[str]:
    table = read_table_file(path)
    columns = [name for name in table.column_names if name.casefold() == "smiles"]
    if not columns:
        raise DataError(f"{path}: no column is called SMILES; there are {listing(table.column_names)}")
    return [smiles for smiles in table[columns[0]].to_pylist() if smiles]
