"""Statistics over runs equal scipy's, statsmodels' and loops written from the formulas; their error rates hold."""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import astuple
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gated_domains.evaluation import (
    Effect,
    Record,
    Spread,
    decide,
    domain_record,
    domains_to_decide,
    equivalent,
    holm,
    new_domain_effect,
    random_effects,
    sign_flip_p,
    spread,
    these_domains_effect,
    welch_effect,
)

RNG = np.random.default_rng(0)


def differences(domains: int, seeds: int, *, rng: np.random.Generator = RNG, icc: float = 0.7, mean: float = 0.0):
    """Differences whose share ``icc`` of variance lies between domains; their total variance is 1."""
    between = rng.normal(0, math.sqrt(icc), (domains, 1))
    values = mean + between + rng.normal(0, math.sqrt(1 - icc), (domains, seeds))
    return {f"domain {place}": row.tolist() for place, row in enumerate(values)}


# --- spread ---


def test_spread_is_what_a_loop_computes() -> None:
    values = [0.2, 0.5, 0.9]
    mean = sum(values) / 3
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
    assert astuple(spread(values)) == pytest.approx((mean, std, 3))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.randoms())
def test_a_mean_does_not_depend_on_the_order(values: list[float], chance: random.Random) -> None:
    """Else a table and a page may print 69.7 and 69.8 for one number."""
    mixed = chance.sample(values, len(values))
    assert spread(mixed) == spread(values)


def test_a_single_value_has_no_spread_and_none_is_refused() -> None:
    assert spread([0.4]) == Spread(0.4, None, 1)
    with pytest.raises(ValueError, match="no value"):
        spread([])


# --- on a new domain ---


@pytest.mark.parametrize(("domains", "seeds"), [(4, 1), (5, 3), (16, 2)])
def test_the_new_domain_effect_is_scipys_t_test_over_the_means_of_domains(domains: int, seeds: int) -> None:
    found = differences(domains, seeds, mean=0.3)
    means = [sum(values) / len(values) for values in found.values()]
    expected = stats.ttest_1samp(means, 0)
    effect, interval = new_domain_effect(found), new_domain_effect(found).interval()
    assert interval is not None
    low, high = expected.confidence_interval(0.95)
    assert (effect.difference, effect.p_value, effect.n) == pytest.approx((np.mean(means), expected.pvalue, domains))
    assert (interval.low, interval.high) == pytest.approx((low, high))


def test_seeds_of_one_domain_count_as_one_unit() -> None:
    """Copies of every seed change nothing: pairs of one domain are not independent."""
    found = differences(5, 3)
    copied = {name: values * 10 for name, values in found.items()}
    assert astuple(new_domain_effect(found)) == pytest.approx(astuple(new_domain_effect(copied)))


def test_fewer_than_four_domains_allow_no_statement_about_a_new_one() -> None:
    effect = new_domain_effect(differences(3, 10))
    assert effect.error is None
    assert effect.interval() is None
    assert effect.p_value is None
    assert decide(effect, margin=5.0, p_value=None) is None


def test_equal_scores_everywhere_are_no_difference_with_p_one() -> None:
    effect = new_domain_effect({name: [0.0, 0.0] for name in "abcd"})
    assert (effect.difference, effect.p_value) == (0.0, 1.0)
    assert decide(effect, margin=0.005, p_value=1.0) == "practically equal"
    assert decide(effect, margin=None, p_value=1.0) == "undecided"


def test_the_same_difference_on_every_domain_gives_no_p_value() -> None:
    # The differences are not equal because of rounding: a naive test would give p = 1e-30.
    scores = {"a": 0.3, "b": 0.7, "c": 0.9, "d": 0.1}
    found = {name: [score - (score - 0.1)] for name, score in scores.items()}
    assert len({values[0] for values in found.values()}) > 1
    effect = new_domain_effect(found)
    assert effect.difference == pytest.approx(0.1)
    assert effect.p_value is None
    assert effect.interval() is None


# --- on these domains ---


@pytest.mark.parametrize("seeds", [[3, 3, 3], [5, 2, 4, 1]])
def test_the_effect_on_these_domains_is_the_fixed_effects_model_of_statsmodels(seeds: list[int]) -> None:
    """Least squares with a mean for every domain; the contrast is the average of these means."""
    from statsmodels.api import OLS

    found = {f"domain {place}": RNG.normal(place, 1, count).tolist() for place, count in enumerate(seeds)}
    response = np.concatenate(list(found.values()))
    design = np.zeros((len(response), len(seeds)))
    design[np.arange(len(response)), np.repeat(np.arange(len(seeds)), seeds)] = 1
    expected = OLS(response, design).fit().t_test(np.full(len(seeds), 1 / len(seeds)))
    effect, interval = these_domains_effect(found), these_domains_effect(found).interval()
    assert interval is not None
    assert effect.difference == pytest.approx(expected.effect.item())
    assert effect.error == pytest.approx(expected.sd.item())
    assert effect.p_value == pytest.approx(expected.pvalue.item())
    assert (interval.low, interval.high) == pytest.approx(tuple(expected.conf_int()[0]))


