"""Distances between means in the space of a kernel, against loops over all pairs."""

from __future__ import annotations

import math

import pytest
import torch

from gated_domains.insight import discrepancy
from gated_domains.insight.discrepancy import mmd_matrix
from gated_domains.layer.kernels import Gaussian


def product(kernel, a, b) -> float:
    """``<mu_a, mu_b>``, pair by pair."""
    return sum(float(kernel(x[None], z[None])) for x in a for z in b) / (len(a) * len(b))


def distance(kernel, a, b) -> float:
    return math.sqrt(max(0.0, product(kernel, a, a) - 2 * product(kernel, a, b) + product(kernel, b, b)))


def groups() -> list[torch.Tensor]:
    return [torch.randn(size, 3) + shift for size, shift in ((4, 0.0), (7, 0.1), (2, 3.0), (1, -1.0))]


def test_every_entry_is_the_distance_of_two_means(make_kernel, monkeypatch):
    monkeypatch.setattr(discrepancy, "_ROWS_AT_ONCE", 3)  # so that groups are cut into parts
    kernel, made = make_kernel(), groups()
    found = mmd_matrix(kernel, made)
    for i, a in enumerate(made):
        for j, b in enumerate(made):
            assert float(found[i, j]) == pytest.approx(distance(kernel, a.double(), b.double()), abs=1e-5)


def test_a_group_is_nowhere_from_itself_and_distances_are_the_same_both_ways():
    found = mmd_matrix(Gaussian(2.0), groups())
    assert (found.diagonal() == 0).all()
    assert torch.equal(found, found.T)


def test_groups_of_the_same_rows_are_at_no_distance_however_far_from_the_origin():
    rows = torch.randn(20, 5) + 1_000
    assert float(mmd_matrix(Gaussian(2.0), [rows, rows.flip(0)])[0, 1]) < 1e-6
