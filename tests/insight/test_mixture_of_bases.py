"""Which bases a site draws on: the projection against all faces of the simplex, intervals against known mixtures."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from gated_domains.data.errors import DataError
from gated_domains.data.synthetic import synthetic
from gated_domains.insight.shift import mixture, project_on_simplex, site_mixture
from gated_domains.insight.shift.mixture import _Pairs
from gated_domains.layer import GatedDomainUnits
from gated_domains.layer.fitting import median_sigma
from gated_domains.layer.kernels import Gaussian


def best_of_all_faces(gram, cross):
    """The least ``w' gram w - 2 w' cross`` over every set of bases whose best weights are not negative."""
    best, found = np.inf, None
    for size in range(1, len(cross) + 1):
        for face in map(list, itertools.combinations(range(len(cross)), size)):
            system = np.block([[gram[np.ix_(face, face)], np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            w = np.zeros(len(cross))
            w[face] = np.linalg.solve(system, np.append(cross[face], 1))[:size]
            value = w @ gram @ w - 2 * w @ cross
            if (w >= 0).all() and value < best:
                best, found = value, w
    return found


@pytest.mark.parametrize("bases", [1, 2, 3, 4])
def test_the_nearest_mixture_is_the_best_of_all_faces_of_the_simplex(bases):
    rng = np.random.default_rng(bases)
    roots = rng.normal(size=(40, bases, bases + 2))
    grams, crosses = roots @ roots.transpose(0, 2, 1), rng.normal(size=(40, bases)) * 3
    together = project_on_simplex(torch.from_numpy(grams), torch.from_numpy(crosses)).numpy()
    for gram, cross, found in zip(grams, crosses, together, strict=True):
        np.testing.assert_allclose(found, best_of_all_faces(gram, cross), atol=1e-7)


def test_one_gram_matrix_serves_all_draws_and_none_may_be_led():
    root = torch.randn(3, 5)
    gram, crosses = root @ root.T, torch.randn(2, 7, 3)
    together = project_on_simplex(gram, crosses)
    assert together.shape == (2, 7, 3)
    assert together.dtype == torch.float32
    torch.testing.assert_close(together[1, 4], project_on_simplex(gram, crosses[1, 4]))


def test_with_fifty_bases_no_direction_leads_further_down():
    vectors = torch.randn(50, 4, dtype=torch.float64)
    gram = Gaussian(2.0)(vectors, vectors)
    crosses = torch.rand(30, 50, dtype=torch.float64)
    w = project_on_simplex(gram, crosses)
    slope = w @ gram - crosses
    level = (w * slope).sum(-1, keepdim=True)
    assert float((level - slope).max()) < 1e-8  # no basis would lower the distance
    assert float(((slope - level) * w).abs().max()) < 1e-8
    torch.testing.assert_close(w.sum(-1), torch.ones(30, dtype=torch.float64))
    assert float(w.min()) >= 0


def test_bases_that_are_the_same_twice_leave_no_doubt_about_their_sum():
    gram = torch.tensor([[1.0, 1.0, 0.2], [1.0, 1.0, 0.2], [0.2, 0.2, 1.0]])
    found = project_on_simplex(gram, gram @ torch.tensor([0.7, 0.0, 0.3]))
    assert float(found[:2].sum()) == pytest.approx(0.7, abs=1e-6)


def test_the_gram_matrix_leaves_out_the_pairs_of_a_vector_with_itself():
    values = torch.rand(6, 6, dtype=torch.float64)
    values = values + values.T
    weights = torch.tensor([[[2, 1, 0], [1, 1, 1]]], dtype=torch.float64) / 3
    found = _Pairs(values, 2, 3).gram(weights)[0]
    w = weights[0].flatten()
    for j, k in itertools.product(range(2), repeat=2):
        pairs = [(n, m) for n in range(3 * j, 3 * j + 3) for m in range(3 * k, 3 * k + 3) if n != m]
        total = sum(float(w[n] * w[m] * values[n, m]) for n, m in pairs)
        assert float(found[j, k]) == pytest.approx(total / sum(float(w[n] * w[m]) for n, m in pairs))


def test_a_basis_of_which_one_vector_was_drawn_again_and_again_keeps_its_length():
    values = torch.tensor([[1.0, 0.4], [0.4, 1.0]], dtype=torch.float64)
    once = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
    assert float(_Pairs(values, 1, 2).gram(once)) == pytest.approx(0.4)


def elements(count=3, dimension=10, separation=6.0, seed=0):
    return synthetic(elements=count, domains=2 * count, dimension=dimension, rows=150, separation=separation, seed=seed)


def rows_of(truth, weights, rows, seed):
    return torch.from_numpy(truth.sample(weights, rows, seed=seed).inputs)


def bases_of(truth, size, seed):
    return torch.stack([rows_of(truth, place, size, seed + place) for place in range(len(truth.centres))])


def sources_of(truth):
    return torch.from_numpy(truth.dataset.inputs.values)


def test_a_site_of_the_very_vectors_of_a_basis_is_that_basis():
    bases = bases_of(elements(), 20, seed=3)
    for place, own in enumerate(bases):
        np.testing.assert_allclose(
            site_mixture(Gaussian(6.0), bases, own, draws=20).weights, np.eye(3)[place], atol=1e-6
        )


def test_a_site_of_other_rows_of_one_element_is_nearly_that_basis():
    truth = elements()
    bases = bases_of(truth, 20, seed=3)
    for place in range(3):
        found = site_mixture(Gaussian(6.0), bases, rows_of(truth, place, 300, seed=50), draws=50)
        assert found.weights[place] > 0.93
        assert found.high[place] == 1
        assert found.outside < 0.05


def test_with_few_vectors_weights_are_not_drawn_together():
    # With the pairs of a vector with itself, the estimates of 0.75 would be 0.66 on average.
    truth = elements(2, separation=4.0)
    kernel = Gaussian(median_sigma(sources_of(truth)))
    found = [
        site_mixture(kernel, bases_of(truth, 4, seed=9 * seed), rows_of(truth, [0.75, 0.25], 400, seed=seed), draws=20)
        for seed in range(60)
    ]
    assert np.mean([one.weights[0] for one in found]) == pytest.approx(0.75, abs=0.04)


def test_the_same_seed_gives_the_same_intervals_which_hold_the_estimate_and_are_shares():
    truth = elements(4, separation=4.0)
    given = Gaussian(6.0), bases_of(truth, 10, seed=1), rows_of(truth, [0.4, 0.6, 0.0, 0.0], 60, seed=2)
    first, again, other = (site_mixture(*given, draws=100, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.low, again.low)
    assert not np.array_equal(first.high, other.high)
    np.testing.assert_array_equal(first.weights, other.weights)
    assert (first.low >= 0).all()
    assert (first.low <= first.weights).all()
    assert (first.weights <= first.high).all()
    assert (first.high <= 1).all()
    assert first.weights.sum() == pytest.approx(1)
    assert (first.level, first.draws, first.rows) == (0.9, 100, 60)


def test_more_rows_and_a_lower_level_make_narrower_intervals():
    truth = elements()
    bases = bases_of(truth, 50, seed=1)
    few, many, sure = (
        site_mixture(Gaussian(6.0), bases, rows_of(truth, [0.4, 0.3, 0.3], rows, seed=2), draws=200, level=level)
        for rows, level in ((60, 0.9), (1_000, 0.9), (1_000, 0.5))
    )
    assert (many.high - many.low).max() < (few.high - few.low).min()
    assert (sure.high - sure.low).max() < (many.high - many.low).min()


def test_what_lies_far_from_all_bases_is_outside_and_a_half_of_it_partly():
    truth = elements()
    bases, kernel = bases_of(truth, 30, seed=1), Gaussian(5.0)
    inside = rows_of(truth, [0.2, 0.5, 0.3], 400, seed=2)
    beyond = rows_of(truth, 0, 400, seed=3) + 15
    near, half, far = (
        site_mixture(kernel, bases, rows, draws=20).outside for rows in (inside, torch.cat([inside, beyond]), beyond)
    )
    assert near < 0.05
    assert 0.2 < half < 0.9
    assert far > 0.95


def test_of_a_large_site_some_rows_are_looked_at(monkeypatch):
    monkeypatch.setattr(mixture, "MOST_ROWS", 100)
    truth = elements()
    found = site_mixture(Gaussian(6.0), bases_of(truth, 10, seed=1), rows_of(truth, 0, 300, seed=2), draws=20)
    assert found.rows == 100
    assert found.weights[0] > 0.9


def test_blocks_of_draws_change_nothing(monkeypatch):
    truth = elements()
    given = Gaussian(6.0), bases_of(truth, 10, seed=1), rows_of(truth, 0, 50, seed=2)
    whole = site_mixture(*given, draws=30)
    monkeypatch.setattr(mixture, "_AT_ONCE", 1)
    parts = site_mixture(*given, draws=30)
    assert parts.low.shape == whole.low.shape  # other draws, but as many
    np.testing.assert_allclose(parts.low, whole.low, atol=0.1)


def test_a_basis_of_one_vector_and_a_single_basis_are_bases_too():
    truth = elements()
    one_each = site_mixture(Gaussian(6.0), bases_of(truth, 1, seed=1), rows_of(truth, 1, 200, seed=2), draws=20)
    assert one_each.weights.argmax() == 1
    alone = site_mixture(Gaussian(6.0), bases_of(truth, 10, seed=1)[:1], rows_of(truth, 1, 200, seed=2), draws=20)
    np.testing.assert_array_equal([alone.weights[0], alone.low[0], alone.high[0]], 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"view": torch.zeros(5, 3)}, "view: rows have 3 columns, those that they are compared with 2"),
        ({"view": torch.full((5, 2), torch.nan)}, "view: row 0 is not finite"),
        ({"view": torch.zeros(0, 2)}, "view: 0 rows are too few"),
        ({"level": 1.0}, "level must lie between 0 and 1, got 1.0"),
        ({"draws": 5}, "draws must be 20 or more"),
        ({"kernel": Gaussian(1e-3)}, "take a larger sigma"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_what_has_no_mixture_is_refused_with_the_cure(change, words):
    given = {"kernel": Gaussian(1.0), "bases": torch.randn(2, 3, 2), "view": torch.randn(5, 2), **change}
    with pytest.raises(DataError, match=re.escape(words)):
        site_mixture(given.pop("kernel"), given.pop("bases"), given.pop("view"), **given)


def covered(cases, *, found: bool, draws: int):
    """The share of true coefficients inside their intervals, and the mean width of these."""
    inside, widths = [], []
    for seed, (count, dimension, separation, size, rows) in enumerate(cases):
        truth = elements(count, dimension, separation, seed)
        weights = np.random.default_rng(seed).dirichlet(np.full(count, (0.5, 1, 5)[seed % 3]))
        site = rows_of(truth, weights, rows, seed=seed + 1)
        sources = sources_of(truth)
        if found:
            units = GatedDomainUnits(dimension, 2, num_bases=count, basis_size=size).fit_bases(sources, seed=seed)
            kernel, bases = units.kernel, units.active_bases
            apart = np.linalg.norm(bases.detach().mean(1).numpy()[:, None] - truth.centres[None], axis=-1)
            weights = weights[linear_sum_assignment(apart)[1]]
        else:
            kernel, bases = Gaussian(median_sigma(sources)), bases_of(truth, size, seed=seed + 100)
        held = site_mixture(kernel, bases, site, draws=draws)
        inside += ((held.low <= weights) & (weights <= held.high)).tolist()
        widths += (held.high - held.low).tolist()
    return np.mean(inside), np.mean(widths)


def many_cases(count, seed=0):
    rng = np.random.default_rng(seed)
    choices = ((2, 3, 4, 5), (2, 10, 50), (4.0, 6.0, 8.0), (10, 50), (50, 200, 1_000))
    return [tuple(rng.choice(choice).item() for choice in choices) for _ in range(count)]


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")
@pytest.mark.parametrize("found", [False, True], ids=["bases_drawn_from_elements", "bases_the_layer_found"])
def test_the_truth_lies_in_the_interval(found):
    share, width = covered(many_cases(18), found=found, draws=60)
    assert share >= 0.85
    assert width < 0.2


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")
@pytest.mark.parametrize("size", [10, 50])
@pytest.mark.parametrize("found", [False, True], ids=["bases_drawn_from_elements", "bases_the_layer_found"])
def test_the_truth_lies_in_the_interval_over_hundreds_of_mixtures(found, size):
    cases = [(*case[:3], size, case[4]) for case in many_cases(200, seed=1)]
    share, width = covered(cases, found=found, draws=300)
    assert share >= 0.85
    assert width < 0.2
