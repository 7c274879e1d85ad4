"""How long texts are, and how large molecules: what can be told of samples that are no pictures and no columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.inputs import Inputs
from gated_domains.data.molecules.fingerprints import Bits
from gated_domains.data.molecules.graphs import Graphs
from gated_domains.data.text.inputs import Text


def sizes_of(inputs: Inputs) -> tuple[str, NDArray[np.int64]] | None:
    """What is counted (letters, atoms, bits that are set), and how many each sample has; None for other inputs."""
    if isinstance(inputs, Text):
        return "letters", inputs.lengths
    if isinstance(inputs, Graphs):
        return "atoms", inputs.nodes
    if isinstance(inputs, Bits):
        return "bits set", inputs.values.sum(axis=1, dtype=np.int64)
    return None
