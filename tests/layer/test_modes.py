"""Modes: rows with one are left whole whatever their shape, rows with two are parted where they fall apart."""

from __future__ import annotations

import math
from statistics import mean

import pytest
import torch

from gated_domains.layer.modes import chance_apart, chance_at_most, find_gap


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def flat(*shape: int, seed: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def chance(x: torch.Tensor, seed: int) -> float:
    gap = find_gap(x, least=10, seed=seed)
    return 1.0 if gap is None else gap.p


@pytest.mark.parametrize(("heads", "tosses"), [(0, 1), (3, 10), (10, 10), (40, 100)])
def test_the_chance_of_heads_is_that_of_the_sum(heads, tosses):
    expected = sum(math.comb(tosses, k) for k in range(heads + 1)) / 2**tosses
    assert chance_at_most(heads, tosses) == pytest.approx(expected)


def test_no_tosses_prove_nothing():
    assert chance_at_most(0, 0) == 1.0


ONE_MODE = {
    "a bell": lambda seed: draw(300, 3, seed=seed),
    "flat": lambda seed: flat(300, 2, seed=seed),
    "skewed": lambda seed: -flat(300, 2, seed=seed).log(),
    "heavy tails": lambda seed: draw(300, 2, seed=seed) / draw(300, 1, seed=seed + 999).abs(),
    "a long bell": lambda seed: draw(300, 6, seed=seed) * torch.tensor([20.0, 1, 1, 1, 0.1, 0.1]).double(),
    "more columns than rows": lambda seed: draw(60, 200, seed=seed),
    "few rows": lambda seed: draw(24, 2, seed=seed),
}


@pytest.mark.parametrize("shape", ONE_MODE)
def test_rows_of_one_mode_are_seldom_taken_for_two(shape):
    # At the level of 5 per cent, 3 or more of 8 sets would be alarming: it happens to 6 in 1,000.
    assert sum(chance(ONE_MODE[shape](seed), seed) < 0.05 for seed in range(8)) < 3


TOO_OFTEN = pytest.mark.xfail(reason="turns share rows: 5 % are 10 % for flat rows, and 1 % are 2.5 %", strict=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [pytest.param(name, marks=[TOO_OFTEN] if name == "flat" else []) for name in ONE_MODE]
)
def test_the_level_is_kept(shape):
    assert mean(chance(ONE_MODE[shape](seed), seed) < 0.05 for seed in range(200)) <= 0.08


@pytest.mark.parametrize(("rows", "columns"), [(200, 1), (200, 10), (120, 200)])
def test_two_modes_are_parted_between_them(rows, columns):
    x = draw(rows, columns, seed=1)
    truth = torch.arange(rows) % 3 == 0
    x[truth, 0] += 9
    gap = find_gap(x, least=10, seed=0)
    assert gap.p < 1e-3
    parted = x @ gap.direction > gap.cut
    agree = float((parted == truth).double().mean())
    assert max(agree, 1 - agree) > 0.98


def test_modes_far_from_the_origin_are_parted_just_so():
    x = draw(200, 4, seed=1)
    x[::2, 0] += 9
    near, far = find_gap(x, least=10), find_gap(x + 1e5, least=10)
    assert torch.equal(x @ near.direction > near.cut, (x + 1e5) @ far.direction > far.cut)


def test_a_part_that_is_too_small_is_not_parted_off():
    x = draw(200, 2, seed=1)
    x[:12, 0] += 30
    assert find_gap(x, least=10).p < 0.01
    assert find_gap(x, least=13) is None


def test_a_shallow_dip_in_many_rows_is_no_valley():
    x = draw(8000, 1, seed=1)
    x[::2] += 2.6  # 2.6 deviations apart: the middle has some 0.85 of the rows of the modes
    assert find_gap(x, least=10) is None


def test_rows_that_are_all_alike_have_no_gap():
    assert find_gap(torch.ones(50, 3, dtype=torch.float64), least=10) is None


def test_two_sets_are_apart_only_if_a_valley_lies_between_them():
    x = draw(400, 3, seed=1)
    halves = x[x[:, 0] > 0], x[x[:, 0] <= 0]
    assert chance_apart(*halves) > 0.2
    assert chance_apart(x[:200], x[200:] + torch.tensor([8.0, 0, 0]).double()) < 1e-6
