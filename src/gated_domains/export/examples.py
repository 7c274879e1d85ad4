"""Samples drawn by chance that look like those of an encoding: to trace a graph with, and to compare two models on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.encoding import TableEncoding
from gated_domains.export.feeds import feeds_of
from gated_domains.export.subject import Subject
from gated_domains.export.table_front import NEVER_SEEN, name_codes, number_codes

Arrays = dict[str, NDArray[Any]]


def drawn(subject: Subject, rows: int, *, seed: int = 0) -> Arrays:
    """So many samples, by the names of a graph's inputs."""
    rng = np.random.default_rng(seed)
    encoding = subject.schema.encoding
    if isinstance(encoding, TableEncoding):
        return _table(encoding, rows, rng)
    (feed,) = feeds_of(encoding, exact=subject.exact)
    kind = encoding.kind
    values: NDArray[Any]
    if kind == "images":
        values = _images(rows, feed.shape, rng)
    elif kind == "tokens":
        values = _tokens(rows, feed.shape[0], int(encoding.about["vocabulary"]), rng)
    elif kind == "bits":
        values = (rng.random((rows, *feed.shape)) < 0.1).astype(np.uint8)
    elif kind == "words":
        values = np.where(rng.random((rows, *feed.shape)) < 0.1, rng.random((rows, *feed.shape)), 0.0) + 1e-6
        values = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    else:
        values = _vectors(subject, (rows, *feed.shape), rng).astype(feed.dtype)
    return {feed.name: values}


def _images(rows: int, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Of many levels of light and contrast, coarse patterns and fine ones: noise alone would look alike everywhere.

    None is flat: of an image of one colour the logarithm of a variance is rounding noise, in the trained model too.
    """
    light, contrast = rng.uniform(20, 235, (rows, 1, 1, shape[-1])), rng.uniform(20, 80, (rows, 1, 1, 1))
    coarse = rng.normal(size=(rows, -(-shape[0] // 4), -(-shape[1] // 4), shape[-1]))
    coarse = coarse.repeat(4, axis=1).repeat(4, axis=2)[:, : shape[0], : shape[1]]
    fine = rng.normal(size=(rows, *shape))
    return (light + contrast * (coarse + 0.5 * fine)).clip(0, 255).astype(np.uint8)


def _tokens(rows: int, length: int, vocabulary: int, rng: np.random.Generator) -> NDArray[np.int64]:
    values = rng.integers(1, vocabulary, (rows, length))
    return np.where(np.arange(length) < rng.integers(1, length + 1, (rows, 1)), values, 0)


def _vectors(subject: Subject, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Standard normals; where the model knows the mean and scale of its training data, with those."""
    knows: Any = subject.network.inputs if subject.kind == "estimator" else subject.view
    mean, scale = getattr(knows, "mean", None), getattr(knows, "scale", None)
    values = rng.normal(size=shape)
    if not isinstance(mean, Tensor) or not isinstance(scale, Tensor) or tuple(mean.shape) != shape[1:]:
        return values
    return values * scale.double().numpy() + mean.double().numpy()


def _table(encoding: TableEncoding, rows: int, rng: np.random.Generator) -> Arrays:
    """Also missing values, names never seen, and numbers far from all others."""
    found: Arrays = {}
    if numbers := number_codes(encoding):
        width = (rows, len(numbers))
        normal = rng.normal(size=width) * np.where(rng.random(width) < 0.05, 100.0, 1.0)
        scale, mean = [code.scale or 1.0 for code in numbers], [code.mean for code in numbers]
        found["numbers"] = np.where(rng.random(width) < 0.1, np.nan, normal * scale + mean)
    if names := name_codes(encoding):
        places = [rng.integers(NEVER_SEEN, len(code.levels), rows) for code in names]
        found["names"] = np.stack(places, axis=1).astype(np.int64)
    return found
