"""Mixtures of known elementary distributions, on which recovery of bases and coefficients can be held to the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Rows

Floats = NDArray[np.float64]
_TRIES = 100  # random sets of centres, of which one is taken


class Draw(NamedTuple):
    """Samples with their classes, and the element that each was drawn from."""

    inputs: NDArray[np.float32]
    targets: Rows
    element: Rows


@dataclass(frozen=True, eq=False, kw_only=True)
class Elements:
    """Elementary distributions P_j(x, y), each with a mean, a spread and a linear labelling rule of its own.

        x = centres[j] + scales[j] * z,   z standard normal
        y = which of ``classes`` slices of equal mass rules[j] . z falls into

    so that classes are equally frequent in every element. A share ``noise`` of labels is drawn anew: even a classifier
    that is told the element is right no more often than ``1 - noise (1 - 1 / classes)``. ``centres``, ``scales`` and
    ``rules`` are [elements, dimension]; the rules have length 1 and lie around ``common_rule``.
    """

    centres: Floats
    scales: Floats
    rules: Floats
    common_rule: Floats
    classes: int
    noise: float

    def label(self, inputs: NDArray[Any], element: Rows) -> Rows:
        """The classes of samples by the rules of their elements, without noise."""
        z = (inputs - self.centres[element]) / self.scales[element]
        slices = [NormalDist().inv_cdf(part / self.classes) for part in range(1, self.classes)]
        return np.searchsorted(slices, (self.rules[element] * z).sum(axis=1), side="right")

    def sample(self, weights: int | Sequence[float] | Floats, rows: int, *, seed: int) -> Draw:
        """Rows of one element, or of the mixture with these weights."""
        _at_least(rows=(rows, 1), seed=(seed, 0))
        mixture = self._weights(weights)
        rng = np.random.default_rng(seed)
        element = rng.choice(len(mixture), size=rows, p=mixture)
        z = rng.normal(size=(rows, self.centres.shape[1]))
        # Labelled as they are kept, in float32: else a sample on the edge of a rule would contradict its label.
        inputs = (self.centres[element] + self.scales[element] * z).astype(np.float32)
        anew = rng.random(rows) < self.noise
        targets = np.where(anew, rng.integers(self.classes, size=rows), self.label(inputs, element))
        return Draw(inputs, targets, element)

    def _weights(self, weights: int | Sequence[float] | Floats) -> Floats:
        count = len(self.centres)
        if isinstance(weights, int):
            if not 0 <= weights < count:
                raise DataError(f"there is no element {weights}; they are numbered from 0 to {count - 1}")
            return np.eye(count)[weights]
        mixture = np.asarray(weights, np.float64)
        if mixture.shape != (count,):
            raise DataError(f"a mixture of these elements takes {count} weights, got shape {mixture.shape}")
        if not (mixture >= 0).all() or abs(mixture.sum() - 1) > 1e-6:
            raise DataError(f"weights must not be negative and sum to 1, got {mixture.tolist()}, sum {mixture.sum():g}")
        return mixture / mixture.sum()


@dataclass(frozen=True, eq=False, kw_only=True)
class Mixture(Elements):
    """Domains that are convex mixtures of the same elementary distributions, and the truth about them.

        P_s(x, y) = sum_j coefficients[s, j] P_j(x, y)

    ``coefficients`` is [domains, elements], rows sum to 1. ``dataset`` holds the element of each row as metadata too.
    """

    dataset: DomainDataset
    coefficients: Floats

    @property
    def element(self) -> Rows:
        """The element that each row of the data set was drawn from."""
        return self.dataset.metadata["element"]


def synthetic(
    *,
    elements: int = 3,
    domains: int = 6,
    dimension: int = 10,
    rows: int = 300,
    classes: int = 2,
    separation: float = 6.0,
    own: float = 0.8,
    concentration: float = 0.5,
    noise: float = 0.02,
    seed: int = 0,
) -> Mixture:
    """Domains of ``rows`` rows each, mixed from a few elementary distributions in any dimension.

    - ``separation``: distance between the two nearest centres, where a standard deviation is 1 on average
    - ``own``: how far rules differ, 0 (all alike) to 1 (each at a right angle to the common one); in one dimension
      there is one direction only, and rules differ by their place
    - ``concentration`` of the Dirichlet distribution of coefficients: low for pure domains, high for equal mixtures
    - ``noise``: share of labels drawn anew

    Elements take turns at being the main part of a domain. With twice as many domains as elements each of them is the
    main part of a source, whichever domain is held out. The truth does not depend on ``rows``.
    """
    _at_least(elements=(elements, 1), dimension=(dimension, 1), rows=(rows, 1), classes=(classes, 2), seed=(seed, 0))
    if domains < elements:
        raise DataError(
            f"domains must be at least as many as elements, {elements}, so that each element is the main part of one; "
            f"got {domains}"
        )
    for name, share in (("own", own), ("noise", noise)):
        if not 0 <= share <= 1:
            raise DataError(f"{name} must lie between 0 and 1, got {share}")
    if not 0 <= separation < math.inf:
        raise DataError(f"separation must be a number from 0 on, got {separation}")
    if not 0 < concentration < math.inf:
        raise DataError(f"concentration must be a positive number, got {concentration}")
    rng = np.random.default_rng(seed)
    common_rule, rules = _rules(elements, dimension, own, rng)
    truth = Elements(
        centres=_centres(elements, dimension, separation, rng),
        scales=rng.uniform(0.5, 1.5, (elements, dimension)),
        rules=rules,
        common_rule=common_rule,
        classes=classes,
        noise=noise,
    )
    coefficients = _coefficients(domains, elements, concentration, rng)
    seeds = rng.integers(2**63, size=domains).tolist()
    draws = [truth.sample(weights, rows, seed=own_seed) for weights, own_seed in zip(coefficients, seeds, strict=True)]
    dataset = DomainDataset(
        name="synthetic",
        inputs=Features(np.concatenate([draw.inputs for draw in draws])),
        targets=np.concatenate([draw.targets for draw in draws]),
        class_names=tuple(str(index) for index in range(classes)),
        domains=np.repeat(np.arange(domains), rows),
        domain_names=tuple(f"domain {index}" for index in range(1, domains + 1)),
        metadata={"element": np.concatenate([draw.element for draw in draws])},
    )
    return Mixture(**vars(truth), dataset=dataset, coefficients=coefficients)


def _at_least(**least: tuple[int, int]) -> None:
    for name, (value, minimum) in least.items():
        if value < minimum:
            raise DataError(f"{name} must be {minimum} or more, got {value}")


def _centres(elements: int, dimension: int, separation: float, rng: np.random.Generator) -> Floats:
    """Points around the origin: of many random sets the one whose nearest two are farthest apart, then scaled."""
    if elements == 1:
        return np.zeros((1, dimension))
    sets = [rng.normal(size=(elements, dimension)) for _ in range(_TRIES)]
    nearest, centres = max(((_nearest(points), points) for points in sets), key=lambda pair: pair[0])
    return (centres - centres.mean(axis=0)) * (separation / nearest)


def _nearest(points: Floats) -> float:
    return min(float(np.linalg.norm(points[i + 1 :] - points[i], axis=1).min()) for i in range(len(points) - 1))


def _rules(elements: int, dimension: int, own: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """A common direction, and directions around it: the part of each that is its own is at a right angle to it."""
    common = rng.normal(size=dimension)
    common /= np.linalg.norm(common)
    if dimension == 1:
        return common, np.tile(common, (elements, 1))
    aside = rng.normal(size=(elements, dimension))
    aside -= np.outer(aside @ common, common)
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    return common, math.sqrt(1 - own**2) * common + own * aside


def _coefficients(domains: int, elements: int, concentration: float, rng: np.random.Generator) -> Floats:
    """Dirichlet weights, the largest of each domain moved to the element whose turn it is."""
    weights = rng.dirichlet(np.full(elements, concentration), size=domains)
    for domain, row in enumerate(weights):
        main, largest = domain % elements, row.argmax()
        row[[main, largest]] = row[[largest, main]]
    return weights
