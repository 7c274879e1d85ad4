"""c(x) = clip((q97 - r(x)) / max(q97 - q50, eps), 0, 1)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import oracles
from gated_domains.layer import CosineGate, GatedDomainUnits, GateStream, MMDGate, ProjectionGate
from gated_domains.layer.fitting import Coverage
from gated_domains.layer.kernels import Gaussian
from oracles import assert_matches, rows


def build(gate=None):
    head = GatedDomainUnits(3, 2, num_bases=4, basis_size=2, kernel=Gaussian(1.3), gate=gate or CosineGate(3.0))
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return head.double()


def test_coverage_falls_linearly_from_the_median_to_the_97th_percentile():
    coverage = Coverage()
    training = torch.rand(200).double()
    coverage.fit(training)
    q50, q97 = oracles.quantile(rows(training), 0.5), oracles.quantile(rows(training), 0.97)
    assert coverage.q50.item() == pytest.approx(q50, abs=1e-12)
    assert coverage.q97.item() == pytest.approx(q97, abs=1e-12)
    residual = torch.linspace(-1, 2, 50).double()
    assert_matches(coverage(residual), oracles.coverage(rows(residual), q50, q97))


def test_coverage_is_one_at_the_median_and_zero_from_the_97th_percentile_on():
    coverage = Coverage()
    coverage.fit(torch.arange(101).double())
    points = torch.tensor([0.0, 50.0, 73.5, 97.0, 98.0, 1e9], dtype=torch.float64)
    assert_matches(coverage(points), [1.0, 1.0, 0.5, 0.0, 0.0, 0.0])


def test_residuals_that_are_all_alike_make_coverage_a_step():
    coverage = Coverage()
    coverage.fit(torch.full((10,), 0.3).double())
    values = coverage(torch.tensor([0.2, 0.4], dtype=torch.float64))
    assert_matches(values, [1.0, 0.0])


def test_before_fitting_every_sample_is_covered():
    assert torch.equal(Coverage()(torch.tensor([0.0, 1.0, 100.0])), torch.ones(3))
    assert torch.equal(build().evaluate(torch.randn(6, 3).double() * 100).coverage, torch.ones(6).double())


@pytest.mark.parametrize("gates", ["sample", "batch", "stream"])
def test_coverage_comes_from_the_beta_of_each_sample_however_gates_are_pooled(gates):
    head, x = build(), torch.randn(6, 3).double()
    head.coverage.fit(head.novelty(torch.randn(50, 3).double()))
    kernel = oracles.radial_kernel("gaussian", 1.3)
    own, cross = oracles.self_product(kernel, rows(x)), oracles.cross(kernel, rows(x), rows(head.bases))
    gram = oracles.gram(kernel, rows(head.bases))
    residuals = oracles.residual(own, cross, gram, oracles.cosine_gate(own, cross, gram, 3.0))
    out = head.evaluate(x, gates=GateStream(4) if gates == "stream" else gates)
    assert_matches(out.coverage, oracles.coverage(residuals, head.coverage.q50.item(), head.coverage.q97.item()))


@pytest.mark.parametrize("gate", [CosineGate(3.0), MMDGate(3.0), ProjectionGate(0.1)], ids=repr)
def test_novelty_is_the_residual_of_the_gates_own_beta(gate):
    head, x = build(gate), torch.randn(6, 3).double()
    kernel = oracles.radial_kernel("gaussian", 1.3)
    own, cross = oracles.self_product(kernel, rows(x)), oracles.cross(kernel, rows(x), rows(head.bases))
    gram = oracles.gram(kernel, rows(head.bases))
    assert_matches(head.novelty(x), oracles.residual(own, cross, gram, rows(head.evaluate(x).beta)))


def test_novelty_of_the_papers_projection_is_that_of_the_exact_one():
    head, x = build(ProjectionGate()), torch.randn(6, 3).double()
    kernel = oracles.radial_kernel("gaussian", 1.3)
    own, cross = oracles.self_product(kernel, rows(x)), oracles.cross(kernel, rows(x), rows(head.bases))
    gram = oracles.gram(kernel, rows(head.bases))
    exact = oracles.exact_projection_gate(cross, gram, 0.0)
    assert_matches(head.novelty(x), oracles.residual(own, cross, gram, exact), tolerance=1e-6)


def test_fit_coverage_takes_the_quantiles_of_the_residuals_of_its_rows():
    head, x = build(), torch.randn(80, 3).double()
    head.fit_coverage(x)
    novelty = rows(head.novelty(x))
    assert head.coverage.q50.item() == pytest.approx(oracles.quantile(novelty, 0.5), abs=1e-10)
    assert head.coverage.q97.item() == pytest.approx(oracles.quantile(novelty, 0.97), abs=1e-10)


def test_coverage_passes_no_gradient_to_features_or_bases():
    head = build()
    x = torch.randn(6, 3).double().requires_grad_()
    head.coverage.fit(head.novelty(torch.randn(50, 3).double()).detach())
    covered = head.evaluate(x).coverage
    assert 0 < covered.mean() < 1
    assert not covered.requires_grad
