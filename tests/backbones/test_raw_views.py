"""What gates see of wide vectors, of tokens and of molecules: fixed, without padding, and what a loop would find."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gated_domains.backbones import (
    GATINGS,
    MLP,
    Backbone,
    GraphStatistics,
    RandomProjection,
    TokenStatistics,
    default_gating,
)
from gated_domains.backbones.graphs_in_rows import ATOM_SIZES
from gated_domains.backbones.mixstyle import mix_styles
from gated_domains.data.errors import DataError
from gated_domains.training.training_data import FrozenBody
from made_bodies import Atoms, Words, tokens
from made_graphs import in_rows, made_graphs


def padded(rows: torch.Tensor, more: int, value: int) -> torch.Tensor:
    return torch.nn.functional.pad(rows, (0, more), value=value)


def test_statistics_of_tokens_are_the_mean_of_their_vectors_and_the_logarithm_of_their_number():
    view = TokenStatistics(Words((9,)))
    texts = [[3, 3, 8], [39], [1, 2, 3, 4, 5]]
    rows = torch.tensor([text + [0] * (6 - len(text)) for text in texts])
    table = view.weight.double().numpy()
    expected = [[*np.mean([table[token] for token in text], axis=0), math.log(1 + len(text))] for text in texts]
    np.testing.assert_allclose(view(rows), expected, rtol=1e-5, atol=1e-6)
    assert view.width == 65


def test_a_text_without_a_token_has_finite_statistics():
    assert torch.equal(TokenStatistics(Words((9,)))(torch.zeros(2, 5, dtype=torch.int64)), torch.zeros(2, 65))


def test_statistics_of_graphs_are_those_that_a_loop_over_atoms_finds():
    made = made_graphs(6, seed=1)
    view = GraphStatistics(Atoms((200,))).double()
    tables = np.split(view.weight.numpy(), np.cumsum(ATOM_SIZES)[:-1])
    expected = []
    for graph in made:
        atoms = np.array([sum(table[value] for table, value in zip(tables, atom, strict=True)) for atom in graph.atoms])
        sizes = [math.log(1 + len(graph.atoms)), math.log(1 + len(graph.sources))]
        expected.append([*atoms.mean(0), *np.log(atoms.var(0) + 1e-6) / 2, *sizes])
    np.testing.assert_allclose(view(in_rows(made)), expected, rtol=1e-6, atol=1e-6)
    assert view.width == 2 * 32 + 2


@pytest.mark.parametrize(
    ("view", "rows", "value"),
    [(TokenStatistics(Words((50,))), tokens(), 0), (GraphStatistics(Atoms((300,))), in_rows(made_graphs()), -1)],
    ids=["tokens", "graphs"],
)
def test_padding_changes_nothing_that_gates_see(view, rows, value):
    torch.testing.assert_close(view(padded(rows, 23, value)), view(rows), rtol=1e-5, atol=1e-6)


def test_a_projection_is_a_product_with_a_fixed_matrix_that_nearly_keeps_distances():
    view = RandomProjection((2000,))
    assert view.weight.shape == (128, 2000)
    x = (torch.rand(12, 2000, generator=torch.Generator().manual_seed(0)) < 0.03).float()
    torch.testing.assert_close(view(x), x @ view.weight.T)
    scale = (2000 / 128) ** 0.5
    ratio = torch.pdist(view(x)) * scale / torch.pdist(x)
    assert 0.7 < ratio.min() <= ratio.max() < 1.3


def test_a_projection_is_never_wider_than_what_it_projects():
    assert RandomProjection((9,)).width == 9


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: RandomProjection((300,), seed=seed),
        lambda seed: TokenStatistics(Words((9,)), seed=seed),
        lambda seed: GraphStatistics(Atoms((9,)), seed=seed),
    ],
    ids=["projection", "tokens", "graphs"],
)
def test_views_come_from_a_seed_of_their_own_and_are_saved_and_not_trained(make):
    body_state = torch.get_rng_state()
    one = make(0)
    torch.manual_seed(123)
    assert torch.equal(make(0).weight, one.weight)
    assert not torch.equal(make(1).weight, one.weight)
    assert list(one.parameters()) == []
    assert list(one.state_dict()) == ["weight"]
    assert one.sees_raw_input
    torch.set_rng_state(body_state)


def test_drawing_a_view_leaves_the_global_generator_where_it_was():
    body, before = Words((9,)), torch.get_rng_state()
    TokenStatistics(body), RandomProjection((30,))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates_see_full_precision_under_autocast(dtype):
    view, rows = TokenStatistics(Words((9,))), tokens()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        assert view(rows).dtype == torch.float32
        assert RandomProjection((7,))(torch.randn(2, 7, dtype=dtype)).dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "name", "kind"), [(Words, "tokens", TokenStatistics), (Atoms, "graphs", GraphStatistics)]
)
def test_a_backbone_looks_at_whole_numbers_also_when_its_body_is_frozen(make, name, kind):
    shape, rows = (200,), tokens(5) if make is Words else in_rows(made_graphs(5))
    for body in (make(shape).eval(), FrozenBody(make(shape))):
        backbone = Backbone(body, GATINGS[name](body, shape))
        assert type(backbone.gating) is kind
        seen = backbone.fit_view(rows)
        torch.testing.assert_close(backbone(rows).gating, seen)
        torch.testing.assert_close(backbone.look(rows), seen)
        assert backbone(rows).features.shape == (5, 5)


def test_every_kind_of_inputs_has_a_view_of_its_own():
    kinds = {"bands": "filters", "words": "projection", "bits": "projection", "tokens": "tokens", "graphs": "graphs"}
    assert {kind: default_gating(kind) for kind in kinds} == kinds
    assert set(kinds.values()) <= set(GATINGS)


@pytest.mark.parametrize("name", ["input", "projection"])
def test_tokens_and_graphs_are_no_vectors_to_gates(name):
    with pytest.raises(DataError, match=r"cannot see tokens as a vector .*'tokens'"):
        GATINGS[name](Words((9,)), (9,))
    with pytest.raises(DataError, match=r"cannot see graphs as a vector .*'graphs'"):
        GATINGS[name](Atoms((9,)), (9,))


@pytest.mark.parametrize("name", ["tokens", "graphs"])
def test_statistics_of_what_a_body_does_not_take_are_refused(name):
    with pytest.raises(DataError, match=f"statistics of {name} need a body that takes {name}, and MLP takes vectors"):
        GATINGS[name](MLP((9,)), (9,))


def test_style_of_a_body_for_tokens_is_refused_with_the_view_there_is():
    with pytest.raises(DataError, match=r"Words has no early block .*see the 'tokens'"):
        GATINGS["style"](Words((9,)), (9,))


def test_a_projection_of_images_is_refused():
    with pytest.raises(DataError, match=r"a projection is of vectors.*\(3, 8, 8\)"):
        RandomProjection((3, 8, 8))


def test_styles_of_tokens_are_not_mixed_but_features_of_a_frozen_body_are():
    with pytest.raises(DataError, match="tokens are none of these; leave mixstyle out"):
        mix_styles(Backbone(Words((7,))), 0.5, domains=2, training_rows=lambda: [])
    rows = [(tokens(6), torch.tensor([0, 1, 0, 1, 0, 1]))]
    backbone = Backbone(FrozenBody(Words((7,))))
    mixer = mix_styles(backbone, 1.0, domains=2, training_rows=lambda: rows)
    assert mixer.needs_domains
    mixer.remove()
