"""Made molecules in rows of whole numbers, and as the lists they were made of: what tests of graphs share."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from gated_domains.backbones.graphs_in_rows import ATOM_SIZES, BOND_SIZES


class MadeGraph(NamedTuple):
    atoms: list[list[int]]
    sources: list[int]
    targets: list[int]
    bonds: list[list[int]]


def made_graphs(count: int = 6, *, seed: int = 0, smallest: int = 1, largest: int = 9) -> list[MadeGraph]:
    """Random graphs of some atoms; those of one atom have no bond."""
    chance = np.random.default_rng(seed)
    graphs = []
    for _ in range(count):
        nodes = int(chance.integers(smallest, largest + 1))
        atoms = [[int(chance.integers(size)) for size in ATOM_SIZES] for _ in range(nodes)]
        graph = MadeGraph(atoms, [], [], [])
        for one in range(1, nodes):
            other, bond = int(chance.integers(one)), [int(chance.integers(size)) for size in BOND_SIZES]
            for source, target in ((one, other), (other, one)):
                graph.sources.append(source)
                graph.targets.append(target)
                graph.bonds.append(bond)
        graphs.append(graph)
    return graphs


def in_rows(graphs: list[MadeGraph], *, spare: int = 0) -> torch.Tensor:
    """The graphs in rows, padded to the longest and by ``spare`` columns more."""
    rows = []
    for graph in graphs:
        head = [len(graph.atoms), len(graph.sources)]
        flat = [*chain(*graph.atoms), *graph.sources, *graph.targets, *chain(*graph.bonds)]
        rows.append(head + flat)
    width = max(map(len, rows)) + spare
    return torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.int16)
