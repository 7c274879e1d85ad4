"""Gates from the mean embedding of a batch, or of a weighted stream, in place of each sample's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import oracles
from gated_domains.layer import CosineGate, GatedDomainUnits, GateStream, MMDGate, ProjectionGate, penalties
from gated_domains.layer.kernels import Gaussian
from oracles import assert_matches, rows

GATES = {
    "cosine": (lambda: CosineGate(3.0), lambda own, cross, gram: oracles.cosine_gate(own, cross, gram, 3.0)),
    "mmd": (lambda: MMDGate(3.0), lambda own, cross, gram: oracles.mmd_gate(own, cross, gram, 3.0)),
    "projection": (ProjectionGate, lambda own, cross, gram: oracles.projection_gate(cross, gram)),
    "exact": (lambda: ProjectionGate(0.0), lambda own, cross, gram: oracles.exact_projection_gate(cross, gram, 0.0)),
}
KERNEL = oracles.radial_kernel("gaussian", 1.3)


def build(gate):
    head = GatedDomainUnits(
        3, 2, num_bases=4, basis_size=2, kernel=Gaussian(1.3), gate=GATES[gate][0](), shared=False
    ).double()
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return head


def loop_beta(gate, held, weights, bases):
    """One row of beta, for the weighted mean embedding of what is held; and the products it comes from."""
    own = [oracles.weighted_self_product(KERNEL, held, weights)]
    cross = [oracles.weighted_cross(KERNEL, held, rows(bases), weights)]
    gram = oracles.gram(KERNEL, rows(bases))
    return GATES[gate][1](own, cross, gram), (own, cross, gram)


def loop_outputs(head, x):
    weight, bias = rows(head.experts.weight), rows(head.experts.bias)
    return [[oracles.linear(x_i, w, b) for w, b in zip(weight, bias, strict=True)] for x_i in rows(x)]


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("gate", GATES)
def test_batch_gates_compare_the_mean_embedding_with_the_bases(gate, count):
    head, x = build(gate), torch.randn(count, 3).double()
    beta, (own, cross, gram) = loop_beta(gate, rows(x), [1.0] * count, head.bases)
    out = head.evaluate(x, gates="batch")
    assert_matches(out.products.self_product, own)
    assert_matches(out.products.cross, cross)
    assert_matches(out.products.gram, gram)
    assert_matches(out.beta, beta)
    assert_matches(out.prediction, oracles.mixture(beta * count, loop_outputs(head, x)))
    assert_matches(penalties.reconstruction(out), oracles.reconstruction(own, cross, gram, beta))


@pytest.mark.parametrize("gate", GATES)
def test_a_batch_of_one_gates_as_its_sample_does(gate):
    head, x = build(gate), torch.randn(1, 3).double()
    torch.testing.assert_close(head(x, gates="batch"), head(x), rtol=1e-12, atol=1e-12)


def test_batch_gates_pool_over_all_leading_dimensions():
    head, x = build("cosine"), torch.randn(2, 3, 4, 3).double()
    out = head.evaluate(x, gates="batch")
    assert out.beta.shape == (1, 4)
    assert out.prediction.shape == (2, 3, 4, 2)
    flat = head.evaluate(x.reshape(24, 3), gates="batch")
    torch.testing.assert_close(out.prediction.reshape(24, 2), flat.prediction)


def test_batch_gates_see_the_gating_view():
    head = GatedDomainUnits(3, 2, num_bases=4, basis_size=2, gating_features=5, kernel=Gaussian(1.3), shared=False)
    head, x, view = head.double(), torch.randn(6, 3).double(), torch.randn(6, 5).double()
    beta, _ = loop_beta("cosine", rows(view), [1.0] * 6, head.bases)
    # the default gate has kappa 2, the table's 3
    head.gate.set_kappa(3.0)
    assert_matches(head.evaluate(x, view, gates="batch").beta, beta)


@pytest.mark.parametrize("half_life", [None, 0.7, 3.0, 100.0])
@pytest.mark.parametrize("gate", GATES)
def test_stream_gates_compare_the_weighted_buffer_with_the_bases(gate, half_life):
    head, stream = build(gate), GateStream(5, half_life=half_life)
    seen = []
    for count in (2, 1, 4, 7, 1):  # the buffer fills, overflows, is replaced as a whole, moves by one
        x = torch.randn(count, 3).double()
        seen += rows(x)
        held = seen[-5:]
        beta, (own, cross, _) = loop_beta(gate, held, oracles.half_life_weights(len(held), half_life), head.bases)
        out = head.evaluate(x, gates=stream)
        assert_matches(out.products.self_product, own)
        assert_matches(out.products.cross, cross)
        assert_matches(out.beta, beta)
        assert_matches(out.prediction, oracles.mixture(beta * count, loop_outputs(head, x)))


def test_the_buffer_keeps_the_last_rows_in_order():
    stream, x = GateStream(4), torch.arange(14.0).reshape(7, 2)
    assert len(stream) == 0
    assert torch.equal(stream.push(x[:3]), x[:3])
    assert torch.equal(stream.push(x[3:5]), x[1:5])
    assert torch.equal(stream.push(x), x[-4:])
    assert len(stream) == 4


def test_a_row_weighs_half_as_much_after_its_half_life():
    stream = GateStream(10, half_life=2.0)
    stream.push(torch.randn(7, 3))
    weights = stream.weights
    torch.testing.assert_close(weights[:-2] / weights[2:], torch.full((5,), 0.5).double())
    assert weights.sum().item() == pytest.approx(1)


def test_rows_of_a_stream_weigh_alike_without_a_half_life():
    stream = GateStream(10)
    stream.push(torch.randn(8, 3))
    torch.testing.assert_close(stream.weights, torch.full((8,), 1 / 8).double())


def test_a_cleared_stream_starts_again():
    head, stream, x = build("mmd"), GateStream(5), torch.randn(3, 3).double()
    fresh = head(x, gates=GateStream(5))
    head(torch.randn(4, 3).double(), gates=stream)
    assert not torch.allclose(head(x, gates=stream), fresh)
    stream.clear()
    assert len(stream) == 0
    torch.testing.assert_close(head(x, gates=stream), fresh)


def test_a_stream_holds_no_graph_of_earlier_steps():
    head, stream = build("cosine"), GateStream(5)
    x = torch.randn(2, 3).double().requires_grad_()
    head(x, gates=stream).sum().backward()
    head(torch.randn(2, 3).double(), gates=stream).sum().backward()  # would fail on the freed graph of the first
    assert not stream.rows.requires_grad
