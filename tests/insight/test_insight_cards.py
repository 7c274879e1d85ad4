"""What a basis stands for: nearest rows and shares, against loops from the formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_gates import inputs_of, looked_into

from gated_domains.data.inputs import Features
from gated_domains.insight.cards import mass, nearest, share
from gated_domains.insight.views import compare, view
from small_trainings import vectors


@pytest.fixture
def weighed():
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(3), size=50).astype(np.float32), rng.integers(4, size=50)


def test_a_share_is_the_part_of_a_group_in_the_weight_of_a_basis(weighed):
    beta, groups = weighed
    found = share(beta, groups, 4)
    for basis in range(3):
        total = sum(float(beta[row, basis]) for row in range(50))
        for group in range(4):
            own = sum(float(beta[row, basis]) for row in range(50) if groups[row] == group)
            assert found[basis, group] == pytest.approx(own / total, abs=1e-6)


def test_rows_of_no_group_count_for_nobody_and_negative_weights_not_at_all():
    beta = np.array([[1.0, -2.0], [3.0, 0.0], [5.0, 0.0]])
    found = share(beta, np.array([0, 1, -1]), 2)
    np.testing.assert_allclose(found, [[0.25, 0.75], [0.0, 0.0]])
    np.testing.assert_allclose(mass(beta), [3.0, 0.0])


def test_mass_is_the_mean_weight(weighed):
    beta, _ = weighed
    np.testing.assert_allclose(mass(beta), [sum(beta[:, basis].tolist()) / 50 for basis in range(3)], rtol=1e-6)


def test_the_nearest_come_first_and_no_sample_twice():
    values = np.arange(10, dtype=np.float32)[:, None]
    values[3] = values[7]  # a copy
    rows = np.arange(10)
    distances = np.abs(values - [[7.0, 0.0]])
    found = nearest(distances, rows, Features(values), count=4)
    assert found.tolist() == [[3, 6, 8, 5], [0, 1, 2, 4]]


def test_where_few_samples_differ_all_bases_have_as_many():
    values = np.zeros((200, 1), np.float32)
    values[150:] = 1
    assert nearest(np.abs(values - 0.2), np.arange(200), Features(values)).tolist() == [[0, 150]]


@pytest.mark.parametrize("settings", [{}, {"gate": "mmd"}, {"name": "gdu-paper"}, {"gating": "features"}])
def test_distances_are_those_of_a_sample_to_the_mean_of_a_basis(settings):
    _, method, split, samples = looked_into(vectors(60), **settings)
    rows = split.train[:7]
    found = compare(method, samples, rows)
    seen, kernel = view(method, samples, rows), method.units.kernel

    def k(x, z) -> float:
        return float(kernel(x[None], z[None]))

    for i, x in enumerate(seen):
        for j, basis in enumerate(method.units.bases.detach()):
            norm = np.mean([k(v, w) for v in basis for w in basis])
            wanted = k(x, x) - 2 * np.mean([k(x, v) for v in basis]) + norm
            assert float(found.distances[i, j]) == pytest.approx(wanted, abs=1e-5)
    torch.testing.assert_close(found.beta, method.evaluate(inputs_of(samples, rows)).beta.detach())


def test_nearest_rows_are_training_rows_in_the_order_of_their_distance():
    insight, method, split, samples = looked_into(vectors(240))
    distances = compare(method, samples, split.train).distances.numpy()
    for basis, rows in enumerate(insight.nearest):
        wanted = split.train[np.argsort(distances[:, basis])[: len(rows)]]
        assert rows.tolist() == wanted.tolist()
