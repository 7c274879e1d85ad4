"""Molecules of a table as inputs: fingerprints or graphs, and their scaffolds as domains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean, row_name
from gated_domains.data.inputs import Inputs
from gated_domains.data.molecules.fingerprints import BITS, Bits
from gated_domains.data.molecules.graphs import Graphs
from gated_domains.data.molecules.parsing import computed

FORMS = ("fingerprints", "graphs")


@dataclass(frozen=True, eq=False)
class Molecules:
    """What is made of SMILES. ``scaffolds``, where asked for, are indices into ``scaffold_names``."""

    inputs: Inputs
    notes: tuple[str, ...]
    scaffolds: NDArray[np.int64] | None = None
    scaffold_names: tuple[str, ...] = ()


def read_molecules(
    smiles: Sequence[str], *, form: str | None = None, scaffolds: bool = False, start: int = 0
) -> Molecules:
    """Molecules in this form, by default fingerprints; a SMILES that cannot be read is refused with its row.

    ``start``: the row of the first in its file, for what is noted of rows.
    """
    form = form or FORMS[0]
    if form not in FORMS:
        raise DataError(f"--as {form}: molecules are seen as fingerprints or as graphs{did_you_mean(form, FORMS)}")
    found = computed(smiles, (form, *(("scaffolds",) if scaffolds else ())))
    if form == "fingerprints":
        inputs: Inputs = Bits(np.unpackbits(found["bits"], axis=1, count=BITS), digests=found["digests"])
    else:
        inputs = Graphs(found["values"], found["offsets"], digests=found["digests"])
    notes = tuple(_doubts(smiles, found["doubtful"], start))
    if not scaffolds:
        return Molecules(inputs, notes)
    return Molecules(inputs, notes, *_sorted(found["scaffolds"], found["scaffold_names"]))


def _sorted(codes: NDArray[np.int64], letters: NDArray[np.uint8]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Scaffolds in the order of the alphabet: the same molecules in another order give the same domains."""
    names = letters.tobytes().decode().split("\n")
    order = sorted(range(len(names)), key=names.__getitem__)
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    return place[codes], tuple(names[number] for number in order)


def _doubts(smiles: Sequence[str], doubtful: NDArray[np.int64], start: int) -> list[str]:
    if len(doubtful) == 0:
        return []
    first = int(doubtful[0])
    return [
        f"molecules with more bonds at an atom than RDKit allows: {len(doubtful):,} (the first, in "
        f"{row_name(start + first)}, is {smiles[first][:60]!r}); they are taken as they are written"
    ]
