"""The shared expert: where training starts, and where an unfamiliar sample falls back to."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from gated_domains.layer import GatedDomainUnits, LinearExperts
from gated_domains.layer.experts import ProbabilisticRegression


def shared_prediction(head, x):
    raw = head.shared(x).squeeze(1)
    return head.task.moments(raw)[0] if isinstance(head.task, ProbabilisticRegression) else raw


@pytest.mark.parametrize("coverage", [True, False])
def test_at_the_start_the_prediction_is_that_of_the_shared_expert(build_head, coverage):
    head, x = build_head(shared=True, coverage=coverage), torch.randn(5, 4)
    assert head(x).abs().sum() > 0
    torch.testing.assert_close(head(x), shared_prediction(head, x))


def test_a_sample_that_is_not_covered_falls_back_to_the_shared_expert(build_head):
    head, x = build_head(shared=True, coverage=True), torch.randn(5, 4)
    with torch.no_grad():
        for parameter in head.experts.parameters():
            parameter.normal_()
    assert not torch.allclose(head(x), shared_prediction(head, x))
    head.coverage.q50.fill_(-2e3)
    head.coverage.q97.fill_(-1e3)
    assert (head.evaluate(x).coverage == 0).all()
    torch.testing.assert_close(head(x), shared_prediction(head, x))


def test_a_sample_far_from_the_training_data_falls_back_to_the_shared_expert():
    head, x = GatedDomainUnits(4, 2, coverage=True), torch.randn(300, 4)
    head.fit_bases(x)
    with torch.no_grad():
        for parameter in head.experts.parameters():
            parameter.normal_()
    near, far = head.evaluate(x), torch.randn(5, 4) + 50
    assert (near.coverage == 1).float().mean() == pytest.approx(0.5, abs=0.02)
    assert (near.coverage == 0).float().mean() == pytest.approx(0.03, abs=0.01)
    assert (head.evaluate(far).coverage == 0).all()
    torch.testing.assert_close(head(far), head.shared(far).squeeze(1))


def test_by_default_coverage_is_reported_and_every_sample_gets_its_full_deviation():
    head, x = GatedDomainUnits(4, 2), torch.randn(50, 4)
    head.fit_bases(x)
    with torch.no_grad():
        head.experts.weight.normal_()
    far = torch.randn(5, 4) + 50
    out = head.evaluate(far)
    assert not head.applies_coverage
    assert (out.coverage == 0).all()
    full = head.shared(far).squeeze(1) + (out.beta[..., None] * head.experts(far)).sum(1)
    torch.testing.assert_close(out.prediction, full)


def test_a_head_without_a_shared_expert_has_no_coverage():
    head = GatedDomainUnits(4, 2, shared=False, coverage=True)
    assert head.shared is None
    assert not head.applies_coverage
    assert head.evaluate(torch.randn(3, 4)).coverage is None


def test_deviations_with_an_activation_start_at_zero():
    head, x = GatedDomainUnits(4, 2, experts=partial(LinearExperts, activation=torch.tanh)), torch.randn(5, 4)
    torch.testing.assert_close(head(x), head.shared(x).squeeze(1))


def test_an_activation_that_keeps_deviations_from_zero_is_refused():
    with pytest.raises(ValueError, match=r"start at zero, these give 0\.5.*shared=False"):
        GatedDomainUnits(4, 2, experts=partial(LinearExperts, activation=torch.sigmoid))
