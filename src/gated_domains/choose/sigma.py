"""The kernel width sigma, from the distances between rows of features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from gated_domains.choose.plots import plot_sigma

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


def as_rows(features: ArrayLike, *, at_least: int) -> NDArray[Any]:
    """The features as a matrix of finite real numbers, one row a sample; refused otherwise."""
    try:
        x = np.asarray(features)
        # Floats keep their width: only the subsample is widened, which may be far smaller.
        x = x if x.dtype.kind == "f" else x.astype(np.float64, casting="unsafe" if x.dtype.kind == "O" else "safe")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"features cannot be read as a matrix of numbers ({error}); keep numeric columns of equal length, "
            "and hand a tensor over as features.detach().cpu().numpy()"
        ) from error
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(
            f"expected features with shape (rows, features), got shape {x.shape}; reshape them, "
            "a single feature with features.reshape(-1, 1)"
        )
    if len(x) < at_least:
        raise ValueError(f"at least {at_least} rows of features are needed, got {len(x)}; pass more rows")
    broken = int((~np.isfinite(x)).any(axis=1).sum())
    if broken:
        raise ValueError(f"features hold NaN or infinity in {broken} of {len(x)} rows; clean or drop those rows first")
    return x


def subsample(x: NDArray[Any], max_rows: int, seed: int) -> NDArray[np.float64]:
    """At most ``max_rows`` rows at random, in double precision; every row, in order, where they are few enough."""
    if len(x) > max_rows:
        x = x[np.random.default_rng(seed).choice(len(x), max_rows, replace=False)]
    return x.astype(np.float64)


def run_seeds(seed: int, runs: int) -> list[int]:
    """A seed for each run. Not ``seed + run``: then neighbouring seeds would share all runs but one."""
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    return [int(state) for state in np.random.SeedSequence(seed).generate_state(runs)]


def check_at_least(name: str, value: int, low: int) -> None:
    """Refuse a count that is too small."""
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")
