"""The curve over the number of bases, against scikit-learn called directly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score, silhouette_score
from threadpoolctl import threadpool_limits

from gated_domains.choose import SCORES, NumBasesCurve, suggest_num_bases

DIRECT = {
    "davies_bouldin": davies_bouldin_score,
    "calinski_harabasz": calinski_harabasz_score,
    "silhouette": silhouette_score,
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    # On a busy machine, threads that wait for each other make fits this small many times slower.
    with threadpool_limits(1):
        yield


def blobs(count: int, rows: int = 90) -> np.ndarray:
    """Clusters on a circle, as far apart as is needed for k-means never to confuse them."""
    angle = 2 * np.pi * np.arange(count) / count
    centres = 20 * np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    return np.asarray(make_blobs(rows, centers=centres, cluster_std=1.0, random_state=0)[0])


def curve_of(scores: list[list[float]], score: str = "davies_bouldin") -> NumBasesCurve:
    table = np.array(scores)
    return NumBasesCurve(candidates=np.arange(2, 2 + table.shape[1]), scores=table, score=score, on="features")


@pytest.mark.parametrize("score", SCORES)
def test_three_well_separated_blobs_give_three_bases(score: str) -> None:
    assert suggest_num_bases(blobs(3), range(2, 7), score=score, runs=2).best == 3


def test_five_well_separated_blobs_give_five_bases() -> None:
    assert suggest_num_bases(blobs(5), range(2, 9), runs=2).best == 5


@pytest.mark.parametrize("score", SCORES)
def test_scores_are_those_of_scikit_learn_called_directly(score: str) -> None:
    # At the true number of blobs the clusters do not depend on the seed.
    x = blobs(4)
    labels = KMeans(4, n_init=10, random_state=99).fit_predict(x)
    curve = suggest_num_bases(x, [4], score=score, runs=2)
    np.testing.assert_allclose(curve.scores, np.full((2, 1), DIRECT[score](x, labels)), rtol=1e-9)


def test_every_known_score_is_compared_here() -> None:
    assert set(SCORES) == set(DIRECT)


@pytest.mark.parametrize("name", DIRECT)
def test_a_score_that_is_better_when_lower_is_lower_for_true_clusters_than_for_random_ones(name: str) -> None:
    x = blobs(3)
    true = KMeans(3, n_init=3, random_state=0).fit_predict(x)
    function, lower_is_better = SCORES[name]
    assert (function(x, true) < function(x, np.random.default_rng(0).permutation(true))) == lower_is_better


def test_several_runs_give_a_spread_on_real_data() -> None:
    curve = suggest_num_bases(load_digits().data, [5, 9], runs=4, max_rows=200)
    assert curve.scores.shape == (4, 2)
    assert (curve.std > 0).all()
    np.testing.assert_allclose(curve.mean, curve.scores.mean(0))
    np.testing.assert_allclose(curve.std, curve.scores.std(0, ddof=1))


def test_each_run_takes_its_own_subsample() -> None:
    # Clusters that no seed changes: runs can differ by their rows alone.
    x = blobs(3, rows=300)
    assert np.ptp(suggest_num_bases(x, [3], runs=3).scores) < 1e-12
    assert len(np.unique(suggest_num_bases(x, [3], runs=3, max_rows=60).scores)) == 3


def test_each_run_takes_its_own_seed() -> None:
    # Rows without clusters, all in use: runs can differ by the start of k-means alone.
    x = np.random.default_rng(0).normal(size=(80, 6))
    assert len(np.unique(suggest_num_bases(x, [7], runs=3).scores)) > 1


def test_one_run_has_no_spread() -> None:
    np.testing.assert_array_equal(suggest_num_bases(blobs(3), [2, 3], runs=1).std, [0, 0])


def test_the_same_seed_gives_the_same_curve_and_another_seed_another() -> None:
    x = load_digits().data
    first, again, other = (suggest_num_bases(x, [4, 6], runs=2, max_rows=150, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.scores, again.scores)
    assert not set(first.scores.ravel()) & set(other.scores.ravel())


def test_the_curve_does_not_move_when_all_features_move_by_ten_thousand() -> None:
    # On a grid that float32 holds exactly after the move, so that any difference is the computation's own.
    x = np.round(blobs(3) * 64) / 64
    here = suggest_num_bases(x, [3], runs=1)
    there = suggest_num_bases((x + 1e4).astype(np.float32), [3], runs=1)
    np.testing.assert_allclose(there.scores, here.scores, rtol=1e-9)


def test_blobs_are_found_on_their_t_sne_too() -> None:
    x = blobs(3)
    curve = suggest_num_bases(x, [2, 3, 4], on="tsne", runs=2)
    assert curve.on == "tsne"
    assert curve.best == 3
    assert abs(curve.scores - suggest_num_bases(x, [2, 3, 4], runs=2).scores).min() > 1e-6


def test_each_run_has_its_own_embedding_also_when_all_rows_fit() -> None:
    # On the features themselves these clusters, and so their score, are the same in every run.
    assert len(np.unique(suggest_num_bases(blobs(3), [3], on="tsne", runs=2).scores)) == 2


def test_the_same_seed_gives_the_same_embedding() -> None:
    first, again = (suggest_num_bases(blobs(3), [2, 3], on="tsne", runs=1, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.scores, again.scores)


@pytest.mark.parametrize("shape", [(4, 3), (12, 1)])
def test_t_sne_works_with_few_rows_and_with_one_feature(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    assert np.isfinite(suggest_num_bases(x, [2, 3], on="tsne", runs=1).scores).all()


def test_best_is_the_lowest_mean_or_the_highest_as_the_score_says() -> None:
    scores = [[1.0, 0.2, 3.0], [1.0, 2.2, 3.0]]
    assert curve_of(scores, "davies_bouldin").best == 2
    assert curve_of(scores, "silhouette").best == 4


def test_of_equal_candidates_the_smallest_is_best() -> None:
    assert curve_of([[0.7, 0.5, 0.5]]).best == 3


def test_candidates_are_tried_once_each_in_ascending_order() -> None:
    curve = suggest_num_bases(blobs(3), iter([5, 3, 5, np.int64(2)]), runs=1)
    np.testing.assert_array_equal(curve.candidates, [2, 3, 5])
    assert curve.candidates.dtype.kind == "i"
    assert curve.best == 3


def test_progress_is_told_after_every_fit() -> None:
    told: list[tuple[int, int]] = []
    suggest_num_bases(blobs(3), [2, 3, 4], runs=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 6) for done in range(1, 7)]


def test_the_table_holds_every_candidate_and_marks_the_best_alone() -> None:
    curve = curve_of([[1.0, 0.25, 0.5], [1.5, 0.25, 0.75]])
    assert str(curve) == curve.table()
    title, head, *lines = curve.table().splitlines()
    assert title == "Davies-Bouldin score (lower is better), k-means on features, 2 runs"
    assert head.split() == ["M", "mean", "std"]
    assert [line.split() for line in lines] == [
        ["2", "1.250", "0.354"],
        ["3", "0.250", "0.000", "<-", "best"],
        ["4", "0.625", "0.177"],
    ]


@pytest.mark.parametrize(
    ("scores", "written"),
    [([[1234.5, 987.25]], ["1234", "987"]), ([[0.0, 0.0]], ["0.000"] * 2), ([[0.03, 0.025]], ["0.03000", "0.02500"])],
)
def test_the_table_has_four_digits_of_the_largest_and_as_many_decimals_everywhere(
    scores: list[list[float]], written: list[str]
) -> None:
    _, _, *lines = curve_of(scores).table().splitlines()
    assert [line.split()[1] for line in lines] == written


def test_candidates_whose_spread_reaches_that_of_the_best_are_its_rivals() -> None:
    curve = curve_of([[1.0, 1.2, 3.0, 1.5], [1.2, 1.4, 3.2, 4.5]])
    assert curve.best == 2
    assert curve.rivals == (3, 5)


def test_a_clear_best_has_no_rivals() -> None:
    assert curve_of([[1.0, 2.0, 3.0], [1.1, 2.1, 3.1]]).rivals == ()


def test_in_one_run_only_equals_are_rivals() -> None:
    assert curve_of([[1.0, 1.0, 1.001]]).rivals == (3,)


def test_rivals_of_the_highest_score_where_higher_is_better() -> None:
    assert curve_of([[1.0, 5.0, 4.9], [1.2, 5.2, 5.1]], "silhouette").rivals == (4,)


def test_the_smallest_cluster_of_every_fit_is_told() -> None:
    crowd = np.random.default_rng(0).normal(size=(98, 3))
    curve = suggest_num_bases(np.vstack([crowd, [[50.0, 0, 0], [50.1, 0, 0]]]), [2, 3], runs=2)
    assert curve.smallest is not None
    np.testing.assert_allclose(curve.smallest[:, 0], 0.02)


def test_the_label_says_which_way_is_better() -> None:
    assert curve_of([[1.0]], "calinski_harabasz").label == "Calinski-Harabasz score (higher is better)"


def test_lists_and_data_frames_are_read_as_features() -> None:
    x = blobs(3)
    expected = suggest_num_bases(x, [3], runs=1).scores
    np.testing.assert_array_equal(suggest_num_bases(x.tolist(), [3], runs=1).scores, expected)
    np.testing.assert_array_equal(suggest_num_bases(pd.DataFrame(x), [3], runs=1).scores, expected)


def test_features_are_left_as_they_were() -> None:
    x = blobs(3)
    before = x.copy()
    suggest_num_bases(x, [3], runs=1)
    np.testing.assert_array_equal(x, before)


def test_a_vector_is_refused_with_its_shape() -> None:
    with pytest.raises(ValueError, match=r"got shape \(9,\); reshape"):
        suggest_num_bases(np.arange(9.0), [2])


def test_rows_with_nan_or_infinity_are_counted() -> None:
    x = blobs(3)
    x[[4, 8, 9], 0] = [np.nan, np.inf, np.nan]
    with pytest.raises(ValueError, match="NaN or infinity in 3 of 90 rows; clean or drop"):
        suggest_num_bases(x)


def test_two_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 rows of features are needed, got 2"):
        suggest_num_bases(np.eye(2), [2])


def test_an_unknown_score_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="score 'gap'; known: davies_bouldin, calinski_harabasz, silhouette"):
        suggest_num_bases(blobs(3), score="gap")


def test_an_unknown_view_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="on 'umap'; known: features, tsne"):
        suggest_num_bases(blobs(3), on="umap")


def test_no_runs_and_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="runs must be at least 1, got 0"):
        suggest_num_bases(blobs(3), runs=0)
    with pytest.raises(ValueError, match="max_rows must be at least 3, got 2"):
        suggest_num_bases(blobs(3), max_rows=2)


def test_no_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"candidates are empty; pass .* range\(2, 13\)"):
        suggest_num_bases(blobs(3), [])


def test_candidates_below_two_are_refused() -> None:
    with pytest.raises(ValueError, match=r"between 2 and 89 for 90 rows, got \[0, 1\]; leave those out"):
        suggest_num_bases(blobs(3), [1, 2, 0])


def test_candidates_not_below_the_number_of_rows_are_refused() -> None:
    x = blobs(3)
    with pytest.raises(ValueError, match=r"between 2 and 89 for 90 rows, got \[90\]"):
        suggest_num_bases(x, [89, 90])
    with pytest.raises(ValueError, match=r"between 2 and 9 for 10 rows, got \[10, 11, 12\]; .* or max_rows"):
        suggest_num_bases(x, max_rows=10)


def test_candidates_that_are_not_whole_numbers_are_refused() -> None:
    # Through an iterator, which the type checks of the test run leave alone.
    with pytest.raises(ValueError, match=r"whole numbers, got \[2, 3\.5\]"):
        suggest_num_bases(blobs(3), iter([2, 3.5]))


def test_more_bases_than_distinct_rows_are_refused() -> None:
    x = np.repeat(np.eye(3), 10, axis=0)
    assert suggest_num_bases(x, [2, 3], runs=1).best == 3
    with pytest.raises(ValueError, match="4 distinct rows, got 3 among 30 rows; try candidates up to 3"):
        suggest_num_bases(x, [2, 3, 4])


WITHOUT_TORCH = """
import sys


class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "jaxtyping"}:
            raise ImportError(f"{name} is blocked")


sys.meta_path.insert(0, NoTorch())
try:
    import torch
except ImportError:
    pass
else:
    raise AssertionError("the block does not work")

import gated_domains.choose
from gated_domains import suggest_num_bases, suggest_sigma

rows = [[float(i % 3), 0.01 * i] for i in range(12)]
print(suggest_num_bases(rows, [2, 3, 4], runs=1).best, suggest_sigma(rows).sigma > 0, "matplotlib" in sys.modules)
"""


def test_choosing_works_where_torch_is_not_installed_and_does_not_load_matplotlib() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.split() == ["3", "True", "False"]
