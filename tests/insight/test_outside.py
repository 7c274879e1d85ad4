"""What of a site lies outside the span of the bases, held against mixtures of which the truth is known."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from gated_domains.data.errors import DataError
from gated_domains.data.synthetic import Elements, synthetic
from gated_domains.insight.shift.outside import Outside, outside_span, weight_of_new
from gated_domains.layer.kernels import Gaussian
from gated_domains.layer.units import GatedDomainUnits

DIMENSION = 10


class Trained(NamedTuple):
    """Units that were fitted to all elements but the last."""

    units: GatedDomainUnits
    truth: Elements
    known: int
    mean: np.ndarray
    scale: np.ndarray

    def view(self, inputs: np.ndarray) -> torch.Tensor:
        return torch.from_numpy((inputs - self.mean) / self.scale)

    def familiar(self, rows: int, seed: int) -> torch.Tensor:
        return self.view(self.truth.sample(_known(self.known), rows, seed=seed).inputs)

    def site(self, weight: float, rows: int, seed: int) -> tuple[torch.Tensor, np.ndarray]:
        """Rows of a site with this weight of the new element, the others in proportions of its own; which are new."""
        own = np.random.default_rng(seed).dirichlet(np.ones(self.known))
        drawn = self.truth.sample(np.append((1 - weight) * own, weight), rows, seed=seed)
        return self.view(drawn.inputs), drawn.element == self.known


def _known(count: int) -> np.ndarray:
    return np.append(np.full(count, 1 / count), 0.0)


@cache
def trained(elements: int, *, separation: float = 10.0, seed: int = 0) -> Trained:
    truth = synthetic(
        elements=elements, domains=elements, dimension=DIMENSION, separation=separation, rows=1, seed=seed
    )
    rows = truth.sample(_known(elements - 1), 1_200, seed=1).inputs
    torch.manual_seed(seed)
    units = GatedDomainUnits(DIMENSION, 2, num_bases=elements - 1)
    found = Trained(units, truth, elements - 1, rows.mean(0), rows.std(0))
    units.fit_bases(found.view(rows))
    return found


def look(model: Trained, weight: float, *, rows: int = 400, seed: int = 10) -> Outside:
    return outside_span(model.units, model.site(weight, rows, seed)[0], model.familiar(500, seed + 1))


# -- what is new -------------------------------------------------------------------------------------------------------


def test_the_weight_of_a_new_element_lies_in_the_interval_nine_times_of_ten():
    weights, held = (0.0, 0.05, 0.1, 0.3, 0.6, 0.9), []
    for number in range(60):
        found = look(trained(3 + number % 3), weights[number // 10], seed=2 * number)
        held.append(found.low <= weights[number // 10] <= found.high)
    assert np.mean(held) >= 0.85


@pytest.mark.parametrize("elements", [3, 4, 5])
def test_the_estimate_follows_the_weight_whatever_the_proportions_of_the_others(elements):
    for seed, weight in enumerate((0.05, 0.2, 0.5, 0.8)):
        assert look(trained(elements), weight, rows=2_000, seed=seed).weight == pytest.approx(weight, abs=0.05)


def test_where_a_new_element_overlaps_with_the_span_the_estimate_is_too_low_rather_than_too_high():
    near = trained(4, separation=5.0, seed=2)
    found = look(near, 0.5, rows=2_000)
    assert found.low > 0
    assert found.high < 0.5


@pytest.mark.parametrize("elements", [3, 4, 5])
def test_flagged_samples_are_those_of_the_new_element(elements):
    model = trained(elements)
    view, new = model.site(0.3, 1_000, seed=3)
    residual = model.units.novelty(view).detach().numpy()
    found = outside_span(model.units, view, model.familiar(500, 4))
    assert roc_auc_score(new, residual) > 0.95
    assert found.samples[new].mean() > 0.9
    assert found.samples[~new].mean() < 0.1
    np.testing.assert_array_equal(found.samples, residual >= float(model.units.coverage.q97))


def test_what_is_usual_is_about_three_in_a_hundred_and_a_familiar_site_has_no_new_part():
    model = trained(4)
    found = look(model, 0.0, rows=1_000)
    assert found.usual_share == pytest.approx(0.03, abs=0.02)  # by the making of coverage
    assert abs(found.excess) < 0.03
    assert found.low == 0
    assert not found.new_part


def test_samples_of_a_new_element_have_something_in_common_and_scattered_ones_have_not():
    model = trained(4)
    view, new = model.site(0.2, 500, seed=5)
    together = outside_span(model.units, view, model.familiar(500, 6))
    scattered = view.clone()
    scattered[torch.from_numpy(new)] = 4 * torch.randn(int(new.sum()), DIMENSION)
    apart = outside_span(model.units, scattered, model.familiar(500, 6))
    assert together.new_part
    assert together.common > 0.5
    assert apart.low > 0
    assert apart.common < 0.1
    assert not apart.new_part


def test_more_of_the_mean_is_outside_the_more_there_is_of_the_new_element():
    found = [look(trained(4), weight).of_mean for weight in (0.0, 0.2, 0.5, 0.9)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(look(trained(4), 0.0).usual_of_mean, abs=0.02)
    assert found[-1] > 0.2


# -- the formulas, by loops --------------------------------------------------------------------------------------------


def test_of_mean_and_common_are_means_over_pairs_of_what_the_span_leaves():
    torch.manual_seed(3)
    units = GatedDomainUnits(3, 2, num_bases=2, basis_size=2, kernel=Gaussian(1.5)).double()
    rows, familiar = 2 * torch.randn(9, 3).double(), torch.randn(7, 3).double()
    units.fit_coverage(familiar)
    found = outside_span(units, rows, familiar)
    assert 2 <= found.samples.sum() < 9  # else the test would say nothing of some of them

    bases, marked = units.bases.detach().numpy(), found.samples
    rows, familiar = rows.numpy(), familiar.numpy()

    def k(x, z):
        return float(np.exp(-((x - z) ** 2).sum() / (2 * 1.5**2)))

    def cross(x):
        return np.array([np.mean([k(x, v) for v in basis]) for basis in bases])

    gram = np.array([[np.mean([k(u, v) for u in one for v in other]) for other in bases] for one in bases])

    def left(x, z):
        return k(x, z) - cross(x) @ np.linalg.inv(gram) @ cross(z)

    def over_pairs(of, some):
        return np.mean([of(x, z) for i, x in enumerate(some) for j, z in enumerate(some) if i != j])

    assert found.of_mean == pytest.approx(over_pairs(left, rows) / over_pairs(k, rows), rel=1e-6)
    assert found.usual_of_mean == pytest.approx(over_pairs(left, familiar) / over_pairs(k, familiar), rel=1e-6)
    outside = rows[marked]
    common = over_pairs(left, outside) / np.mean([left(x, x) for x in outside])
    assert found.common == pytest.approx(min(1, max(0, common)), abs=1e-6)


def test_a_row_inside_stands_for_as_many_familiar_rows_as_its_basis_loses():
    rng = np.random.default_rng(0)
    # Half of what is near the first basis is usually outside, nothing of what is near the second.
    usual = np.array([5_000, 10_000]), np.array([5_000, 0])
    site = np.array([300, 100]), np.array([400, 0])
    weight, low, high = weight_of_new(site, usual, level=0.9, rng=rng)
    assert weight == pytest.approx(1 - (300 / 0.5 + 100) / 800, abs=0.001)
    assert low < weight < high
    assert weight_of_new(site, usual, level=0.5, rng=rng)[1] > low


def test_a_basis_without_familiar_rows_loses_what_the_others_do():
    usual = np.array([9_000, 0]), np.array([1_000, 0])
    weight, _, _ = weight_of_new(
        (np.array([0, 900]), np.array([0, 100])), usual, level=0.9, rng=np.random.default_rng()
    )
    assert weight == pytest.approx(0, abs=0.001)


def test_a_site_that_is_all_outside_is_all_new_and_one_row_proves_little():
    usual = np.array([97]), np.array([3])
    many = weight_of_new((np.array([0]), np.array([500])), usual, level=0.9, rng=np.random.default_rng(0))
    few = weight_of_new((np.array([0]), np.array([2])), usual, level=0.9, rng=np.random.default_rng(0))
    assert (many[0], few[0]) == (1, 1)
    assert many[1] > 0.99
    assert few[1] < 0.6


# -- manners -----------------------------------------------------------------------------------------------------------


def test_spare_places_of_bases_change_nothing():
    rows = torch.randn(200, 3)
    torch.manual_seed(0)
    exact = GatedDomainUnits(3, 2, num_bases=2).fit_bases(rows)
    roomy = GatedDomainUnits(3, 2, num_bases=2, max_bases=5).fit_bases(rows)
    new = torch.randn(80, 3) + torch.tensor([2.0, 0, 0])
    one, other = (outside_span(units, new, rows) for units in (exact, roomy))
    np.testing.assert_array_equal(one.samples, other.samples)
    assert one.of_mean == pytest.approx(other.of_mean, abs=1e-5)
    assert one.weight == pytest.approx(other.weight, abs=1e-6)


def test_the_same_seed_gives_the_same_interval():
    model = trained(3)
    view, familiar = model.site(0.2, 200, seed=1)[0], model.familiar(200, 2)
    first, again = (outside_span(model.units, view, familiar, seed=4) for _ in range(2))
    assert (first.low, first.high) == (again.low, again.high)


def test_units_whose_coverage_was_never_fitted_are_refused_with_the_cure():
    with pytest.raises(DataError, match=r"call units\.fit_coverage"):
        outside_span(GatedDomainUnits(3, 2), torch.randn(5, 3), torch.randn(5, 3))


@pytest.mark.usefixtures("without_shape_checks")
def test_rows_of_another_width_and_levels_that_are_none_are_refused():
    model = trained(3)
    with pytest.raises(DataError, match="columns"):
        outside_span(model.units, torch.randn(5, 3), model.familiar(20, 0))
    with pytest.raises(DataError, match=r"between 0 and 1, got 1\.5"):
        outside_span(model.units, model.familiar(20, 1), model.familiar(20, 0), level=1.5)