def test_the_effect_on_one_domain_is_the_paired_t_test_over_seeds() -> None:
    a, b = RNG.normal(0.1, 1, 6), RNG.normal(0, 1, 6)
    effect = these_domains_effect({"mnist": (a - b).tolist()})
    assert effect.p_value == pytest.approx(stats.ttest_rel(a, b).pvalue)


def test_one_seed_gives_no_interval_on_these_domains() -> None:
    effect = these_domains_effect(differences(5, 1))
    assert (effect.error, effect.interval(), effect.p_value) == (None, None, None)


def test_equal_seeds_have_no_residual_whatever_rounding_leaves() -> None:
    found = {name: [gap] * 5 for name, gap in {"a": 0.1, "b": 0.3, "c": 0.07, "d": -0.11}.items()}
    effect = these_domains_effect(found)
    assert (effect.error, effect.interval(), effect.p_value) == (0.0, None, None)


# --- sign flips, records ---


@pytest.mark.parametrize("domains", [6, 9])
def test_the_sign_flip_test_counts_all_patterns(domains: int) -> None:
    found = differences(domains, 2, mean=0.5)
    means = [sum(values) / len(values) for values in found.values()]
    hits = sum(
        abs(sum(sign * mean for sign, mean in zip(signs, means, strict=True))) >= abs(sum(means)) - 1e-12
        for signs in product((1, -1), repeat=domains)
    )
    assert sign_flip_p(found) == pytest.approx(hits / 2**domains)


def test_the_sign_flip_test_of_many_domains_is_near_scipys_permutation_test() -> None:
    found = differences(30, 1, mean=0.25)
    means = np.array([values[0] for values in found.values()])
    expected = stats.permutation_test((means,), np.sum, permutation_type="samples", n_resamples=20_000, rng=1).pvalue
    assert sign_flip_p(found) == pytest.approx(expected, abs=0.01)


def test_five_domains_are_too_few_for_sign_flips() -> None:
    assert sign_flip_p(differences(5, 10, mean=9.0)) is None


def test_wins_count_domains_in_the_direction_of_the_metric() -> None:
    found = {"a": [0.3, -0.1], "b": [0.0, 0.0], "c": [-0.3, 0.1], "d": [0.5, 0.5]}
    assert domain_record(found, higher_is_better=True) == Record(2, 1, 1)
    assert domain_record(found, higher_is_better=False) == Record(1, 1, 2)


# --- verdicts ---


def test_equivalence_is_two_one_sided_t_tests_of_statsmodels() -> None:
    from statsmodels.stats.weightstats import DescrStatsW

    for scale in (0.1, 0.5, 1.0, 2.0):
        means = RNG.normal(0.1, scale, 8)
        p_value = DescrStatsW(means).ttost_mean(-0.5, 0.5)[0]
        effect = new_domain_effect({place: [value] for place, value in enumerate(means)})
        assert equivalent(effect, 0.5) == (p_value < 0.05)


@pytest.mark.parametrize(
    ("difference", "error", "p_value", "higher", "expected"),
    [
        (2.0, 0.3, 0.003, True, "better"),
        (2.0, 0.3, 0.003, False, "worse"),
        (-2.0, 0.3, 0.003, True, "worse"),
        (0.1, 0.1, 0.4, True, "practically equal"),
        (0.2, 0.05, 0.01, True, "practically equal"),  # significant, and too small to matter
        (2.0, 2.0, 0.4, True, "undecided"),
    ],
)
def test_a_verdict_is_one_of_four(difference: float, error: float, p_value: float, higher: bool, expected: str) -> None:
    effect = Effect(difference, error, 4.0, 5)
    assert decide(effect, margin=0.5, p_value=p_value, higher_is_better=higher) == expected


