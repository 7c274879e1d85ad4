"""What is drawn equals what was computed."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection

from gated_domains.choose import NumBasesCurve, SigmaSuggestion, plot_num_bases, plot_sigma
from gated_domains.choose.plots import plot_choices


@pytest.fixture(autouse=True)
def _headless() -> Iterator[None]:
    with matplotlib.rc_context():
        plt.switch_backend("Agg")
        yield
    plt.close("all")


def curve(runs: int = 3, score: str = "davies_bouldin") -> NumBasesCurve:
    scores = np.array([[1.0, 0.4, 0.7, 0.9], [1.2, 0.5, 0.7, 0.8], [1.1, 0.6, 0.8, 1.0]])[:runs]
    return NumBasesCurve(candidates=np.array([2, 3, 4, 6]), scores=scores, score=score, on="features")


def suggestion(runs: int = 3) -> SigmaSuggestion:
    distances = np.random.default_rng(0).gamma(9.0, size=500)
    return SigmaSuggestion(values=np.array([4.0, 5.0, 6.5])[:runs], distances=distances)


def collections_of(ax: Axes, kind: type) -> list:
    return [drawn for drawn in ax.collections if isinstance(drawn, kind)]


def texts_of(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_the_line_is_the_mean_of_the_curve() -> None:
    (line,) = plot_num_bases(curve()).lines
    np.testing.assert_array_equal(line.get_xdata(), curve().candidates)
    np.testing.assert_array_equal(line.get_ydata(), curve().mean)


def test_the_band_is_one_standard_deviation_to_each_side() -> None:
    (band,) = collections_of(plot_num_bases(curve()), PolyCollection)
    corners = band.get_paths()[0].vertices
    for m, mean, std in zip(curve().candidates, curve().mean, curve().std, strict=True):
        heights = corners[corners[:, 0] == m, 1]
        assert heights.min() == pytest.approx(mean - std)
        assert heights.max() == pytest.approx(mean + std)


def test_every_run_is_a_dot() -> None:
    dots, _ = collections_of(plot_num_bases(curve()), PathCollection)
    drawn = {(float(x), float(y)) for x, y in dots.get_offsets()}
    assert drawn == {(m, y) for run in curve().scores.tolist() for m, y in zip([2, 3, 4, 6], run, strict=True)}


@pytest.mark.parametrize(
    ("score", "place", "text"), [("davies_bouldin", 1, "M = 3: 0.5"), ("silhouette", 0, "M = 2: 1.1")]
)
def test_the_best_is_marked_with_its_value(score: str, place: int, text: str) -> None:
    drawn = curve(score=score)
    ax = plot_num_bases(drawn)
    *_, marker = collections_of(ax, PathCollection)
    np.testing.assert_allclose(marker.get_offsets(), [[drawn.candidates[place], drawn.mean[place]]])
    assert texts_of(ax) == [text]


def test_one_run_is_drawn_without_a_band() -> None:
    ax = plot_num_bases(curve(runs=1))
    assert collections_of(ax, PolyCollection) == []
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), curve(runs=1).scores[0])


@pytest.mark.parametrize(
    ("score", "label"),
    [
        ("davies_bouldin", "Davies-Bouldin score (lower is better)"),
        ("calinski_harabasz", "Calinski-Harabasz score (higher is better)"),
        ("silhouette", "Silhouette score (higher is better)"),
    ],
)
def test_axes_are_labelled_and_say_which_way_is_better(score: str, label: str) -> None:
    ax = plot_num_bases(curve(score=score))
    assert ax.get_xlabel() == "number of bases M"
    assert ax.get_ylabel() == label


def test_ticks_are_the_candidates_while_they_are_few() -> None:
    many = NumBasesCurve(candidates=np.arange(2, 102), scores=np.ones((1, 100)), score="silhouette", on="features")
    assert plot_num_bases(curve()).get_xticks().tolist() == [2, 3, 4, 6]
    assert len(plot_num_bases(many).get_xticks()) < 20


def test_the_histogram_holds_every_distance_once() -> None:
    ax = plot_sigma(suggestion())
    shares, edges = np.histogram(suggestion().distances, bins=60)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], shares / 500)
    np.testing.assert_allclose([bar.get_x() for bar in ax.patches], edges[:-1])


def test_the_vertical_line_stands_at_sigma_and_says_so() -> None:
    ax = plot_sigma(suggestion())
    (line,) = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), [5.0, 5.0])
    assert line.get_label() == "sigma = 5 ± 1.3"
    assert texts_of(ax) == ["sigma = 5 ± 1.3"]


def test_one_run_shows_no_spread_of_sigma() -> None:
    assert texts_of(plot_sigma(suggestion(runs=1))) == ["sigma = 4"]


def test_the_second_axis_shows_the_gaussian_kernel() -> None:
    ax = plot_sigma(suggestion())
    _, second = ax.figure.axes
    (line,) = second.lines
    d = np.asarray(line.get_xdata())
    np.testing.assert_allclose(line.get_ydata(), [np.exp(-(x**2) / (2 * 5.0**2)) for x in d])
    assert d[0] == 0
    assert d[-1] >= suggestion().distances.max()


@pytest.mark.parametrize("drawn", [curve(), suggestion()], ids=["num_bases", "sigma"])
def test_axes_given_are_drawn_on_and_returned(drawn: NumBasesCurve | SigmaSuggestion) -> None:
    _, axes = plt.subplots(1, 2)
    assert drawn.plot(axes[1]) is axes[1]
    assert axes[1].has_data()
    assert not axes[0].has_data()
    assert len(plt.get_fignums()) == 1


@pytest.mark.parametrize("drawn", [curve(), suggestion()], ids=["num_bases", "sigma"])
def test_figures_are_saved_without_a_screen(drawn: NumBasesCurve | SigmaSuggestion, tmp_path) -> None:
    path = tmp_path / "figure.png"
    drawn.plot().figure.savefig(path)
    assert plt.imread(path).std() > 0.01


def test_both_choices_are_drawn_side_by_side_under_a_title_taken_letter_by_letter() -> None:
    figure = plot_choices(curve(), suggestion(), title="costs in $ and $")
    left, right, _kernel = figure.axes
    assert texts_of(left) == ["M = 3: 0.5"]
    assert texts_of(right) == ["sigma = 5 ± 1.3"]
    figure.canvas.draw()
    assert figure.get_suptitle() == r"costs in \$ and \$"
    assert plt.get_fignums() == []
