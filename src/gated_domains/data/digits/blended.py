"""MNIST blended into photographs and textures, as MNIST-M is: each colour is |background - digit|."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits.backgrounds import mixed
from gated_domains.data.digits.drawing import as_bytes
from gated_domains.data.digits.mnist import centred, halves, subset
from gated_domains.data.digits.parts import Domain, Sizes, own_seed

PHOTOGRAPHS = 0.6  # share of the images; the others have textures behind them
_CHUNK = 250


def make(seed: int, sizes: Sizes, *, advance: Callable[[int], None]) -> Domain:
    """The MNIST images that `mnist` does not have. Backgrounds to test on come from other parts of the photographs."""
    _, rows = halves(seed, sizes)
    _, labels = subset()
    rng = np.random.default_rng(own_seed(seed, "blended"))
    train = _blended(rows.train, rng, for_test=False, advance=advance)
    test = _blended(rows.test, rng, for_test=True, advance=advance)
    return Domain.joined(train, test, labels=labels[rows.all])


def _blended(
    rows: NDArray[np.int64], rng: np.random.Generator, *, for_test: bool, advance: Callable[[int], None]
) -> NDArray[np.uint8]:
    parts = []
    for start in range(0, len(rows), _CHUNK):
        digits = centred(rows[start : start + _CHUNK])
        background = np.clip(mixed(rng, len(digits), photographs=PHOTOGRAPHS, for_test=for_test), 0, 255)
        parts.append(as_bytes(np.abs(background - digits[..., None].astype(np.float32))))
        advance(len(digits))
    return np.concatenate(parts)
