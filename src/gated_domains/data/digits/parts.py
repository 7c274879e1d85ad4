"""One domain of `digits`: its images, and which of them are set aside for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sizes:
    """How many images a domain gets to train on and to be tested on, as many of each digit (UCI's has its own)."""

    train: int = 3_000
    test: int = 1_000


@dataclass(frozen=True, eq=False)
class Domain:
    """Images (n, 32, 32, 3), their digits, and which are set aside for tests: the last ones."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    for_test: NDArray[np.bool_]

    @classmethod
    def joined(cls, train: NDArray[np.uint8], test: NDArray[np.uint8], *, labels: NDArray[np.int64]) -> Domain:
        """Training images, then test images, with the digits of both."""
        images = np.concatenate([train, test])
        if images.ndim == 3:  # grey
            images = np.repeat(images[..., None], 3, axis=3)
        return cls(images, labels.astype(np.int64), np.arange(len(images)) >= len(train))


def own_seed(seed: int, domain: str) -> np.random.SeedSequence:
    """A seed for a domain: another one for each, so that what changes in one leaves the others as they are."""
    return np.random.SeedSequence((seed, *domain.encode()))


def balanced(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """As many of each digit, in random order."""
    return rng.permutation(np.arange(count, dtype=np.int64) % 10)
