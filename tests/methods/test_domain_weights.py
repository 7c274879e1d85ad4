"""Weights of domains: how they move, that they come back, and what they weigh."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

import oracles
from gated_domains.methods.by_domain import DomainMeans
from gated_domains.methods.domain_weights import DomainWeights


def test_they_begin_as_they_are_given_and_sum_to_one():
    assert DomainWeights(torch.tensor([1.0, 3.0])).values.tolist() == pytest.approx([0.25, 0.75])


def test_they_move_by_the_factor_of_their_gain_where_the_domain_is_there():
    weights = DomainWeights(torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64))
    weights.gain(torch.tensor([0.5, 9.0, -1.0]).double(), torch.tensor([1.0, 0.0, 1.0]).double())
    oracles.assert_matches(weights.values, oracles.grown([0.25, 0.5, 0.25], {0: 0.5, 2: -1.0}))


def test_a_weight_too_small_for_a_float_comes_back():
    weights, there = DomainWeights(torch.ones(2)), torch.ones(2)
    weights.gain(torch.tensor([0.0, -500.0]), there)
    assert weights.values.tolist() == [1, 0]
    weights.gain(torch.tensor([0.0, 500.0]), there)
    assert weights.values.tolist() == pytest.approx([0.5, 0.5])


def test_none_falls_below_the_least():
    weights = DomainWeights(torch.ones(2), least=1e-3)
    weights.gain(torch.tensor([0.0, -500.0]), torch.ones(2))
    assert weights.values.tolist() == pytest.approx([1, 1e-3])


def test_they_are_written_in_place_where_a_recorded_step_looks_for_them():
    weights = DomainWeights(torch.ones(2))
    place = weights.logarithms.data_ptr()
    weights.gain(torch.tensor([0.0, 1.0]), torch.ones(2))
    assert weights.logarithms.data_ptr() == place
    assert list(weights.state_dict()) == ["logarithms"]


def test_what_batches_of_some_domains_weigh_is_on_average_what_all_weigh():
    weights = DomainWeights(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64))
    risks, found = torch.tensor([0.3, 0.9, 0.1, 2.0], dtype=torch.float64), []
    for pick in combinations(range(4), 2):
        there = torch.zeros(4, dtype=torch.float64)
        there[list(pick)] = 1
        found.append(weights.weighed(DomainMeans(risks * there, 5 * there)))
    everybody = weights.weighed(DomainMeans(risks, torch.ones(4, dtype=torch.float64)))
    assert float(everybody) == pytest.approx(0.1 * 0.3 + 0.2 * 0.9 + 0.3 * 0.1 + 0.4 * 2.0)
    torch.testing.assert_close(torch.stack(found).mean(), everybody)