@given(st.floats(-3, 3), st.floats(0.1, 3), st.integers(4, 12), st.sampled_from([None, 0.5]))
def test_the_number_of_domains_to_decide_is_the_smallest_that_does(
    difference: float, std: float, domains: int, margin: float | None
) -> None:
    def verdict(n: int) -> str | None:
        effect = Effect(difference, std / math.sqrt(n), n - 1.0, n)
        return decide(effect, margin=margin, p_value=effect.p_value)

    if verdict(domains) != "undecided":
        return
    needed = domains_to_decide(Effect(difference, std / math.sqrt(domains), domains - 1.0, domains), margin=margin)
    if needed is None:
        assert verdict(100_000) == "undecided"
    else:
        assert needed > domains
        assert verdict(needed) != "undecided"
        assert verdict(needed - 1) == "undecided"


@pytest.mark.slow
@pytest.mark.parametrize(("domains", "seeds"), [(5, 3), (5, 10), (4, 5)])
def test_the_new_domain_test_keeps_its_level_with_correlated_pairs(domains: int, seeds: int) -> None:
    """No difference on a new domain is rejected in 5 % of 2,000 draws; pooling pairs would reject in 24 to 50 %."""
    rng = np.random.default_rng(domains * 100 + seeds)
    drawn = [differences(domains, seeds, rng=rng) for _ in range(2_000)]
    rejected = sum((new_domain_effect(found).p_value or 0) < 0.05 for found in drawn)
    low, high = stats.binom.interval(0.95, 2_000, 0.05)
    assert low <= rejected <= high
    pooled = sum(stats.ttest_1samp(np.concatenate(list(found.values())), 0).pvalue < 0.05 for found in drawn[:500])
    assert pooled > 0.15 * 500


@pytest.mark.slow
@pytest.mark.parametrize("domains", [4, 5, 10])
def test_at_the_margin_equivalence_is_concluded_in_at_most_5_percent(domains: int) -> None:
    rng = np.random.default_rng(domains)
    margin = 4.0  # wide beside the spread, so that only one of the two one-sided tests binds
    drawn = (differences(domains, 3, rng=rng, mean=margin) for _ in range(2_000))
    concluded = sum(equivalent(new_domain_effect(found), margin) for found in drawn)
    low, high = stats.binom.interval(0.95, 2_000, 0.05)
    assert low <= concluded <= high


# --- several data sets ---


def test_random_effects_are_statsmodels_dersimonian_laird_with_hartung_knapp() -> None:
    from statsmodels.stats.meta_analysis import combine_effects

    y, v = np.array([0.1, 1.9, -0.4, 0.8, 3.0]), np.array([0.2, 0.1, 0.3, 0.15, 0.4])
    expected = combine_effects(y, v, method_re="dl", use_t=True)
    found = random_effects([Effect(float(a), math.sqrt(b), 4.0, 5) for a, b in zip(y, v, strict=True)])
    assert found is not None
    interval = found.effect.interval()
    assert interval is not None
    assert expected.tau2 > 0
    assert found.tau**2 == pytest.approx(expected.tau2)
    assert found.effect.difference == pytest.approx(expected.mean_effect_re)
    assert found.effect.error == pytest.approx(expected.sd_eff_w_re_hksj)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected.conf_int(use_t=True)[3]))


def test_data_sets_that_agree_have_no_spread_between_them() -> None:
    from statsmodels.stats.meta_analysis import combine_effects

    y, v = np.array([0.5, 0.52, 0.49]), np.array([0.2, 0.1, 0.3])
    found = random_effects([Effect(float(a), math.sqrt(b), 4.0, 5) for a, b in zip(y, v, strict=True)])
    with warnings.catch_warnings():  # statsmodels lets its variance between data sets become negative
        warnings.simplefilter("ignore")
        fixed = combine_effects(y, v, method_re="dl", use_t=True)
    assert found is not None
    assert found.tau == 0
    assert found.effect.difference == pytest.approx(fixed.mean_effect_fe)


def test_two_data_sets_are_too_few_and_those_without_an_error_do_not_count() -> None:
    known, unknown = Effect(0.5, 0.1, 3.0, 4), Effect(0.5, None, 2.0, 3)
    assert random_effects([known, known]) is None
    assert random_effects([known, known, unknown]) is None
    assert random_effects([known, known, known]) is not None


def test_the_welch_effect_is_scipys() -> None:
    a, b = RNG.normal(1, 2, 5), RNG.normal(0, 1, 10)
    parts = [(float(x.var(ddof=1) / len(x)), len(x) - 1) for x in (a, b)]
    effect = welch_effect(float(a.mean() - b.mean()), parts)
    expected = stats.ttest_ind(a, b, equal_var=False)
    assert (effect.df, effect.p_value) == pytest.approx((expected.df, expected.pvalue))


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
