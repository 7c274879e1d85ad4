"""Molecules as graphs: atoms and bonds by OGB's features, each molecule packed into one row of whole numbers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Rows
from gated_domains.data.ragged import Ragged

ATOM_FEATURES, BOND_FEATURES = 9, 3
_MOST = np.iinfo(np.int16).max


class Graphs(Ragged):
    """Packed graphs: ``[nodes, edges, x, edge_index, edge_attr]``, each part row by row; see ``packed``.

    ``digests``: of what they were made of, if known; a molecule may be written, and numbered, in more than one way.
    """

    kind = "graphs"
    pad = -1

    def __init__(
        self, values: NDArray[np.int16], offsets: NDArray[np.int64], *, digests: NDArray[np.uint64] | None = None
    ) -> None:
        super().__init__(values, offsets)
        self._digests = digests
        if values.dtype != np.int16:
            raise DataError(f"graphs are packed into int16, got {values.dtype}; pack them with packed()")
        _check(values, offsets)

    @classmethod
    def of(cls, rows: Iterable[NDArray[np.int16]]) -> Graphs:
        """Of packed graphs, one by one."""
        parts = list(rows)
        lengths = [len(part) for part in parts]
        values = np.concatenate(parts) if parts else np.empty(0, np.int16)
        return cls(values, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    @property
    def nodes(self) -> NDArray[np.int64]:
        """How many atoms each molecule has."""
        return self.values[self.offsets[:-1]].astype(np.int64)

    @property
    def edges(self) -> NDArray[np.int64]:
        """How many directed edges each molecule has: two a bond."""
        return self.values[self.offsets[:-1] + 1].astype(np.int64)

    def digests(self) -> NDArray[np.uint64]:
        return super().digests() if self._digests is None else self._digests

    def take(self, rows: Rows) -> Graphs:
        return Graphs(*self.parts(rows), digests=None if self._digests is None else self._digests[rows])

    def describe(self) -> str:
        return f"molecules as graphs, {self.nodes.min()} to {self.nodes.max()} atoms"


def packed(x: NDArray[Any], edge_index: NDArray[Any], edge_attr: NDArray[Any]) -> NDArray[np.int16]:
    """A graph as one row: nodes, edges, x (nodes, 9), edge_index (2, edges), edge_attr (edges, 3), row by row."""
    nodes, edges = len(x), edge_index.shape[1]
    if x.shape != (nodes, ATOM_FEATURES) or edge_index.shape != (2, edges) or edge_attr.shape != (edges, BOND_FEATURES):
        raise DataError(
            f"a graph needs x (nodes, {ATOM_FEATURES}), edge_index (2, edges) and edge_attr (edges, {BOND_FEATURES}), "
            f"got {x.shape}, {edge_index.shape} and {edge_attr.shape}"
        )
    if max(nodes, edges) > _MOST:
        raise DataError(f"a molecule with {nodes:,} atoms and {edges:,} edges is too large; at most {_MOST:,} of each")
    parts = ([nodes, edges], x.ravel(), edge_index.ravel(), edge_attr.ravel())
    return np.concatenate([np.asarray(part, np.int16) for part in parts])


def unpacked(row: NDArray[np.int16]) -> tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.int16]]:
    """The graph of a packed row, padded or not: x, edge_index, edge_attr."""
    nodes, edges = int(row[0]), int(row[1])
    ends = np.cumsum([2, nodes * ATOM_FEATURES, 2 * edges, edges * BOND_FEATURES])
    x, index, attr = (row[start:stop] for start, stop in pairwise(ends))
    return x.reshape(nodes, ATOM_FEATURES), index.reshape(2, edges), attr.reshape(edges, BOND_FEATURES)


def _check(values: NDArray[np.int16], offsets: NDArray[np.int64]) -> None:
    """Refuse a row whose length is not what its numbers of nodes and edges make it, or without a node."""
    lengths = np.diff(offsets)
    short = lengths < 2
    heads = offsets[:-1][~short]
    nodes, edges = values[heads].astype(np.int64), values[heads + 1].astype(np.int64)
    wanted = np.full(len(lengths), -1)
    wanted[~short] = 2 + nodes * ATOM_FEATURES + edges * (2 + BOND_FEATURES)
    wanted[~short] = np.where((nodes < 1) | (edges < 0), -1, wanted[~short])
    if (wanted != lengths).any():
        row = int(np.argmax(wanted != lengths))
        raise DataError(
            f"graph {row} is packed into {lengths[row]:,} numbers, which its numbers of atoms and edges do not make; "
            f"such graphs: {int((wanted != lengths).sum()):,}; pack them with packed()"
        )
