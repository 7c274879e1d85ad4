"""Graphs in rows: what is unpacked is what a loop over rows finds."""

from __future__ import annotations

import pytest
import torch

from gated_domains.backbones.graphs_in_rows import ATOM_SIZES, BOND_SIZES, atoms_side_by_side, unpacked
from gated_domains.data.errors import DataError
from made_graphs import in_rows, made_graphs


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spare", [0, 5])
def test_graphs_are_unpacked_as_a_loop_over_rows_would(seed, spare):
    made = made_graphs(7, seed=seed)
    found = unpacked(in_rows(made, spare=spare))
    atoms, sources, targets, bonds, rows = [], [], [], [], []
    for row, graph in enumerate(made):
        first = len(atoms)
        atoms += graph.atoms
        sources += [first + node for node in graph.sources]
        targets += [first + node for node in graph.targets]
        bonds += graph.bonds
        rows += [row] * len(graph.atoms)
    assert found.x.tolist() == atoms
    assert found.edge_index.tolist() == [sources, targets]
    assert found.edge_attr.tolist() == bonds
    assert found.graph.tolist() == rows


def test_molecules_of_one_atom_have_no_bonds():
    found = unpacked(in_rows(made_graphs(3, largest=1)))
    assert found.x.shape == (3, len(ATOM_SIZES))
    assert found.edge_index.shape == (2, 0)
    assert found.edge_attr.shape == (0, len(BOND_SIZES))
    assert found.graph.tolist() == [0, 1, 2]


def test_a_row_without_atoms_leaves_the_others_where_they_are():
    made = made_graphs(2)
    rows = in_rows(made)
    empty = torch.full_like(rows[:1], -1)
    empty[:, :2] = 0
    found = unpacked(torch.cat([rows[:1], empty, rows[1:]]))
    assert found.graph.tolist() == [0] * len(made[0].atoms) + [2] * len(made[1].atoms)
    assert torch.equal(found.edge_index, unpacked(rows).edge_index)


def test_atoms_side_by_side_are_those_of_each_row_and_nothing_of_its_bonds():
    made = made_graphs(5, seed=2)
    atoms, there = atoms_side_by_side(in_rows(made))
    for graph, own, real in zip(made, atoms, there, strict=True):
        assert own[real].tolist() == graph.atoms
        assert not own[~real].any()
        assert real.sum() == len(graph.atoms)


@pytest.mark.parametrize(
    "rows", [torch.zeros(4, 20), torch.zeros(20, dtype=torch.int16), torch.zeros(4, 1, dtype=torch.int16)]
)
def test_what_cannot_be_graphs_is_refused_by_its_shape(rows, without_shape_checks):
    with pytest.raises(DataError, match=r"rows of at least 2 whole numbers .* shape \("):
        unpacked(rows)
