"""Real handwritten digits of another making: the UCI optical digits, scans counted down to 8 x 8 squares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits.drawing import SIDE
from gated_domains.data.digits.parts import Domain

TEST = 500
_LEVELS = 16  # a square holds 0 to 16 black points


def make() -> Domain:
    """All 1,797 images that scikit-learn has, in their order, so that those at the end come from other writers."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.stack([_enlarged(image) for image in digits.images])
    return Domain.joined(images[:-TEST], images[-TEST:], labels=digits.target)


def _enlarged(image: NDArray[np.float64]) -> NDArray[np.uint8]:
    from PIL import Image

    small = Image.fromarray(np.rint(image * (255 / _LEVELS)).astype(np.uint8))
    return np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC))
