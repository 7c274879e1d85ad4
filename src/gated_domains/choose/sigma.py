"""The kernel width sigma, from the distances between rows of features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from gated_domains.choose.plots import plot_sigma
from gated_domains.choose.rows import as_rows, check_at_least, run_seeds, subsample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A histogram needs no more; all pairs of 2,000 rows would be 16 MB in every suggestion kept.
_KEPT_DISTANCES = 20_000


@dataclass(frozen=True, eq=False)
class SigmaSuggestion:
    """The median heuristic's sigma, and how much it moves from one subsample to the next."""

    values: NDArray[np.float64]
    """One sigma for each run; all equal when every row was used."""
    distances: NDArray[np.float64]
    """Some of the distances ``||x_i - x_j||, i != j``, for the plot."""

    @property
    def sigma(self) -> float:
        """The median over runs."""
        return float(np.median(self.values))

    @property
    def spread(self) -> float:
        """The standard deviation over runs; 0 for one run."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def plot(self, ax: Axes | None = None) -> Axes:
        """The distances, sigma among them, and the kernel that sigma gives."""
        return plot_sigma(self, ax)

    def __str__(self) -> str:
        runs = len(self.values)
        return f"sigma {self.sigma:.4g} (std {self.spread:.2g} over {runs} {'run' if runs == 1 else 'runs'})"


def suggest_sigma(features: ArrayLike, *, max_rows: int = 2_000, runs: int = 5, seed: int = 0) -> SigmaSuggestion:
    """Sigma by the median heuristic, on several random subsamples.

    ``sigma^2 = median of ||x_i - x_j||^2, i != j``
    """
    x = as_rows(features, at_least=2)
    check_at_least("runs", runs, 1)
    check_at_least("max_rows", max_rows, 2)
    seeds = run_seeds(seed, runs)
    everything = len(x) <= max_rows
    values = []
    # With every row in use, all runs would see the same pairs.
    for run_seed in seeds[:1] if everything else seeds:
        # Not an expanded square: differences first, so that features far from the origin lose nothing.
        squared = pdist(subsample(x, max_rows, run_seed), "sqeuclidean")
        values.append(_root_of_median(squared))
    kept = np.random.default_rng(seeds[0]).permutation(len(squared))[:_KEPT_DISTANCES]
    return SigmaSuggestion(values=np.resize(values, runs), distances=np.sqrt(squared[kept]))


def _root_of_median(squared: NDArray[np.float64]) -> float:
    median = float(np.median(squared))
    if median <= 0:
        raise ValueError(
            f"the median of {len(squared)} distances between rows is 0: at least half of the pairs are identical; "
            "drop duplicate rows or set sigma yourself"
        )
    return math.sqrt(median)
