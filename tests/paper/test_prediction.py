"""sum_j beta_ij f(x_i, theta_j), and what a shared expert and a probabilistic task make of it."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn

import oracles
from gated_domains.layer import (
    CosineGate,
    GatedDomainUnits,
    LinearExperts,
    MLPExperts,
    MMDGate,
    ProjectionGate,
    StackedExperts,
)
from gated_domains.layer.experts import ProbabilisticRegression, match_moments
from gated_domains.layer.kernels import Gaussian
from oracles import assert_matches, rows

GATES = {
    "cosine": (lambda: CosineGate(3.0), lambda own, cross, gram: oracles.cosine_gate(own, cross, gram, 3.0)),
    "mmd": (lambda: MMDGate(3.0), lambda own, cross, gram: oracles.mmd_gate(own, cross, gram, 3.0)),
    "projection": (ProjectionGate, lambda own, cross, gram: oracles.projection_gate(cross, gram)),
    "exact": (lambda: ProjectionGate(0.1), lambda own, cross, gram: oracles.exact_projection_gate(cross, gram, 0.1)),
}


def build(*, gate=None, shared=False, **settings):
    """A float64 head with nothing left at zero."""
    head = GatedDomainUnits(
        3, 2, num_bases=4, basis_size=2, kernel=Gaussian(1.3), gate=gate or CosineGate(3.0), shared=shared, **settings
    )
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return head.double()


def loop_products(view, bases, sigma=1.3):
    kernel = oracles.radial_kernel("gaussian", sigma)
    own, cross = oracles.self_product(kernel, rows(view)), oracles.cross(kernel, rows(view), rows(bases))
    return own, cross, oracles.gram(kernel, rows(bases))


def linear_outputs(experts, x, activation=None):
    """outputs[i][j]: what expert j says of sample i."""
    bias = [None] * len(experts.weight) if experts.bias is None else rows(experts.bias)
    return [
        [oracles.linear(x_i, w, b, activation) for w, b in zip(rows(experts.weight), bias, strict=True)]
        for x_i in rows(x)
    ]


@pytest.mark.parametrize("gate", GATES)
def test_prediction_is_the_gated_sum_of_linear_experts(gate):
    ours, loop = GATES[gate]
    head, x = build(gate=ours()), torch.randn(5, 3).double()
    beta = loop(*loop_products(x, head.bases))
    out = head.evaluate(x)
    assert_matches(out.beta, beta)
    assert_matches(out.prediction, oracles.mixture(beta, linear_outputs(head.experts, x)))
    assert torch.equal(head(x), out.prediction)


@pytest.mark.parametrize("bias", [True, False])
def test_an_activation_acts_on_each_expert_before_the_gates_mix_them(bias):
    head = build(experts=partial(LinearExperts, activation=torch.tanh, bias=bias))
    x = torch.randn(5, 3).double()
    beta = oracles.cosine_gate(*loop_products(x, head.bases), 3.0)
    assert (head.experts.bias is not None) == bias
    assert_matches(head(x), oracles.mixture(beta, linear_outputs(head.experts, x, math.tanh)))


def test_prediction_with_experts_of_one_hidden_layer():
    head = build(experts=partial(MLPExperts, hidden=6, activation=torch.tanh))
    x = torch.randn(5, 3).double()
    hidden = linear_outputs(head.experts.first, x, math.tanh)
    weight, bias = rows(head.experts.weight.mT), rows(head.experts.bias)
    outputs = [[oracles.linear(h, w, b) for h, w, b in zip(h_i, weight, bias, strict=True)] for h_i in hidden]
    beta = oracles.cosine_gate(*loop_products(x, head.bases), 3.0)
    assert_matches(head(x), oracles.mixture(beta, outputs))


def test_stacked_experts_are_the_modules_that_the_factory_made():
    made = []

    def factory(inputs, outputs):
        made.append(nn.Sequential(nn.Linear(inputs, 4), nn.Tanh(), nn.Linear(4, outputs)))
        return made[-1]

    experts, x = StackedExperts(3, 5, 2, factory=factory), torch.randn(7, 5)
    assert len(made) == 3
    torch.testing.assert_close(experts(x), torch.stack([module(x) for module in made], dim=1))


def test_gates_see_the_gating_view_and_experts_see_the_features():
    head, x, view = build(gating_features=6), torch.randn(5, 3).double(), torch.randn(5, 6).double()
    beta = oracles.cosine_gate(*loop_products(view, head.bases), 3.0)
    assert_matches(head(x, view), oracles.mixture(beta, linear_outputs(head.experts, x)))


@pytest.mark.parametrize("gate", GATES)
def test_shared_expert_enters_once_whatever_beta_sums_to(gate):
    ours, loop = GATES[gate]
    head, x = build(gate=ours(), shared=True, coverage=False), torch.randn(5, 3).double()
    beta = loop(*loop_products(x, head.bases))
    shared = [experts[0] for experts in linear_outputs(head.shared, x)]
    assert_matches(head(x), oracles.shared_mixture(beta, shared, linear_outputs(head.experts, x), [1.0] * 5))


@pytest.mark.parametrize("gate", ["cosine", "mmd", "exact"])
def test_coverage_scales_the_deviations_from_the_shared_expert(gate):
    ours, loop = GATES[gate]
    head, x = build(gate=ours(), shared=True, coverage=True), torch.randn(6, 3).double()
    head.coverage.fit(head.novelty(x))
    products = loop_products(x, head.bases)
    beta = loop(*products)
    residuals = oracles.residual(*products, beta)
    quantiles = oracles.quantile(residuals, 0.5), oracles.quantile(residuals, 0.97)
    covered = oracles.coverage(residuals, *quantiles)
    assert min(covered) < 0.9
    shared = [experts[0] for experts in linear_outputs(head.shared, x)]
    out = head.evaluate(x)
    assert_matches(out.coverage, covered)
    assert_matches(out.prediction, oracles.shared_mixture(beta, shared, linear_outputs(head.experts, x), covered))


def test_match_moments_gives_mean_and_variance_of_the_mixture():
    weights, means, scales = torch.rand(5, 4).double(), torch.randn(5, 4, 2).double(), torch.rand(5, 4, 2).double()
    weights = weights / weights.sum(-1, keepdim=True)
    mean, variance = match_moments(weights, means, scales)
    expected = [oracles.moment_match(*case) for case in zip(rows(weights), rows(means), rows(scales), strict=True)]
    assert_matches(mean, [case[0] for case in expected])
    assert_matches(variance, [case[1] for case in expected])


def test_match_moments_agrees_with_draws_from_the_mixture():
    weights, means, scales = torch.tensor([[0.2, 0.8]]), torch.tensor([[[-3.0], [1.0]]]), torch.tensor([[[0.5], [2.0]]])
    chosen = torch.multinomial(weights[0], 200_000, replacement=True)
    draws = means[0, chosen, 0] + scales[0, chosen, 0] * torch.randn(200_000)
    mean, variance = match_moments(weights, means, scales)
    torch.testing.assert_close(mean.squeeze(), draws.mean(), atol=0.03, rtol=0)
    torch.testing.assert_close(variance.squeeze(), draws.var(), atol=0.1, rtol=0)


def raw_moments(raw, min_scale):
    """The first half of an expert's numbers are means, the second half scales before softplus."""
    half = len(raw) // 2
    return raw[:half], [math.log1p(math.exp(value)) + min_scale for value in raw[half:]]


