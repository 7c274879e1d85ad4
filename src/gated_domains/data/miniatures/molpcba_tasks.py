"""What the 128 assays of the miniature of MolPCBA ask: whether a molecule has certain groups, or is of a certain kind.

Some ask for one thing, some for two at once, some for one or the other, and some for exactly one of two: a network
learns them on scaffolds it has seen, and is surer there than elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.molecules.features import rdkit

TASKS = 128
_GROUPS = (
    "[CX3](=O)[OX2H1]", "[NX3;H2]", "[OX2H]", "c[OH]", "[F,Cl,Br]", "C(F)(F)F", "C#N", "[N+](=O)[O-]", "S(=O)(=O)N",
    "C(=O)N", "C(=O)O[#6]", "c1ccncc1", "[nH]", "c1ccsc1", "[NX3;H0;!$(N-C=O)]", "[OX2]([CH3])", "C=C", "[SX2]",
    "N1CCNCC1", "c-c", "c1ccc2ccccc2c1", "[CX4H]([#6])([#6])[#6]",
)  # fmt: skip
_RATES = 0.03, 0.6  # assays that fewer or more molecules pass are not asked for


def answers(smiles: list[str], rng: np.random.Generator) -> NDArray[np.float64]:
    """(molecules, 128): 1 active, 0 not, NaN not measured, which six in ten are."""
    facts = _facts(smiles)
    tasks: list[NDArray[np.bool_]] = []
    ways: tuple[Callable[..., Any], ...] = (np.logical_and, np.logical_or, np.logical_xor)
    while len(tasks) < TASKS:
        first, second = (int(place) for place in rng.choice(facts.shape[1], 2, replace=False))
        asked = facts[:, first]
        if rng.random() < 0.75:
            asked = ways[rng.integers(len(ways))](asked, facts[:, second])
        if _RATES[0] <= asked.mean() <= _RATES[1]:
            tasks.append(asked)
    truth = np.stack(tasks, axis=1)
    wrong = rng.random(truth.shape) < 0.02
    missing = rng.random(truth.shape) < rng.uniform(0.4, 0.8, TASKS)
    missing[np.arange(len(truth)), rng.integers(TASKS, size=len(truth))] = False  # each molecule was measured once
    return np.where(missing, np.nan, (truth ^ wrong).astype(np.float64))


def _facts(smiles: list[str]) -> NDArray[np.bool_]:
    """(molecules, facts): groups that are there, and whether size, rings and hetero atoms are above the middle."""
    chem = rdkit()
    patterns = [chem.MolFromSmarts(group) for group in _GROUPS]
    found = [chem.MolFromSmiles(one) for one in smiles]
    groups = np.array([[molecule.HasSubstructMatch(pattern) for pattern in patterns] for molecule in found])
    counts = np.array(
        [
            (
                molecule.GetNumAtoms(),
                molecule.GetRingInfo().NumRings(),
                sum(atom.GetAtomicNum() == 7 for atom in molecule.GetAtoms()),
                sum(atom.GetAtomicNum() == 8 for atom in molecule.GetAtoms()),
                sum(atom.GetIsAromatic() for atom in molecule.GetAtoms()),
            )
            for molecule in found
        ]
    )
    return np.concatenate([groups, counts > np.median(counts, axis=0)], axis=1)
