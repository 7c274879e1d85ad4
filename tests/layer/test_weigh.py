"""``weigh`` and ``mix``: the two halves of ``evaluate``, for whoever needs the gates before there are features."""

from __future__ import annotations

import re

import pytest
import torch

from gated_domains.layer import GatedDomainUnits, GateStream, Weighed
from gated_domains.layer.experts import ProbabilisticRegression
from gated_domains.layer.kernels import Gaussian


def units(**settings) -> GatedDomainUnits:
    torch.manual_seed(0)
    made = GatedDomainUnits(4, 2, gating_features=3, num_bases=3, **settings).double()
    with torch.no_grad():
        for parameter in made.experts.parameters():
            parameter.normal_()
    return made.fit_bases(torch.randn(60, 3).double())


def batch(*lead: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*lead, 4, generator=generator).double(), 2 * torch.randn(*lead, 3, generator=generator).double()


def tensors(found) -> list[torch.Tensor]:
    products = [found.products.self_product, found.products.cross, found.products.gram]
    return [part for part in (found.beta, *products, found.coverage) if part is not None]


SETTINGS = {
    "as recommended": {},
    "coverage applied": {"coverage": True},
    "not shared": {"shared": False},
    "room to spare": {"max_bases": 5},
    "probabilistic": {"task": ProbabilisticRegression()},
}


