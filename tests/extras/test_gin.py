"""GIN as a body: what a loop over atoms and bonds computes, each molecule by itself, as OGB's network does."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F

from gated_domains.backbones import BODIES
from gated_domains.backbones.bodies import make_body
from gated_domains.backbones.gin import GIN, SumOfEmbeddings
from gated_domains.backbones.graphs_in_rows import ATOM_SIZES, BOND_SIZES
from gated_domains.data.errors import DataError
from made_graphs import MadeGraph, in_rows, made_graphs

pytestmark = pytest.mark.extras


def settled(body: GIN) -> GIN:
    """The body in eval mode, with running statistics, epsilons and a virtual node that are not those it starts with."""
    with torch.no_grad():
        for module in body.modules():
            if isinstance(module, torch.nn.BatchNorm1d):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 2)
        for convolution in body.convolutions:
            convolution.eps.fill_(0.3)
        body.virtual.normal_()
    return body.double().eval()


def slow(body: GIN, graph: MadeGraph) -> torch.Tensor:
    """The features of one molecule, atom by atom and bond by bond, from the formula."""
    h = [
        sum(part[value] for part, value in zip(body.atoms.weight.split(ATOM_SIZES), atom, strict=True))
        for atom in graph.atoms
    ]
    virtual = body.virtual
    last = len(body.convolutions) - 1
    for layer, convolution in enumerate(body.convolutions):
        told = [atom + virtual for atom in h]
        sums = [(1 + convolution.eps[0]) * atom for atom in told]
        tables = body.bonds[layer].weight.split(BOND_SIZES)
        for source, target, bond in zip(graph.sources, graph.targets, graph.bonds, strict=True):
            known = sum(table[value] for table, value in zip(tables, bond, strict=True))
            sums[target] = sums[target] + F.relu(told[source] + known)
        h = [body.norms[layer](convolution.nn(atom[None]))[0] for atom in sums]
        if layer < last:
            h = [F.relu(atom) for atom in h]
            virtual = body.virtual_updates[layer]((sum(told) + virtual)[None])[0]
    return sum(h) / len(h)


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_features_are_what_a_loop_over_atoms_and_bonds_finds(layers):
    body = settled(GIN((200,), layers=layers, width=7))
    made = made_graphs(6, seed=3)
    with torch.no_grad():
        expected = torch.stack([slow(body, graph) for graph in made])
        torch.testing.assert_close(body(in_rows(made)), expected, rtol=1e-8, atol=1e-10)


def test_each_molecule_is_computed_by_itself_however_far_it_is_padded():
    body = settled(GIN((200,), layers=3, width=6))
    made = made_graphs(5, seed=1)
    with torch.no_grad():
        together = body(in_rows(made, spare=17))
        alone = torch.cat([body(in_rows([graph])) for graph in made])
    torch.testing.assert_close(together, alone)


def test_the_order_of_atoms_means_nothing():
    body = settled(GIN((200,), layers=3, width=6))
    graph = made_graphs(1, smallest=6, largest=6)[0]
    new = [3, 0, 5, 1, 4, 2]  # where each atom goes
    atoms = [graph.atoms[new.index(place)] for place in range(6)]
    moved = MadeGraph(atoms, [new[i] for i in graph.sources], [new[i] for i in graph.targets], graph.bonds)
    with torch.no_grad():
        torch.testing.assert_close(body(in_rows([moved])), body(in_rows([graph])))


def test_it_is_the_network_of_ogb_unless_told():
    body = GIN((200,))
    assert (body.features, len(body.convolutions), body.dropout.p) == (300, 5, 0.5)
    own = sum(parameter.numel() for parameter in body.parameters())
    width, layers = 300, 5
    atoms, bonds = sum(ATOM_SIZES) * width, sum(BOND_SIZES) * width
    mlp = 2 * width * width + 2 * width + 2 * 2 * width + 2 * width * width + width
    norm = 2 * width
    expected = atoms + width + layers * (bonds + mlp + norm + 1) + (layers - 1) * (mlp + norm)
    assert own == expected
    assert torch.equal(body.virtual, torch.zeros(300))


def test_the_sizes_of_features_are_those_of_ogb():
    features = pytest.importorskip("ogb.utils.features")
    assert list(ATOM_SIZES) == features.get_atom_feature_dims()
    assert list(BOND_SIZES) == features.get_bond_feature_dims()


def test_embeddings_are_summed_and_drawn_for_each_feature():
    table = SumOfEmbeddings((3, 2), 400)
    parts = table.weight.detach().split((3, 2))
    values = torch.tensor([[0, 1], [2, 0]])
    torch.testing.assert_close(
        table(values).detach(), torch.stack([parts[0][0] + parts[1][1], parts[0][2] + parts[1][0]])
    )
    for part in parts:
        assert part.abs().max() <= (6 / sum(part.shape)) ** 0.5
    assert list(table.state_dict()) == ["weight"]


def test_a_body_is_built_again_from_its_architecture():
    body = make_body("gin", (200,), shrunk=True)
    assert body.architecture() == {"layers": 2, "width": 64, "dropout": 0.5}
    rows = in_rows(made_graphs(6))
    body(rows)
    again = BODIES["gin"]((200,), **json.loads(json.dumps(body.architecture())))
    again.load_state_dict(body.state_dict())
    torch.testing.assert_close(again.eval()(rows), body.eval()(rows))


def test_gradients_reach_every_parameter():
    body = GIN((200,), layers=3, width=8, dropout=0)
    body(in_rows(made_graphs(12, smallest=3))).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in body.parameters())


def test_nonsense_is_refused():
    with pytest.raises(DataError, match=r"dropout is a share .* got 1"):
        GIN((9,), dropout=1)
    with pytest.raises(ValueError, match="layers"):
        GIN((9,), layers=0)
