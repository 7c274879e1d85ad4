"""The ridge penalty on deviations from a shared expert."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from gated_domains.layer import GatedDomainUnits, MLPExperts, StackedExperts


def norm_by_loop(head: GatedDomainUnits) -> float:
    used = [j for j in range(head.max_bases) if bool(head.active[j])]
    squares = [float(parameter[j].double().square().sum()) for j in used for parameter in head.experts.parameters()]
    return sum(squares) / len(used)


@pytest.mark.parametrize("experts", [MLPExperts, partial(StackedExperts, factory=nn.Linear)])
@pytest.mark.parametrize("inactive", [0, 2])
def test_the_penalty_is_the_mean_over_bases_in_use_of_squared_weights(experts, inactive):
    head = GatedDomainUnits(4, 2, num_bases=5, experts=experts, lambda_dev=0.3, lambda_ols=0.0)
    with torch.no_grad():
        for parameter in head.experts.parameters():
            parameter.normal_()
        head.active[:inactive] = False
    out = head.evaluate(torch.randn(3, 4))
    assert float(head.penalty_terms(out)["deviations"]) == pytest.approx(norm_by_loop(head), rel=1e-5)
    assert float(head.penalty(out)) == pytest.approx(0.3 * norm_by_loop(head), rel=1e-5)


def test_it_shrinks_deviations_and_nothing_else():
    head = GatedDomainUnits(4, 2, lambda_dev=0.5, lambda_ols=0.0)
    with torch.no_grad():
        head.experts.weight.fill_(1)
    head.penalty(head.evaluate(torch.randn(3, 4))).backward()
    expected = torch.full_like(head.experts.weight, 2 * 0.5 / head.num_bases)
    torch.testing.assert_close(head.experts.weight.grad, expected)
    others = [parameter for name, parameter in head.named_parameters() if not name.startswith("experts.")]
    assert all(parameter.grad is None for parameter in others)


def test_without_a_shared_expert_there_are_no_deviations():
    head = GatedDomainUnits(4, 2, shared=False, lambda_dev=0.5, lambda_ols=0.0)
    assert head.penalty_terms(head.evaluate(torch.randn(3, 4))) == {}
