"""Mixtures against their own truth: means, spreads, shares and labels, within what chance allows."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.data.splits import hold_outs
from gated_domains.data.synthetic import Mixture, synthetic

SIGMAS = 5  # a true mixture exceeds so many standard errors in one of a million looks


def slow_label(mixture: Mixture, x: np.ndarray, element: int) -> int:
    """The class of one sample by the rule of its element, from the formula: which of equal slices of the normal."""
    along = 0.0
    for i in range(len(x)):
        along += mixture.rules[element, i] * (x[i] - mixture.centres[element, i]) / mixture.scales[element, i]
    return min(mixture.dataset.num_classes - 1, int(mixture.dataset.num_classes * NormalDist().cdf(along)))


def values(mixture: Mixture) -> np.ndarray:
    return mixture.dataset.inputs.read(np.arange(len(mixture.dataset))).astype(float)


@pytest.mark.parametrize("dimension", [1, 2, 10, 60])
@pytest.mark.parametrize("elements", [1, 2, 5])
def test_rows_of_an_element_lie_around_its_centre_with_its_scale(elements, dimension):
    mixture = synthetic(elements=elements, dimension=dimension, domains=6, rows=400, seed=1)
    x = values(mixture)
    for element in range(elements):
        mine = x[mixture.element == element]
        error = mixture.scales[element] / math.sqrt(len(mine))
        assert (np.abs(mine.mean(axis=0) - mixture.centres[element]) < SIGMAS * error).all()
        spread = mine.std(axis=0, ddof=1) / mixture.scales[element]
        assert (np.abs(spread - 1) < SIGMAS / math.sqrt(2 * len(mine))).all()


def test_a_domain_has_its_share_of_every_element():
    mixture = synthetic(elements=4, domains=9, rows=2_000)
    assert mixture.coefficients.shape == (9, 4)
    np.testing.assert_allclose(mixture.coefficients.sum(axis=1), 1)
    assert (mixture.coefficients >= 0).all()
    for domain in range(9):
        mine = mixture.element[mixture.dataset.domains == domain]
        assert len(mine) == 2_000
        for element in range(4):
            weight = mixture.coefficients[domain, element]
            found = sum(one == element for one in mine) / len(mine)
            assert abs(found - weight) <= SIGMAS * math.sqrt(weight * (1 - weight) / len(mine)) + 1e-3


@pytest.mark.parametrize("concentration", [0.02, 0.5, 20.0])
@pytest.mark.parametrize("seed", range(5))
def test_every_element_is_the_main_part_of_a_source_whichever_domain_is_held_out(seed, concentration):
    mixture = synthetic(elements=3, domains=6, rows=30, concentration=concentration, seed=seed)
    main = mixture.coefficients.argmax(axis=1)
    for held_out in range(6):
        assert set(np.delete(main, held_out)) == {0, 1, 2}


@pytest.mark.parametrize("concentration", [0.1, 1.0, 10.0])
def test_the_largest_coefficient_is_as_large_as_the_dirichlet_distribution_makes_it(concentration):
    expected = np.random.default_rng(99).dirichlet([concentration] * 3, size=20_000).max(axis=1)
    found = synthetic(domains=200, rows=1, concentration=concentration).coefficients.max(axis=1)
    assert abs(found.mean() - expected.mean()) < SIGMAS * expected.std() / math.sqrt(200)


@pytest.mark.parametrize(("elements", "dimension"), [(2, 1), (5, 1), (6, 2), (3, 10), (12, 40)])
def test_the_nearest_centres_are_as_far_apart_as_asked(elements, dimension):
    mixture = synthetic(elements=elements, domains=elements, dimension=dimension, rows=5, separation=7.0)
    nearest = min(
        math.dist(mixture.centres[i], mixture.centres[j]) for i in range(elements) for j in range(elements) if i != j
    )
    assert nearest == pytest.approx(7.0)


@pytest.mark.parametrize("dimension", [1, 3])
@pytest.mark.parametrize("classes", [2, 5])
def test_labels_follow_the_rule_of_the_element_and_noise_replaces_its_share(dimension, classes):
    clean = synthetic(dimension=dimension, classes=classes, rows=100, noise=0.0)
    for x, element, label in zip(values(clean), clean.element, clean.dataset.targets, strict=True):
        assert label == slow_label(clean, x, element)
    noisy = synthetic(dimension=dimension, classes=classes, rows=1_000, noise=0.3)
    np.testing.assert_array_equal(noisy.rules, clean.rules)
    wrong = np.mean([noisy.label(values(noisy), noisy.element) != noisy.dataset.targets])
    expected = 0.3 * (1 - 1 / classes)  # a label drawn anew may fall on the old one
    assert abs(wrong - expected) < SIGMAS * math.sqrt(expected * (1 - expected) / len(noisy.dataset))


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classes_are_equally_frequent_in_every_element(classes):
    mixture = synthetic(classes=classes, rows=2_000)
    for element in range(3):
        labels = mixture.dataset.targets[mixture.element == element]
        error = math.sqrt(1 / classes * (1 - 1 / classes) / len(labels))
        for label in range(classes):
            assert abs(np.mean(labels == label) - 1 / classes) < SIGMAS * error


def linear_accuracy(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> float:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1_000).fit(x, y).score(x_test, y_test)


def test_an_oracle_with_a_rule_for_each_element_beats_one_linear_rule():
    mixture = synthetic(rows=500, noise=0.05)
    x, y = values(mixture), mixture.dataset.targets
    right = []
    for row, label in zip(x, y, strict=True):
        # The element is found, not told.
        element = min(range(3), key=lambda j: _cost(row, mixture.centres[j], mixture.scales[j]))
        right.append(slow_label(mixture, row, element) == label)
    oracle = np.mean(right)
    bayes = 1 - 0.05 / 2
    assert oracle > bayes - 0.03
    for split in hold_outs(mixture.dataset):
        shared = linear_accuracy(x[split.train], y[split.train], x[split.test], y[split.test])
        assert shared < oracle - 0.1


def _cost(x: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> float:
    return float((((x - centre) / scale) ** 2 / 2 + np.log(scale)).sum())


def test_rules_agree_with_a_common_one_as_far_as_own_says():
    for own, cosine in ((0.0, 1.0), (0.6, 0.8), (1.0, 0.0)):
        mixture = synthetic(elements=4, domains=4, dimension=30, own=own)
        np.testing.assert_allclose(np.linalg.norm(mixture.rules, axis=1), 1)
        np.testing.assert_allclose(mixture.rules @ mixture.common_rule, cosine, atol=1e-12)
    assert len(np.unique(mixture.rules.round(6), axis=0)) == 4


def test_more_samples_come_from_one_element_or_any_mixture():
    mixture = synthetic(elements=3)
    pure = mixture.sample(1, 4_000, seed=5)
    assert set(pure.element) == {1}
    error = mixture.scales[1] / math.sqrt(4_000)
    assert (np.abs(pure.inputs.mean(axis=0) - mixture.centres[1]) < SIGMAS * error).all()
    mixed = mixture.sample([0.5, 0.0, 0.5], 4_000, seed=5)
    assert set(mixed.element) == {0, 2}
    assert abs(np.mean(mixed.element == 0) - 0.5) < SIGMAS * math.sqrt(0.25 / 4_000)
    assert mixed.inputs.dtype == np.float32
    assert mixed.targets.dtype == np.int64
    again = mixture.sample([0.5, 0.0, 0.5], 4_000, seed=5)
    for one, other in zip(mixed, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (mixture.sample(1, 4_000, seed=6).inputs != pure.inputs).any()


def test_the_seed_decides_and_more_rows_leave_the_truth_as_it_is():
    one, again, other, longer = (synthetic(seed=seed, rows=rows) for seed, rows in ((0, 50), (0, 50), (1, 50), (0, 80)))
    np.testing.assert_array_equal(values(one), values(again))
    np.testing.assert_array_equal(one.dataset.targets, again.dataset.targets)
    assert not np.array_equal(one.centres, other.centres)
    for name in ("centres", "scales", "rules", "coefficients"):
        np.testing.assert_array_equal(getattr(one, name), getattr(longer, name))


def test_the_data_set_says_what_it_is():
    dataset = synthetic(domains=4, rows=20, classes=3, dimension=2).dataset
    assert dataset.name == "synthetic"
    assert dataset.domain_names == ("domain 1", "domain 2", "domain 3", "domain 4")
    assert dataset.class_names == ("0", "1", "2")
    assert len(dataset) == 80
    assert dataset.metadata["element"].shape == (80,)
    assert [len(split.test) for split in hold_outs(dataset, "each")] == [20] * 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"elements": 0}, ["elements", "0"]),
        ({"elements": 4, "domains": 3}, ["domains", "3", "4"]),
        ({"dimension": 0}, ["dimension", "0"]),
        ({"rows": 0}, ["rows", "0"]),
        ({"classes": 1}, ["classes", "1", "2"]),
        ({"separation": -1.0}, ["separation", "-1"]),
        ({"separation": float("inf")}, ["separation", "inf"]),
        ({"concentration": 0.0}, ["concentration", "0"]),
        ({"concentration": float("nan")}, ["concentration", "nan"]),
        ({"noise": 1.5}, ["noise", "1.5"]),
        ({"noise": -0.1}, ["noise", "-0.1"]),
        ({"own": 1.1}, ["own", "1.1"]),
        ({"seed": -1}, ["seed", "-1"]),
    ],
)
def test_nonsense_is_refused_with_the_value(arguments, words):
    with pytest.raises(DataError) as caught:
        synthetic(**arguments)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "word"),
    [
        (3, "element 3"),
        (-1, "element -1"),
        ([0.5, 0.5], "3 weights"),
        ([0.9, 0.9, 0.0], "1.8"),
        ([1.5, -0.5, 0.0], "-0.5"),
        ([float("nan"), 1.0, 0.0], "nan"),
    ],
)
def test_weights_that_are_no_mixture_are_refused(weights, word):
    with pytest.raises(DataError, match=word):
        synthetic().sample(weights, 10, seed=0)


def test_a_sample_of_no_rows_or_of_a_negative_seed_is_refused():
    with pytest.raises(DataError, match=r"rows.*0"):
        synthetic().sample(0, 0, seed=0)
    with pytest.raises(DataError, match=r"seed.*-3"):
        synthetic().sample(0, 5, seed=-3)
