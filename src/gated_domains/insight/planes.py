"""Many numbers a row -> a place in the plane."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean

Kind = Literal["tsne", "umap"]
NAMES: dict[str, str] = {"tsne": "t-SNE", "umap": "UMAP"}
_SEED = 0
_DIRECTIONS = 50  # principal ones, that neighbours are looked for in
_NEIGHBOURS = 30.0
_STEPS = 500  # of which the first 250 spread clusters; what twice as many change cannot be seen
_FEWEST = 4  # rows; of fewer no neighbours can be kept together


def plane(values: NDArray[Any], *, kind: Kind = "tsne") -> NDArray[np.float32]:
    """(rows, 2): rows near each other stay near each other. The same rows always come to lie in the same places."""
    if kind not in NAMES:
        raise DataError(f"there is no kind of map {kind!r}{did_you_mean(kind, NAMES)}")
    reduced = principal(values, _DIRECTIONS)
    if len(reduced) < _FEWEST or not np.ptp(reduced, axis=0).any():
        return reduced[:, :2].astype(np.float32)
    return np.asarray({"tsne": _tsne, "umap": _umap}[kind](reduced), np.float32)


def principal(values: NDArray[Any], most: int) -> NDArray[np.float64]:
    """The rows along their principal directions, of most variance first; two columns at least, if need be of zeros."""
    centred = np.asarray(values, np.float64)
    centred = centred - centred.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    found = (left * sizes)[:, :most]
    return np.pad(found, ((0, 0), (0, max(0, 2 - found.shape[1]))))


def _tsne(values: NDArray[np.float64]) -> NDArray[Any]:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(_NEIGHBOURS, max(1.0, (len(values) - 1) / 3))
    made = TSNE(2, perplexity=perplexity, init="pca", random_state=_SEED)
    made.set_params(**{"max_iter" if "max_iter" in made.get_params() else "n_iter": _STEPS})  # as sklearn 1.4 has it
    with threadpool_limits(1):  # threads that find the cores taken wait for each other: ten times as long
        return made.fit_transform(values.astype(np.float32))


def _umap(values: NDArray[np.float64]) -> NDArray[Any]:
    try:
        make: Callable[..., Any] = import_module("umap").UMAP
    except ImportError as error:
        raise DataError("UMAP needs umap-learn: pip install 'gated-domains[viz]', or take t-SNE") from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*n_jobs value")  # one thread is what a fixed seed costs
        return make(n_neighbors=min(15, len(values) - 1), random_state=_SEED).fit_transform(values)
