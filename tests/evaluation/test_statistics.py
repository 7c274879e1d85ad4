"""Spread and the paired test equal scipy's and a loop's, and say honestly what cannot be told."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats

from gated_domains.evaluation import Paired, Spread, paired, spread

RNG = np.random.default_rng(0)


def keyed(values) -> dict[tuple[str, int], float]:
    return {(f"domain {place // 2}", place % 2): float(value) for place, value in enumerate(values)}


def test_spread_is_what_a_loop_computes() -> None:
    values = [0.2, 0.5, 0.9]
    mean = sum(values) / 3
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
    assert astuple(spread(values)) == pytest.approx((mean, std, 3))


def test_a_single_value_has_no_spread_and_none_is_refused() -> None:
    assert spread([0.4]) == Spread(0.4, None, 1)
    with pytest.raises(ValueError, match="no value"):
        spread([])


@pytest.mark.parametrize("n", [2, 3, 10, 64])
def test_the_paired_test_is_scipys(n: int) -> None:
    a, b = RNG.normal(0.1, 1, n), RNG.normal(0, 1, n)
    found = paired(keyed(a), keyed(b))
    expected = stats.ttest_rel(a, b)
    interval = expected.confidence_interval(0.95)
    assert found is not None
    spread_of = ((a - b).mean(), (a - b).std(ddof=1))
    assert astuple(found) == pytest.approx((*spread_of, interval.low, interval.high, expected.pvalue, n))


def test_the_statistic_is_what_a_loop_computes() -> None:
    a, b = [0.7, 0.9, 0.4, 0.6], [0.6, 0.85, 0.45, 0.5]
    differences = [x - y for x, y in zip(a, b, strict=True)]
    mean = sum(differences) / 4
    error = math.sqrt(sum((value - mean) ** 2 for value in differences) / 3) / math.sqrt(4)
    found = paired(keyed(a), keyed(b))
    assert found is not None
    assert found.high == pytest.approx(mean + 3.182446305 * error)  # the 97.5 % point of t with 3 degrees of freedom
    # The area under the density of t with 3 degrees of freedom, summed in small steps.
    t = abs(mean / error)
    density = [6 * math.sqrt(3) / (math.pi * (3 + x * x) ** 2) for x in np.arange(t, t + 500, 0.01)]
    assert found.p_value == pytest.approx(2 * sum(density) * 0.01, rel=2e-2)


def test_pairs_are_matched_by_key_and_not_by_place() -> None:
    a = keyed(RNG.normal(size=6))
    b = {key: value - 0.1 + 0.01 * place for place, (key, value) in enumerate(a.items())}
    assert paired(a, b) == paired(a, dict(reversed(b.items())))


def test_keys_of_one_side_alone_are_left_out() -> None:
    a, b = keyed([0.1, 0.2, 0.4, 0.9]), keyed([0.1, 0.1, 0.1])
    found = paired(a, {**b, ("elsewhere", 0): 5.0})
    assert found == paired(keyed([0.1, 0.2, 0.4]), b)
    assert found is not None
    assert found.n == 3


def test_nothing_shared_is_no_comparison() -> None:
    assert paired({1: 0.5}, {2: 0.5}) is None


def test_one_pair_tells_the_difference_alone() -> None:
    assert paired({1: 0.5}, {1: 0.25}) == Paired(0.25, None, None, None, None, 1)


def test_equal_numbers_are_no_difference_with_p_one() -> None:
    a = keyed(RNG.normal(size=4))
    assert paired(a, a) == Paired(0.0, 0.0, 0.0, 0.0, 1.0, 4)


def test_the_same_difference_everywhere_gives_no_p_value() -> None:
    # By rounding alone the differences are not equal: a naive test would say p = 1e-30.
    a = keyed([0.3, 0.7, 0.9, 0.1])
    b = {key: value - 0.1 for key, value in a.items()}
    assert len({a[key] - b[key] for key in a}) > 1
    found = paired(a, b)
    assert found is not None
    assert found.difference == pytest.approx(0.1)
    assert astuple(found)[1:] == (0.0, None, None, None, 4)


def test_swapped_sides_turn_the_difference_round() -> None:
    a, b = keyed(RNG.normal(size=5)), keyed(RNG.normal(size=5))
    one, other = paired(a, b), paired(b, a)
    assert one is not None
    assert other is not None
    assert (one.difference, one.low, one.p_value) == pytest.approx((-other.difference, -other.high, other.p_value))