@pytest.mark.parametrize("gate", GATES)
def test_probabilistic_prediction_is_moment_matched_on_the_simplex(gate):
    ours, loop = GATES[gate]
    head, x = build(gate=ours(), task=ProbabilisticRegression(min_scale=0.01)), torch.randn(5, 3).double()
    beta = loop(*loop_products(x, head.bases))
    means, variances = [], []
    for weights, outputs in zip(beta, linear_outputs(head.experts, x), strict=True):
        moments = [raw_moments(raw, 0.01) for raw in outputs]
        mean, variance = oracles.moment_match(oracles.simplex(weights), *map(list, zip(*moments, strict=True)))
        means.append(mean)
        variances.append(variance)
    out = head.evaluate(x)
    assert_matches(out.prediction, means)
    assert_matches(out.variance, variances)


def test_probabilistic_prediction_with_a_shared_expert_moves_each_expert_by_its_covered_deviation():
    head, x = (
        build(task=ProbabilisticRegression(min_scale=0.01), shared=True, coverage=True),
        torch.randn(6, 3).double(),
    )
    head.coverage.fit(head.novelty(x))
    products = loop_products(x, head.bases)
    beta = oracles.cosine_gate(*products, 3.0)
    residuals = oracles.residual(*products, beta)
    covered = oracles.coverage(residuals, oracles.quantile(residuals, 0.5), oracles.quantile(residuals, 0.97))
    means, variances = [], []
    for i, weights in enumerate(beta):
        shared = linear_outputs(head.shared, x)[i][0]
        deviations = linear_outputs(head.experts, x)[i]
        moments = [
            raw_moments([s + covered[i] * d for s, d in zip(shared, row, strict=True)], 0.01) for row in deviations
        ]
        mean, variance = oracles.moment_match(weights, *map(list, zip(*moments, strict=True)))
        means.append(mean)
        variances.append(variance)
    out = head.evaluate(x)
    assert_matches(out.prediction, means)
    assert_matches(out.variance, variances)
