"""Bases to start from: a block of rows each, from clusters of features, from all of them, or drawn as in the paper."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from gated_domains.choose.rows import as_rows, run_seeds, subsample
from gated_domains.common.validation import at_least_one

# Rows up to which k-means looks at everything; beyond, at a random subsample of that size.
_CLUSTER_ROWS = 10_000
# k-means starts, as many as in a choice of M; the best start counts.
_STARTS = 3

Initialiser = Callable[[ArrayLike, int, int, int], NDArray[Any]]


def kmeans_bases(features: ArrayLike, num_bases: int, basis_size: int, seed: int) -> NDArray[Any]:
    """Each basis from one k-means cluster: ``basis_size`` of its members at random; shape (bases, size, features)."""
    x = _checked(features, num_bases, basis_size)
    for_rows, for_clusters, for_members = run_seeds(seed, 3)
    sample = subsample(x, _CLUSTER_ROWS, for_rows)
    labels = _clusters(sample, num_bases, for_clusters)
    rng = np.random.default_rng(for_members)
    members = [np.flatnonzero(labels == j) for j in range(num_bases)]
    return np.stack([sample[_draw(own, basis_size, rng)] for own in members]).astype(x.dtype)


def random_bases(features: ArrayLike, num_bases: int, basis_size: int, seed: int) -> NDArray[Any]:
    """Each basis a random sample of all rows."""
    x = _checked(features, num_bases, basis_size)
    (for_rows,) = run_seeds(seed, 1)
    drawn = _draw(np.arange(len(x)), num_bases * basis_size, np.random.default_rng(for_rows))
    return x[drawn].reshape(num_bases, basis_size, -1)


def paper_bases(features: ArrayLike, num_bases: int, basis_size: int, seed: int) -> NDArray[Any]:
    """The paper's start, which takes width and precision of the features and nothing else: see ``paper_normal``."""
    x = as_rows(features, at_least=1)
    return paper_normal(num_bases, basis_size, x.shape[1], seed).astype(x.dtype)


def paper_normal(num_bases: int, basis_size: int, width: int, seed: int) -> NDArray[np.float64]:
    """Basis j drawn from ``N(0.5 j (-1)^j, (0.1 (j + 1))^2)``."""
    shape = (at_least_one("num_bases", num_bases), at_least_one("basis_size", basis_size), at_least_one("width", width))
    j = np.arange(num_bases, dtype=np.float64).reshape(-1, 1, 1)
    (for_noise,) = run_seeds(seed, 1)
    noise = np.random.default_rng(for_noise).standard_normal(shape)
    return 0.5 * j * (-1.0) ** j + 0.1 * (j + 1) * noise


def _checked(features: ArrayLike, num_bases: int, basis_size: int) -> NDArray[Any]:
    """The rows, refused unless there is one for each basis."""
    at_least_one("basis_size", basis_size)
    return as_rows(features, at_least=at_least_one("num_bases", num_bases))


def _clusters(x: NDArray[np.float64], clusters: int, seed: int) -> NDArray[np.int32]:
    """The cluster of each row, none of them empty."""
    with warnings.catch_warnings():
        # It says that there are fewer distinct rows than clusters, for which the next step has an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KMeans(clusters, n_init=_STARTS, random_state=seed).fit(x)  # which centres the rows
    distance = np.square(x - fitted.cluster_centers_[fitted.labels_]).sum(axis=1)
    return _without_empty(fitted.labels_, distance, clusters)


def _without_empty(labels: NDArray[np.int32], distance: NDArray[np.float64], clusters: int) -> NDArray[np.int32]:
    """The labels, with each empty cluster given the row farthest from its own centre in a cluster that can spare it."""
    labels, distance = labels.copy(), distance.copy()
    counts = np.bincount(labels, minlength=clusters)
    for empty in np.flatnonzero(counts == 0):
        row = int(np.where(counts[labels] > 1, distance, -1.0).argmax())
        counts[labels[row]] -= 1
        counts[empty] += 1
        labels[row] = empty
        distance[row] = 0
    return labels


def _draw(candidates: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``count`` of the candidates at random, without repetition while there are enough."""
    return rng.choice(candidates, count, replace=len(candidates) < count)


INITIALISERS: dict[str, Initialiser] = {"kmeans": kmeans_bases, "random": random_bases, "paper": paper_bases}
