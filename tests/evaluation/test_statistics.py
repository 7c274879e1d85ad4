"""Spread, tests and intervals equal scipy's and a loop's, and say honestly what cannot be told."""

from __future__ import annotations

import math
import random
from dataclasses import astuple
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gated_domains.evaluation import (
    Interval,
    Paired,
    Record,
    Spread,
    bootstrap,
    holm,
    paired,
    record,
    spread,
    wilcoxon,
)

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


# --- Wilcoxon ---


def slow_wilcoxon(differences: list[float]) -> float:
    """All choices of signs, one after the other."""
    kept = [value for value in differences if value != 0]
    if not kept:
        return 1.0
    sizes = [abs(value) for value in kept]
    ranks = [sum(other < size for other in sizes) + (sum(other == size for other in sizes) + 1) / 2 for size in sizes]
    centre = sum(ranks) / 2
    found = abs(sum(rank for rank, value in zip(ranks, kept, strict=True) if value > 0) - centre)
    sums = [sum(chosen) for chosen in product(*((0.0, rank) for rank in ranks))]
    return sum(abs(total - centre) >= found - 1e-9 for total in sums) / len(sums)


@given(st.lists(st.integers(-6, 6), min_size=2, max_size=9))
def test_wilcoxon_counts_all_choices_of_signs_with_ties_and_zeros(steps: list[int]) -> None:
    assert wilcoxon(keyed(steps), keyed([0] * len(steps))) == pytest.approx(slow_wilcoxon(list(map(float, steps))))


@pytest.mark.parametrize("n", [2, 5, 10, 20, 49, 80])
def test_wilcoxon_is_scipys_where_nothing_is_tied(n: int) -> None:
    a, b = RNG.normal(0.3, 1, n), RNG.normal(0, 1, n)
    assert wilcoxon(keyed(a), keyed(b)) == pytest.approx(stats.wilcoxon(a, b).pvalue)


def test_differences_equal_but_for_rounding_share_a_rank() -> None:
    b = [0.3, 0.7, 0.9, 0.1, 0.5, 0.2]
    a = [value + step for value, step in zip(b, (0.1, 0.1, -0.1, 0.1, 0.2, 0.0), strict=True)]
    assert len({abs(x - y) for x, y in zip(a, b, strict=True)}) > 3
    assert wilcoxon(keyed(a), keyed(b)) == pytest.approx(slow_wilcoxon([1, 1, -1, 1, 2, 0]))


def test_wilcoxon_of_one_pair_is_none_and_of_equal_ones_one() -> None:
    assert wilcoxon({1: 0.5}, {1: 0.25}) is None
    assert wilcoxon({1: 0.5}, {2: 0.25}) is None
    assert wilcoxon({1: 0.5, 2: 0.0}, {1: 0.5, 2: 0.0}) == 1.0
    assert wilcoxon({1: 0.0, 2: 0.0}, {1: 0.0, 2: 0.0}) == 1.0


# --- Holm ---


def slow_holm(p_values: list[float]) -> list[float]:
    """The level at which the step-down procedure first rejects each, found from below."""
    return [
        max(
            min(1.0, (len(p_values) - sum(other < value for other in p_values)) * value)
            for value in p_values
            if value <= p
        )
        for p in p_values
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8, unique=True))
def test_holm_is_what_the_definition_says(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(slow_holm(p_values))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.999))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float], level: float) -> None:
    rejected = set()
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        if (len(p_values) - step) * p_values[place] > level:
            break
        rejected.add(place)
    assert {place for place, p in enumerate(holm(p_values)) if p is not None and p <= level} == rejected


def test_a_known_example_and_a_single_test() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_what_was_not_tested_is_not_counted() -> None:
    assert holm([None, 0.02, None, 0.5]) == [None, 0.04, None, 0.5]


# --- the bootstrap ---


def by_domain(key: tuple[str, int]) -> str:
    return key[0]


def slow_bootstrap(differences: dict[tuple[str, int], float], draws: int = 20_000) -> tuple[float, float]:
    """Domains, then seeds, one draw after the other."""
    domains: dict[str, list[float]] = {}
    for (domain, _), value in differences.items():
        domains.setdefault(domain, []).append(value)
    rng = random.Random(1)
    means = []
    for _ in range(draws):
        drawn = []
        for domain in rng.choices(list(domains), k=len(domains)):
            drawn += rng.choices(domains[domain], k=len(domains[domain]))
        means.append(sum(drawn) / len(drawn))
    means.sort()
    return means[int(0.025 * draws)], means[int(0.975 * draws)]


def test_the_bootstrap_is_what_a_loop_draws() -> None:
    rng = np.random.default_rng(5)
    values = {(f"d{domain}", seed): rng.normal(0.3 * domain, 0.5) for domain in range(6) for seed in range(4)}
    del values["d0", 3], values["d5", 1], values["d5", 2]
    found = bootstrap(values, dict.fromkeys(values, 0.0), cluster=by_domain)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(slow_bootstrap(values), abs=0.03)


def test_domains_that_differ_make_it_wider_than_pairs_that_do() -> None:
    ours = {(f"d{domain}", seed): 0.1 * domain + 0.001 * seed for domain in range(5) for seed in range(5)}
    none = dict.fromkeys(ours, 0.0)
    whole, apart = bootstrap(ours, none, cluster=by_domain), bootstrap(ours, none, cluster=lambda key: key)
    assert whole is not None
    assert apart is not None
    assert whole.high - whole.low > 1.5 * (apart.high - apart.low)


def test_it_is_the_same_each_time_and_whatever_the_order() -> None:
    a, b = keyed(RNG.normal(size=10)), keyed(RNG.normal(size=10))
    found = bootstrap(a, b, cluster=by_domain)
    mixed = dict(random.Random(0).sample(list(a.items()), len(a)))
    assert bootstrap(mixed, b, cluster=by_domain) == bootstrap(a, b, cluster=by_domain) == found


def test_many_pairs_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    a, b = keyed(rng.normal(size=10)), keyed(rng.normal(size=10))
    whole = bootstrap(a, b, cluster=by_domain)
    monkeypatch.setattr("gated_domains.evaluation.statistics._AT_ONCE", 7_000)
    pieces = bootstrap(a, b, cluster=by_domain)
    assert whole is not None
    assert pieces is not None
    assert (whole.low, whole.high) == pytest.approx((pieces.low, pieces.high), abs=0.1)


def test_equal_differences_leave_no_room_and_one_pair_has_no_interval() -> None:
    a = keyed([0.5, 0.75, 0.25, 1.0])
    assert bootstrap(a, {key: value - 0.25 for key, value in a.items()}, cluster=by_domain) == Interval(0.25, 0.25)
    assert bootstrap({1: 0.5}, {1: 0.25}, cluster=str) is None


# --- wins ---


def test_wins_are_counted_pair_by_pair_in_the_direction_of_the_metric() -> None:
    a, b = keyed([0.5, 0.6, 0.7, 0.3]), keyed([0.4, 0.6, 0.6, 0.4])
    assert record(a, b, higher_is_better=True) == Record(2, 1, 1)
    assert record(a, b, higher_is_better=False) == Record(1, 1, 2)


def test_rounding_wins_nothing() -> None:
    assert record({1: 0.1 + 0.2}, {1: 0.3}, higher_is_better=True) == Record(0, 1, 0)
    assert record({1: 0.1}, {2: 0.3}, higher_is_better=True) == Record(0, 0, 0)
