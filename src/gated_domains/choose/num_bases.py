"""The number of bases M, from how well k-means clusters of features hold together."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.manifold import TSNE
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score, silhouette_score

from gated_domains.choose.plots import plot_num_bases
from gated_domains.choose.rows import as_rows, check_at_least, run_seeds, subsample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# k-means starts in each fit, as many as in the layer's own choice of M; the best start counts.
_STARTS = 3


class Score(NamedTuple):
    """A measure of a clustering, from rows and labels, and which way is better."""

    function: Callable[[NDArray[np.float64], NDArray[np.int32]], float]
    lower_is_better: bool


SCORES: dict[str, Score] = {
    "davies_bouldin": Score(davies_bouldin_score, lower_is_better=True),
    "calinski_harabasz": Score(calinski_harabasz_score, lower_is_better=False),
    "silhouette": Score(silhouette_score, lower_is_better=False),
}


@dataclass(frozen=True, eq=False)
class NumBasesCurve:
    """The score of every candidate M in every run: a curve with its spread, to be looked at before M is taken."""

    candidates: NDArray[np.int64]
    """The values of M tried, ascending."""
    scores: NDArray[np.float64]
    """Shape (runs, candidates)."""
    score: str
    """A name in ``SCORES``."""
    on: str
    """What was clustered: a name in ``VIEWS``."""
    smallest: NDArray[np.float64] | None = None
    """The share of rows in the smallest cluster of each fit, shape (runs, candidates), where it is known.

    Scores praise a cluster of a few odd rows, for it is tight and far away; it is no domain for that.
    """

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean score of each candidate over runs."""
        return np.asarray(self.scores.mean(axis=0))

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation of each candidate's score over runs; 0 for one run."""
        if len(self.scores) == 1:
            return np.zeros(len(self.candidates))
        return np.asarray(self.scores.std(axis=0, ddof=1))

    @property
    def best(self) -> int:
        """The candidate with the best mean score; of equals the smallest."""
        place = self.mean.argmin() if SCORES[self.score].lower_is_better else self.mean.argmax()
        return int(self.candidates[place])

    @property
    def rivals(self) -> tuple[int, ...]:
        """The other candidates that this curve cannot tell from the best: their spread reaches that of the best.

        Of one run the spread is not known, and only equals are rivals.
        """
        at_best = self.candidates == self.best
        reach = self.std + self.std[at_best]
        near = np.abs(self.mean - self.mean[at_best]) <= reach
        return tuple(int(m) for m in self.candidates[near & ~at_best])

    @property
    def label(self) -> str:
        """The score in words, with the way that is better."""
        better = "lower" if SCORES[self.score].lower_is_better else "higher"
        return f"{self.score.replace('_', '-').title()} score ({better} is better)"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Mean, spread and every run over the number of bases."""
        return plot_num_bases(self, ax)

    def table(self) -> str:
        """A line of text for each candidate, the best marked."""
        runs = len(self.scores)
        lines = [f"{self.label}, k-means on {self.on}, {runs} {'run' if runs == 1 else 'runs'}"]
        lines.append(f"{'M':>4} {'mean':>10} {'std':>9}")
        # Four digits of the largest; all with as many decimals, so that the eye can compare them.
        largest = float(np.abs(self.mean).max())
        digits = max(0, 3 - math.floor(math.log10(largest))) if largest > 0 else 3
        for m, mean, std in zip(self.candidates, self.mean, self.std, strict=True):
            lines.append(f"{m:>4} {mean:>10.{digits}f} {std:>9.{digits}f}{'  <- best' if m == self.best else ''}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()


def suggest_num_bases(
    features: ArrayLike,
    candidates: Iterable[int] = range(2, 13),
    *,
    score: str = "davies_bouldin",
    on: str = "features",
    runs: int = 5,
    max_rows: int = 5_000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> NumBasesCurve:
    """The score of k-means with every candidate number of bases, in several runs.

    ``best = arg best over M of mean over runs of score(x_run, kmeans(x_run, M))``

    Each run has its own start and its own random subsample ``x_run`` of the features or, with ``on="tsne"``, the 2-D
    embedding of that subsample. ``progress(done, total)`` is called after every k-means fit.
    """
    _check_name("score", score, SCORES)
    _check_name("on", on, VIEWS)
    check_at_least("runs", runs, 1)
    check_at_least("max_rows", max_rows, 3)
    x = as_rows(features, at_least=3)
    tried = _check_candidates(candidates, min(len(x), max_rows))
    scores, smallest = np.empty((2, runs, len(tried)))
    for run, run_seed in enumerate(run_seeds(seed, runs)):
        sample = subsample(x, max_rows, run_seed)
        _check_distinct(sample, tried[-1])
        # scikit-learn's distances expand the square, which loses precision far from the origin.
        view = VIEWS[on](sample - sample.mean(axis=0), run_seed)
        for place, k in enumerate(tried):
            labels = KMeans(k, n_init=_STARTS, random_state=run_seed).fit_predict(view)
            scores[run, place] = SCORES[score].function(view, labels)
            smallest[run, place] = np.bincount(labels, minlength=k).min() / len(labels)
            if progress is not None:
                progress(run * len(tried) + place + 1, runs * len(tried))
    return NumBasesCurve(candidates=np.array(tried), scores=scores, score=score, on=on, smallest=smallest)


def _features(x: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The features as they are."""
    return x


def _tsne(x: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The 2-D t-SNE embedding of the rows."""
    # A perplexity is a number of neighbours: the usual 30, fewer where the rows are few, never below one.
    perplexity = min(30.0, max(1.0, (len(x) - 1) / 3))
    # Not the default start from principal components: with every row in use all runs would see one and the same
    # embedding, and the spread would hide how much t-SNE itself moves.
    embedding = TSNE(2, perplexity=perplexity, init="random", random_state=seed).fit_transform(x)
    return np.asarray(embedding, dtype=np.float64)


VIEWS: dict[str, Callable[[NDArray[np.float64], int], NDArray[np.float64]]] = {"features": _features, "tsne": _tsne}


def _check_name(argument: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise ValueError(f"unknown {argument} {name!r}; known: {', '.join(known)}")


def _check_candidates(candidates: Iterable[int], rows: int) -> list[int]:
    """The candidates, ascending and each once; refused unless all are whole numbers from 2 to rows - 1."""
    given = list(candidates)
    if not given:
        raise ValueError("candidates are empty; pass numbers of bases to try, such as range(2, 13)")
    try:
        tried = sorted({operator.index(k) for k in given})
    except TypeError as error:
        raise ValueError(f"candidates must be whole numbers, got {given}") from error
    out = [k for k in tried if not 2 <= k < rows]
    if out:
        raise ValueError(
            f"candidates must lie between 2 and {rows - 1} for {rows} rows, got {out}; "
            "leave those out, or raise the number of rows or max_rows"
        )
    return tried


def _check_distinct(x: NDArray[np.float64], clusters: int) -> None:
    """Refuse rows with so many duplicates that k-means would return fewer clusters than asked for."""
    distinct = len(np.unique(x, axis=0))
    if distinct < clusters:
        raise ValueError(
            f"{clusters} clusters need at least {clusters} distinct rows, got {distinct} among {len(x)} rows; "
            f"try candidates up to {distinct} or use features that differ more"
        )
