"""Graphs in rows: a batch of molecules as one tensor of whole numbers, and as the tensors that a network walks over.

A row is ``[nodes, edges, x, sources, targets, edge_attr, -1, -1, ...]``: ``x`` has OGB's 9 numbers an atom and
``edge_attr`` its 3 numbers a bond, atom by atom and bond by bond; every bond stands there twice, once for each way.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from gated_domains.data.errors import DataError

HEADER = 2  # numbers before the atoms: how many atoms and how many edges

#: How many values each of OGB's atom features has: atomic number, chirality, degree, formal charge, hydrogens, radical
#: electrons, hybridisation, aromatic, in a ring.
ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
#: Likewise of a bond: type, stereo, conjugated.
BOND_SIZES = (5, 6, 2)


class Graphs(NamedTuple):
    """The graphs of a batch as one graph of many parts, as torch_geometric has it."""

    x: Int64[Tensor, "nodes atom_features"]
    edge_index: Int64[Tensor, "2 edges"]
    edge_attr: Int64[Tensor, "edges bond_features"]
    graph: Int64[Tensor, " nodes"]
    """Which row a node came from."""


def unpacked(rows: Int[Tensor, "batch columns"]) -> Graphs:
    """The graphs that stand in rows; nodes are numbered through the batch. Values are not checked here."""
    rows = checked_rows(rows).long()
    atoms, bonds = len(ATOM_SIZES), len(BOND_SIZES)
    nodes, edges = rows[:, 0], rows[:, 1]
    lengths = torch.stack([torch.full_like(nodes, HEADER), atoms * nodes, edges, edges, bonds * edges])
    ends = lengths.cumsum(0).unsqueeze(-1)
    place = torch.arange(rows.shape[1], device=rows.device)
    # Masks read row by row and from left to right, which is the order in which the parts were written.
    x, sources, targets, attributes = (rows[(place >= ends[i]) & (place < ends[i + 1])] for i in range(4))
    first = nodes.cumsum(0) - nodes
    shift = first.repeat_interleave(edges)
    graph = torch.arange(len(rows), device=rows.device).repeat_interleave(nodes)
    return Graphs(
        x.reshape(-1, atoms),
        torch.stack([sources + shift, targets + shift]),
        attributes.reshape(-1, bonds),
        graph,
    )


def atoms_side_by_side(
    rows: Int[Tensor, "batch columns"],
) -> tuple[Int64[Tensor, "batch most atom_features"], Bool[Tensor, "batch most"]]:
    """The atoms of each graph, padded to as many as a row has room for, and which of them are there."""
    rows = checked_rows(rows)
    atoms = len(ATOM_SIZES)
    most = (rows.shape[1] - HEADER) // atoms
    there = torch.arange(most, device=rows.device) < rows[:, :1]
    x = rows[:, HEADER : HEADER + most * atoms].reshape(len(rows), most, atoms).long()
    return torch.where(there.unsqueeze(-1), x, 0), there


def checked_rows(rows: Tensor) -> Tensor:
    """The rows themselves; what cannot be rows of graphs is refused by its shape and kind of numbers alone."""
    if rows.dim() != 2 or rows.shape[1] < HEADER or rows.is_floating_point() or rows.is_complex():
        raise DataError(
            f"graphs are rows of at least {HEADER} whole numbers (nodes, edges, atoms, bonds), got a tensor of shape "
            f"{tuple(rows.shape)} and kind {str(rows.dtype).removeprefix('torch.')}"
        )
    return rows
