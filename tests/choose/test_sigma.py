"""The median heuristic against a double loop written from the formula."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest

from gated_domains.choose import SigmaSuggestion, suggest_sigma


def gaussian(rows: int, width: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, width))


def slow_sigma(x: np.ndarray) -> float:
    squared = []
    for i in range(len(x)):
        for j in range(len(x)):
            if i != j:
                squared.append(sum((a - b) ** 2 for a, b in zip(x[i], x[j], strict=True)))
    return math.sqrt(statistics.median(squared))


@pytest.mark.parametrize("rows", [2, 3, 12, 13])
def test_sigma_squared_is_the_median_squared_distance_of_a_double_loop(rows: int) -> None:
    x = gaussian(rows)
    assert suggest_sigma(x).sigma == pytest.approx(slow_sigma(x), rel=1e-12)


def test_an_even_number_of_pairs_averages_squares_and_not_distances() -> None:
    # Distances 1, 1, 1, 2, 2, 3: the middle two are 1 and 2, their squares 1 and 4.
    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert suggest_sigma(x).sigma == pytest.approx(math.sqrt(2.5))


def test_all_runs_agree_with_the_full_computation_when_all_rows_fit() -> None:
    x = gaussian(30)
    suggestion = suggest_sigma(x, max_rows=30, runs=4)
    np.testing.assert_allclose(suggestion.values, np.full(4, slow_sigma(x)), rtol=1e-12)
    assert suggestion.spread == 0


def test_each_run_takes_its_own_subsample_and_their_median_and_spread_are_reported() -> None:
    suggestion = suggest_sigma(gaussian(300), max_rows=40, runs=6)
    assert len(set(suggestion.values)) == 6
    assert suggestion.sigma == statistics.median(suggestion.values)
    assert suggestion.spread == pytest.approx(statistics.stdev(suggestion.values))


def test_a_subsample_is_near_the_full_computation() -> None:
    x = gaussian(2_000, width=16)
    assert suggest_sigma(x, max_rows=300).sigma == pytest.approx(suggest_sigma(x).sigma, rel=0.03)


def test_a_subsample_takes_no_row_twice() -> None:
    # On a line of whole numbers, a row drawn twice would be a distance of 0.
    suggestion = suggest_sigma(np.arange(50.0).reshape(-1, 1), max_rows=49, runs=3)
    assert suggestion.distances.min() >= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigma_does_not_move_when_all_features_move_by_ten_thousand(dtype: type) -> None:
    # On a grid that float32 holds exactly after the move, so that any difference is the computation's own.
    x = np.round(gaussian(60) * 64) / 64
    moved = (x + 1e4).astype(dtype)
    assert suggest_sigma(moved).sigma == pytest.approx(suggest_sigma(x).sigma, rel=1e-9)


def test_sigma_scales_with_the_features() -> None:
    x = gaussian(40)
    assert suggest_sigma(7 * x).sigma == pytest.approx(7 * suggest_sigma(x).sigma)


def test_the_same_seed_gives_the_same_suggestion_and_another_seed_another() -> None:
    x = gaussian(200)
    first, again, other = (suggest_sigma(x, max_rows=50, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.values, again.values)
    np.testing.assert_array_equal(first.distances, again.distances)
    assert not set(first.values) & set(other.values)


def test_kept_distances_are_those_between_rows() -> None:
    x = gaussian(8)
    between = [math.dist(x[i], x[j]) for i in range(8) for j in range(i)]
    np.testing.assert_allclose(np.sort(suggest_sigma(x).distances), np.sort(between))


def test_at_most_twenty_thousand_distances_are_kept_and_they_are_a_fair_sample() -> None:
    suggestion = suggest_sigma(gaussian(400))
    assert len(suggestion.distances) == 20_000
    assert np.median(suggestion.distances) == pytest.approx(suggestion.sigma, rel=0.02)


def test_one_run_has_no_spread() -> None:
    suggestion = suggest_sigma(gaussian(100), max_rows=20, runs=1)
    assert suggestion.values.shape == (1,)
    assert suggestion.spread == 0


def test_text_tells_sigma_its_spread_and_the_runs() -> None:
    suggestion = SigmaSuggestion(values=np.array([2.0, 3.0, 4.0]), distances=np.ones(1))
    assert str(suggestion) == "sigma 3 (std 1 over 3 runs)"


def test_lists_integers_and_data_frames_are_read_as_features() -> None:
    x = np.round(gaussian(20) * 10)
    expected = suggest_sigma(x).sigma
    assert suggest_sigma(x.tolist()).sigma == expected
    assert suggest_sigma(x.astype(int)).sigma == expected
    assert suggest_sigma(pd.DataFrame(x)).sigma == expected
    assert suggest_sigma(x.astype(object)).sigma == expected


def test_features_are_left_as_they_were() -> None:
    x = gaussian(30)
    before = x.copy()
    suggest_sigma(x)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("shape", [(5,), (), (2, 3, 4), (5, 0)])
def test_anything_but_a_matrix_is_refused_with_its_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shape \(rows, features\), got shape") as refused:
        suggest_sigma(np.zeros(shape))
    assert str(shape) in str(refused.value)
    assert "reshape" in str(refused.value)


def test_rows_with_nan_or_infinity_are_counted() -> None:
    x = gaussian(10)
    x[2, :2] = np.nan
    x[7, 1] = -np.inf
    with pytest.raises(ValueError, match="NaN or infinity in 2 of 10 rows; clean or drop"):
        suggest_sigma(x)


@pytest.mark.parametrize(
    "features", [np.array([["a", "b"], ["c", "d"]]), np.array([["a", 1.0], ["c", 2.0]], dtype=object), np.eye(3) * 1j]
)
def test_features_that_are_not_real_numbers_are_refused(features: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"cannot be read as a matrix of numbers .*numeric columns"):
        suggest_sigma(features)


def test_rows_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="numeric columns of equal length"):
        suggest_sigma([[1.0, 2.0], [3.0]])


def test_a_single_row_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 rows of features are needed, got 1"):
        suggest_sigma([[1.0, 2.0]])


def test_no_runs_no_rows_and_a_negative_seed_are_refused() -> None:
    with pytest.raises(ValueError, match="runs must be at least 1, got 0"):
        suggest_sigma(gaussian(5), runs=0)
    with pytest.raises(ValueError, match="max_rows must be at least 2, got 1"):
        suggest_sigma(gaussian(5), max_rows=1)
    with pytest.raises(ValueError, match="seed must not be negative, got -1"):
        suggest_sigma(gaussian(5), seed=-1)


def test_mostly_identical_rows_are_refused_with_the_cure() -> None:
    x = np.full((20, 3), 0.1)
    x[0] = 5
    with pytest.raises(ValueError, match=r"median of 190 distances between rows is 0.*drop duplicate rows"):
        suggest_sigma(x)
