"""The rank of a new site among the sources: T by loops over pairs, its level without a shift, its power on one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from gated_domains.insight.sampling import whole_groups
from gated_domains.insight.shift.distances import Distances, upper_distance
from gated_domains.insight.shift.site_rank import FEWEST_ROWS, site_rank
from gated_domains.layer.kernels import Gaussian

SIGMA = 1.5


def slow_t(sites: list[torch.Tensor], labels: list[np.ndarray], k: int) -> float:
    """``||mu_k - mean of the other mu||^2`` from the formula, pair by pair, without pairs inside a group."""

    def value(x: torch.Tensor, z: torch.Tensor) -> float:
        return math.exp(-float(((x - z).double() ** 2).sum()) / (2 * SIGMA**2))

    def product(a: int, b: int) -> float:
        pairs = [
            value(x, z)
            for x, own in zip(sites[a], labels[a], strict=True)
            for z, other in zip(sites[b], labels[b], strict=True)
            if a != b or own != other
        ]
        return sum(pairs) / len(pairs)

    others = [b for b in range(len(sites)) if b != k]
    to_others = sum(product(k, b) for b in others) / len(others)
    among = sum(product(a, b) for a in others for b in others) / len(others) ** 2
    return product(k, k) - 2 * to_others + among


@pytest.mark.parametrize("clustered", [False, True])
def test_t_is_that_of_the_formula(clustered):
    sites = [torch.randn(6, 3) + place for place in (0.0, 0.3, 1.0, 1.4)]
    labels = [np.array(["a", "b", "a", "c", "c", "b"]) if clustered else np.arange(6) for _ in sites]
    found = site_rank(Gaussian(SIGMA), sites[:3], sites[3], groups=labels if clustered else None)
    expected = [slow_t(sites, labels, k) for k in range(4)]
    np.testing.assert_allclose([*found.squared_of_sources, found.squared], expected, rtol=1e-4, atol=1e-6)
    assert found.rank == sum(value >= expected[3] for value in expected)
    assert (found.sites, found.p_value, found.rows) == (4, found.rank / 4, 6)


def made_sites(generator, *, sites, patients, rows, spread=0.0, moved=0.0):
    """Sites of ``patients`` with ``rows`` each, their centres ``spread`` apart; the last is ``moved``."""
    centre = spread * torch.randn(sites, 1, 1, 2, generator=generator)
    centre[-1] += moved
    own = torch.randn(sites, patients, 1, 2, generator=generator)
    noise = torch.randn(sites, patients, rows, 2, generator=generator)
    return (centre + (own + 0.3 * noise if rows > 1 else own)).reshape(sites, patients * rows, 2)


def alarms(sources, *, repeats, patients=12, rows=1, together=False, **others):
    generator, found = torch.Generator().manual_seed(3), 0
    groups = [np.repeat(np.arange(patients), rows)] * (sources + 1) if together else None
    # Of means alone, and ten times as fast, where there are millions of pairs.
    kernel = (lambda x, z: x @ z.mT) if together else Gaussian(1.0)
    for repeat in range(repeats):
        sites = made_sites(generator, sites=sources + 1, patients=patients, rows=rows, **others)
        ranked = site_rank(kernel, list(sites[:-1]), sites[-1], groups=groups, seed=repeat)
        found += ranked.p_value <= 0.05
    return found


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("sources", "spread", "patients", "rows", "repeats"),
    [(19, 0.0, 12, 1, 300), (39, 0.0, 8, 1, 300), (19, 1.0, 12, 1, 300), (19, 0.0, 20, 10, 40)],
    ids=["19 sites alike", "39 sites alike", "19 sites that differ", "20 patients x 10 rows"],
)
def test_a_site_of_the_same_population_is_significant_in_one_of_twenty(sources, spread, patients, rows, repeats):
    found = alarms(sources, repeats=repeats, spread=spread, patients=patients, rows=rows, together=rows > 1)
    low, high = binom.interval(0.99, repeats, 0.05)
    assert low <= found <= high


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("smaller", [0, -1], ids=["a small source", "a small new site"])
def test_sites_of_other_sizes_do_not_raise_the_level(smaller):
    generator, found, repeats = torch.Generator().manual_seed(4), 0, 80
    for repeat in range(repeats):
        sites = [*torch.randn(20, 40, 2, generator=generator)]
        sites[smaller] = sites[smaller][:10]
        found += site_rank(Gaussian(1.0), sites[:-1], sites[-1], seed=repeat).p_value <= 0.05
    assert found <= binom.interval(0.99, repeats, 0.05)[1]


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("of_sources", "of_new"),
    [
        ((40, 1), (4, 10)),
        pytest.param((4, 10), (40, 1), marks=pytest.mark.slow),
        pytest.param((10, 4), (5, 8), marks=pytest.mark.slow),
    ],
    ids=["few", "many", "fewer"],
)
def test_sites_with_other_numbers_of_rows_per_patient_do_not_raise_the_level(of_sources, of_new):
    generator, found, repeats = torch.Generator().manual_seed(5), 0, 150

    def site(patients, rows):
        own = torch.randn(patients, 1, 2, generator=generator)
        return (own + 0.3 * torch.randn(patients, rows, 2, generator=generator)).reshape(-1, 2)

    groups = [*[np.repeat(np.arange(of_sources[0]), of_sources[1])] * 19, np.repeat(np.arange(of_new[0]), of_new[1])]
    for repeat in range(repeats):
        sites = [*(site(*of_sources) for _ in range(19)), site(*of_new)]
        ranked = site_rank(Gaussian(1.0), sites[:-1], sites[-1], groups=groups, seed=repeat)
        found += ranked.p_value <= 0.05
        assert (ranked.groups, ranked.rows) == (
            min(of_sources[0], of_new[0]),
            ranked.groups * min(of_sources[1], of_new[1]),
        )
    assert found <= binom.interval(0.99, repeats, 0.05)[1]


def test_where_groups_of_only_some_sites_are_known_there_is_no_p_value():
    sources, new = [torch.randn(30, 2) for _ in range(19)], torch.randn(30, 2) + 9
    patients = np.repeat(np.arange(3), 10)
    for groups in ([None] * 19 + [patients], [patients] * 19 + [None]):
        found = site_rank(Gaussian(1.0), sources, new, groups=groups)
        assert (found.rank, found.p_value, found.groups, found.rows) == (1, None, 3, 3)
        assert not found.can_be_significant
        assert found.farther


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(("patients", "rows"), [(12, 1), (20, 10)])
def test_a_site_farther_than_sources_are_from_one_another_is_found(patients, rows):
    found = alarms(19, repeats=10, patients=patients, rows=rows, together=rows > 1, spread=0.3, moved=2.0)
    assert found >= 9


def test_three_sources_give_a_rank_and_no_significance():
    far = site_rank(Gaussian(1.0), [torch.randn(30, 2) for _ in range(3)], torch.randn(30, 2) + 9)
    assert (far.rank, far.sites, far.p_value) == (1, 4, 0.25)
    assert far.farther
    assert not far.can_be_significant


def test_nineteen_sources_are_enough_for_significance_and_eighteen_are_not():
    def ranked(count):
        return site_rank(Gaussian(1.0), [torch.randn(12, 2) for _ in range(count)], torch.randn(12, 2) + 9)

    assert ranked(19).can_be_significant
    assert not ranked(18).can_be_significant


def test_sources_of_very_few_rows_are_left_out_and_one_source_has_no_rank():
    sources = [torch.randn(30, 2), torch.randn(30, 2), torch.randn(2, 2)]
    found = site_rank(Gaussian(1.0), sources, torch.randn(40, 2))
    assert (found.sites, found.rows, found.left_out) == (3, 30, (2,))
    assert FEWEST_ROWS > 2
    assert site_rank(Gaussian(1.0), sources[:1], torch.randn(40, 2)) is None
    assert site_rank(Gaussian(1.0), [], torch.randn(40, 2)) is None
    alone = [np.arange(30), np.arange(30), np.arange(2), np.zeros(40)]
    assert site_rank(Gaussian(1.0), sources, torch.randn(40, 2), groups=alone) is None


def test_groups_are_taken_whole_and_the_same_seed_takes_the_same():
    labels = np.repeat(np.arange(30), 7)[np.random.default_rng(0).permutation(210)]
    rows = whole_groups(labels, 50, np.random.default_rng(1))
    assert len(rows) == 49
    assert all((labels[rows] == label).sum() == 7 for label in np.unique(labels[rows]))
    np.testing.assert_array_equal(rows, whole_groups(labels, 50, np.random.default_rng(1)))
    sources, new = [torch.randn(50, 2), torch.randn(20, 2), torch.randn(35, 2)], torch.randn(90, 2)
    first, second = (site_rank(Gaussian(1.0), sources, new, seed=5) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("clustered", [False, True])
def test_the_upper_limit_of_a_distance_is_that_of_a_jackknife(clustered):
    one, other = torch.randn(6, 3), torch.randn(8, 3) + 0.5
    labels = (np.array([0, 0, 1, 1, 2, 2]), np.arange(8) // 2) if clustered else (np.arange(6), np.arange(8))

    def squared(rows, others, of_rows, of_others):
        def value(x, z):
            return math.exp(-float(((x - z).double() ** 2).sum()) / (2 * SIGMA**2))

        def norm(some, own):
            pairs = [value(some[i], some[j]) for i in range(len(own)) for j in range(len(own)) if own[i] != own[j]]
            return sum(pairs) / len(pairs)

        cross = sum(value(x, z) for x in rows for z in others) / (len(rows) * len(others))
        return norm(rows, of_rows) + norm(others, of_others) - 2 * cross

    variance = 0.0
    for side in (0, 1):
        left = []
        for label in np.unique(labels[side]):
            kept = [np.ones(6, bool), np.ones(8, bool)]
            kept[side] = labels[side] != label
            left.append(squared(one[kept[0]], other[kept[1]], labels[0][kept[0]], labels[1][kept[1]]))
        variance += (len(left) - 1) / len(left) * float(((np.array(left) - np.mean(left)) ** 2).sum())
    expected = math.sqrt(max(0.0, squared(one, other, *labels)) + 2 * math.sqrt(variance))
    found = upper_distance(Gaussian(SIGMA), one, other, groups=labels if clustered else None)
    assert found == pytest.approx(expected, rel=1e-4)
    assert clustered or found > Distances.of(Gaussian(SIGMA), [one, other]).between([0], [1])
    assert math.isnan(upper_distance(Gaussian(SIGMA), one[:2], other))