@pytest.mark.parametrize("lead", [(), (1,), (7,), (2, 3)], ids=str)
@pytest.mark.parametrize("gates", ["sample", "batch", "stream"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_weighing_then_mixing_is_evaluating(settings, gates, lead):
    made, (x, z) = units(**settings), batch(*lead)

    def gated():
        return GateStream(5) if gates == "stream" else gates

    both = made.mix(x, made.weigh(z, gates=gated()))
    one = made.evaluate(x, z, gates=gated())
    assert torch.equal(both.prediction, one.prediction)
    assert all(torch.equal(*pair) for pair in zip(tensors(both), tensors(one), strict=True))
    assert (both.variance is None) == (one.variance is None)
    assert both.variance is None or torch.equal(both.variance, one.variance)


def test_shapes_follow_the_batch_or_have_a_leading_one():
    made, (_, z) = units(), batch(2, 5)
    own = made.weigh(z)
    assert (own.beta.shape, own.products.cross.shape, own.products.self_product.shape) == ((2, 5, 3), (2, 5, 3), (2, 5))
    pooled = made.weigh(z, gates="batch")
    assert (pooled.beta.shape, pooled.products.cross.shape, pooled.coverage.shape) == ((1, 3), (1, 3), (2, 5))


def test_where_coverage_is_applied_the_mixture_is_coverage_times_beta():
    made, (_, z) = units(coverage=True), batch(9)
    with torch.no_grad():
        weighed = made.weigh(z)
    assert 0 < weighed.coverage.mean() < 1
    expected = torch.tensor(
        [[float(weighed.coverage[i]) * float(weighed.beta[i, j]) for j in range(3)] for i in range(9)]
    ).double()
    torch.testing.assert_close(weighed.mixture, expected)
    assert made.weigh(z, gates="batch").mixture.shape == (9, 3)


def test_mixing_goes_by_what_it_is_given():
    made, (x, z) = units(coverage=True), batch(6)
    weighed = made.weigh(z)
    uncovered = made.mix(x, weighed._replace(coverage=torch.zeros(6).double()))
    torch.testing.assert_close(uncovered.prediction, made.shared(x).squeeze(-2))
    only_second = torch.eye(3).double()[1].expand(6, 3)
    alone = made.mix(x, weighed._replace(beta=only_second, coverage=torch.ones(6).double()))
    torch.testing.assert_close(alone.prediction, made.shared(x).squeeze(-2) + made.experts(x)[:, 1])


def test_coverage_that_is_only_reported_changes_nothing():
    made, (x, z) = units(), batch(9)
    weighed = made.weigh(z)
    assert 0 < weighed.coverage.mean() < 1
    assert weighed.mixture is weighed.beta
    uncovered = made.mix(x, weighed._replace(coverage=torch.zeros(9).double()))
    assert torch.equal(uncovered.prediction, made.evaluate(x, z).prediction)


def test_the_products_are_computed_once_for_gates_coverage_and_experts():
    calls = []

    class Counting(Gaussian):
        def forward(self, x, z):
            calls.append(len(x))
            return super().forward(x, z)

    made, (x, z) = units(kernel=Counting(2.0)), batch(6)
    calls.clear()
    weighed = made.weigh(z)
    once = len(calls)
    made.mix(x, weighed)
    assert len(calls) == once
    calls.clear()
    made.evaluate(x, z)
    assert len(calls) == once


def test_gradients_reach_the_bases_through_both_halves():
    made, (x, z) = units(), batch(6)
    made.mix(x, made.weigh(z)).prediction.square().sum().backward()
    ours = made.bases.grad.clone()
    made.zero_grad()
    made.evaluate(x, z).prediction.square().sum().backward()
    assert ours.abs().max() > 0
    torch.testing.assert_close(made.bases.grad, ours)


def test_mixing_is_not_recorded_as_it_returns_everything_already():
    made, (x, z) = units(), batch(6)
    with made.record() as outs:
        made.mix(x, made.weigh(z))
        assert outs == []
        made(x, z)
    assert len(outs) == 1


def test_weighted_penalties_are_the_terms_of_the_penalty():
    made, (x, z) = units(lambda_ols=0.5, lambda_entropy=0.25, lambda_dev=0.0), batch(6)
    out = made.evaluate(x, z)
    terms, plain = made.weighted_penalties(out), made.penalty_terms(out)
    assert list(terms) == ["reconstruction", "entropy"]
    torch.testing.assert_close(terms["reconstruction"], 0.5 * plain["reconstruction"])
    torch.testing.assert_close(made.penalty(out), terms["reconstruction"] + terms["entropy"])


BLOCKS = torch.tensor([4, 0, 4, 1, 0, 0, 7, 4, 1])  # numbers need not be consecutive; one block has a single row


@pytest.mark.parametrize("gate", ["cosine", "mmd", "projection"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_each_block_is_gated_like_a_batch_of_its_own(settings, gate):
    made, (x, z) = units(gate=gate, **settings), batch(9)
    found = made.mix(x, made.weigh(z, gates="batch", blocks=BLOCKS))
    penalties = {name: torch.zeros(()).double() for name in made.penalty_terms(found)}
    for block in BLOCKS.unique():
        own = block == BLOCKS
        alone = made.evaluate(x[own], z[own], gates="batch")
        rows = int(own.sum())
        torch.testing.assert_close(found.prediction[own], alone.prediction)
        torch.testing.assert_close(found.beta[own], alone.beta.expand(rows, -1))
        torch.testing.assert_close(found.products.self_product[own], alone.products.self_product.expand(rows))
        torch.testing.assert_close(found.products.cross[own], alone.products.cross.expand(rows, -1))
        for name, term in made.penalty_terms(alone).items():
            penalties[name] += rows / 9 * term
    for name, term in made.penalty_terms(found).items():
        torch.testing.assert_close(term, penalties[name])


def test_one_block_is_the_batch_and_blocks_of_one_row_are_samples():
    made, (_, z) = units(), batch(9)
    one = made.weigh(z, gates="batch", blocks=torch.zeros(9, dtype=torch.long))
    torch.testing.assert_close(one.beta, made.weigh(z, gates="batch").beta.expand(9, -1))
    torch.testing.assert_close(made.weigh(z, gates="batch", blocks=torch.arange(9)).beta, made.weigh(z).beta)


def test_gradients_of_blocks_are_those_of_their_own_batches():
    made, (x, z) = units(), batch(9)
    losses = [
        made.mix(x, made.weigh(z, gates="batch", blocks=BLOCKS)).prediction.square().sum(),
        sum(made(x[own], z[own], gates="batch").square().sum() for own in BLOCKS.unique().unsqueeze(1) == BLOCKS),
    ]
    ours, slow = (torch.autograd.grad(loss, made.bases)[0] for loss in losses)
    assert ours.abs().max() > 0
    torch.testing.assert_close(ours, slow)


@pytest.mark.usefixtures("without_shape_checks")
class TestWhatIsRefused:
    def test_blocks_of_gates_by_sample(self):
        with pytest.raises(ValueError, match="blocks are for gates='batch', got gates='sample'; leave blocks out"):
            units().weigh(batch(9)[1], blocks=BLOCKS)

    def test_blocks_of_other_rows(self):
        with pytest.raises(ValueError, match=r"a number for each row of gating, got shape \(9,\) for gating of"):
            units().weigh(batch(5)[1], gates="batch", blocks=BLOCKS)

    def test_a_view_of_the_wrong_width(self):
        with pytest.raises(ValueError, match=re.escape("gating must have width 3")):
            units().weigh(torch.randn(5, 4).double())

    def test_features_of_the_wrong_width(self):
        made = units()
        with pytest.raises(ValueError, match="features must have width 4"):
            made.mix(torch.randn(5, 3).double(), made.weigh(batch(5)[1]))

    @pytest.mark.parametrize("coverage", [True, False])
    @pytest.mark.parametrize("lead", [(4,), (5, 1), ()], ids=str)
    def test_a_weighing_of_other_rows(self, lead, coverage):
        made = units(coverage=coverage)
        with pytest.raises(ValueError, match="weigh the view of the same batch"):
            made.mix(batch(*lead)[0], made.weigh(batch(5)[1]))

    def test_the_coverage_of_another_batch(self):
        made = units()
        with pytest.raises(ValueError, match="weigh the view of the same batch"):
            made.mix(batch(4)[0], made.weigh(batch(5)[1], gates="batch"))

    def test_the_weighing_of_other_units(self):
        made, weighed = units(), units().weigh(batch(5)[1])
        fewer = Weighed(weighed.products, weighed.beta[:, :2], weighed.coverage)
        with pytest.raises(ValueError, match="2 bases, these units 3"):
            made.mix(batch(5)[0], fewer)

    def test_gates_of_an_unknown_kind(self):
        with pytest.raises(ValueError, match="'sample', 'batch' or a GateStream"):
            units().weigh(batch(5)[1], gates="epoch")
