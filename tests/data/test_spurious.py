"""Sites with a misleading attribute against their own truth, within what chance allows."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.labels import groups_among
from gated_domains.data.loading import load_data
from gated_domains.data.splits import hold_outs
from gated_domains.data.spurious import spurious

SIGMAS = 5


def attribute(data: DomainDataset) -> np.ndarray:
    return np.array([int(word.removeprefix("style ")) for word in data.metadata["attribute"]])


def agreement(data: DomainDataset, site: int) -> float:
    """How often the attribute is that of the class at a site."""
    mine = data.domains == site
    return float((attribute(data)[mine] == data.targets[mine]).mean())


def within_chance(found: float, share: float, rows: int) -> bool:
    return abs(found - share) <= SIGMAS * math.sqrt(share * (1 - share) / rows) + 1e-9


def values(data: DomainDataset) -> np.ndarray:
    return data.inputs.read(np.arange(len(data))).astype(float)


@pytest.mark.parametrize(
    ("correlation", "classes", "shares"),
    [
        (0.95, 2, (0.92, 0.94, 0.96, 0.98)),
        (0.75, 2, (0.6, 0.7, 0.8, 0.9)),
        (1.0, 2, (1.0, 1.0, 1.0, 1.0)),
        (0.5, 2, (0.5, 0.5, 0.5, 0.5)),
        (0.9, 4, (0.84, 0.88, 0.92, 0.96)),
    ],
)
def test_the_attribute_is_that_of_the_class_as_often_as_each_site_has_it(correlation, classes, shares):
    data = spurious(rows=4_000, correlation=correlation, classes=classes)
    assert data.domain_names == ("site 1", "site 2", "site 3", "site 4", "balanced")
    for site, share in enumerate(shares):
        assert within_chance(agreement(data, site), share, 4_000)
    assert within_chance(agreement(data, 4), 1 / classes, 16_000)


def test_one_site_has_the_correlation_itself():
    data = spurious(rows=4_000, sites=1)
    assert data.domain_names == ("site 1", "balanced")
    assert within_chance(agreement(data, 0), 0.95, 4_000)


@pytest.mark.parametrize("classes", [2, 3])
def test_in_the_balanced_site_every_attribute_is_as_frequent_in_every_class(classes):
    data = spurious(rows=4_000, classes=classes)
    mine = data.domains == 4
    assert mine.sum() == 16_000
    for label in range(classes):
        for which in range(classes):
            found = ((data.targets == label) & (attribute(data) == which))[mine].mean()
            assert within_chance(float(found), 1 / classes**2, 16_000)


def test_classes_are_equally_frequent_at_every_site():
    data = spurious(rows=3_000)
    for site in range(5):
        mine = data.domains == site
        assert within_chance(float(data.targets[mine].mean()), 0.5, int(mine.sum()))


@pytest.mark.parametrize(("core", "style", "classes"), [(1.0, 3.0, 2), (0.5, 0.0, 2), (2.0, 4.0, 3)])
def test_classes_and_attributes_lie_as_far_apart_as_asked_and_the_rest_is_standard_normal(core, style, classes):
    data = spurious(rows=8_000, classes=classes, core=core, style=style, dimension=12, seed=4)
    x, which = values(data), attribute(data)
    centres = {
        (label, one): x[(data.targets == label) & (which == one)].mean(axis=0)
        for label in range(classes)
        for one in range(classes)
    }
    least = min(((data.targets == label) & (which == one)).sum() for label, one in centres)
    error = SIGMAS * math.sqrt(2 * 12 / least)
    assert np.linalg.norm(centres[0, 0] - centres[1, 0]) == pytest.approx(2 * core, abs=error)
    assert np.linalg.norm(centres[0, 0] - centres[0, 1]) == pytest.approx(2 * style, abs=error)
    across = np.dot(centres[0, 0] - centres[1, 0], centres[0, 0] - centres[0, 1])
    assert abs(across) <= error * 2 * (core + style)
    left = x - np.array([centres[label, one] for label, one in zip(data.targets, which, strict=True)])
    np.testing.assert_allclose(np.cov(left.T), np.eye(12), atol=SIGMAS * math.sqrt(2 / len(x)) + 1e-2)


@pytest.mark.parametrize("core", [0.5, 1.0, 2.0])
def test_the_core_tells_as_many_of_two_classes_as_its_normal_distribution_says(core):
    data = spurious(rows=4_000, core=core, seed=2)
    x, which = values(data), attribute(data)
    direction = sum(
        (1 if label else -1) * x[(data.targets == label) & (which == one)].mean(axis=0)
        for label in (0, 1)
        for one in (0, 1)
    )
    along = x @ direction
    mine = data.domains == 4
    found = ((along > along[mine].mean()) == data.targets)[mine].mean()
    assert found == pytest.approx(NormalDist().cdf(core), abs=0.02)


def test_groups_are_attribute_and_class():
    data = spurious(rows=200)
    groups = groups_among(data, np.arange(len(data)), ("attribute", "class"))
    assert groups.names == ("style 0, 0", "style 0, 1", "style 1, 0", "style 1, 1")
    (split,) = hold_outs(data, "balanced")
    sizes = groups_among(data, split.train, ("attribute", "class")).sizes
    assert sizes[0] > 5 * sizes[1]
    assert set(data.domains[split.test]) == {4}


def test_the_same_seed_gives_the_same_data_and_another_seed_others():
    one, again, other = (spurious(rows=50, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(values(one), values(again))
    assert np.array_equal(one.targets, again.targets)
    assert np.array_equal(one.metadata["attribute"], again.metadata["attribute"])
    assert not np.array_equal(values(one), values(other))


def test_it_goes_by_its_name():
    data = load_data("spurious", seed=3)
    assert data.name == "spurious"
    assert np.array_equal(values(data), values(spurious(seed=3)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": 0}, "rows must be 1 or more, got 0"),
        ({"sites": 0}, "sites must be 1 or more"),
        ({"classes": 1}, "classes must be 2 or more"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"dimension": 3}, "dimension must be 4 or more, a direction for each of 2 classes and attributes; got 3"),
        ({"correlation": 0.3}, "correlation must lie between 0.5, .* and 1, got 0.3"),
        ({"correlation": 1.1}, "got 1.1"),
        ({"correlation": math.nan}, "got nan"),
        ({"core": -1.0}, "core must be a number from 0 on, got -1"),
        ({"style": math.inf}, "style must be a number from 0 on, got inf"),
    ],
)
def test_impossible_wishes_are_refused_with_what_is_possible(wrong, message):
    with pytest.raises(DataError, match=message):
        spurious(**wrong)
