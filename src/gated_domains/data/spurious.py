"""Sites where an attribute that is easy to see goes with the class, and one where it does not."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Rows

BALANCED = "balanced"
"""The site where attribute and class know nothing of each other."""
_SPREAD = 0.6  # of the way to the nearer end: how far the shares of the sites lie from the middle one


def spurious(
    *,
    rows: int = 1_000,
    sites: int = 4,
    classes: int = 2,
    dimension: int = 20,
    correlation: float = 0.95,
    core: float = 1.5,
    style: float = 3.0,
    seed: int = 0,
) -> DomainDataset:
    """Vectors of some sites to train on, ``rows`` rows each, and of the site ``balanced``, as many as of all those.

        x = core signal of the class + style of the attribute + z,   z standard normal

    Two classes lie ``2 core`` apart and two attributes ``2 style``, in directions at right angles, so that of two
    classes the core tells a share Phi(core) everywhere, and no classifier that disregards the attribute can do better.
    An attribute is that of its class in a share ``correlation`` of the training rows (from site to site a little more
    or less: 0.92 to 0.98 for 0.95), else any other; in ``balanced`` each has the same share in every class. Whoever
    goes by the attribute does well at every site but the last, and there is wrong where the two disagree.

    The attribute stands in the metadata: ``--group-by attribute,class``.
    """
    _check(rows, sites, classes, dimension, correlation, core, style, seed)
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    shares = [*_shares(sites, classes, correlation), 1 / classes]
    sizes = [*[rows] * sites, rows * sites]
    targets = rng.integers(classes, size=sum(sizes))
    attribute = _attributes(targets, np.repeat(shares, sizes), classes, rng)
    # Corners of a regular simplex, whose sides are as long as asked.
    values = rng.normal(size=(len(targets), dimension))
    values += math.sqrt(2) * (core * axes[targets] + style * axes[classes + attribute])
    return DomainDataset(
        name="spurious",
        inputs=Features(values.astype(np.float32)),
        targets=targets,
        class_names=tuple(str(index) for index in range(classes)),
        domains=np.repeat(np.arange(sites + 1), sizes),
        domain_names=(*(f"site {index}" for index in range(1, sites + 1)), BALANCED),
        metadata={"attribute": np.array([f"style {index}" for index in range(classes)])[attribute]},
    )


def _shares(sites: int, classes: int, correlation: float) -> NDArray[np.float64]:
    """How often the attribute is that of the class at each site."""
    spread = _SPREAD * min(1 - correlation, correlation - 1 / classes)
    return correlation + (np.linspace(-spread, spread, sites) if sites > 1 else np.zeros(1))


def _attributes(targets: Rows, share: NDArray[np.float64], classes: int, rng: np.random.Generator) -> Rows:
    agrees = rng.random(len(targets)) < share
    other = (targets + rng.integers(1, classes, size=len(targets))) % classes
    return np.where(agrees, targets, other)


def _check(
    rows: int, sites: int, classes: int, dimension: int, correlation: float, core: float, style: float, seed: int
) -> None:
    least = {"rows": (rows, 1), "sites": (sites, 1), "classes": (classes, 2), "seed": (seed, 0)}
    for name, (value, minimum) in least.items():
        if value < minimum:
            raise DataError(f"{name} must be {minimum} or more, got {value}")
    if dimension < 2 * classes:
        raise DataError(
            f"dimension must be {2 * classes} or more, a direction for each of {classes} classes and attributes; "
            f"got {dimension}"
        )
    if not 1 / classes <= correlation <= 1:
        raise DataError(
            f"correlation must lie between {1 / classes:g}, where the attribute tells nothing of {classes} classes, "
            f"and 1, got {correlation}"
        )
    for name, length in (("core", core), ("style", style)):
        if not 0 <= length < math.inf:
            raise DataError(f"{name} must be a number from 0 on, got {length}")
