"""What every reader of originals gives back: bytes and digits, for training and test."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError

Bytes = NDArray[np.uint8]
# Training images, training labels, test images, test labels.
Parts = tuple[Bytes, Bytes, Bytes, Bytes]


def as_bytes(values: NDArray[Any], where: str, *, low: float = 0.0, high: float | None = None) -> Bytes:
    """Pixels between ``low`` and ``high`` as 0 to 255. Without ``high``: up to 255, or fractions up to 1."""
    if values.dtype == np.uint8 and high is None:
        return values
    if values.dtype.kind not in "fiu" or values.size == 0:
        raise DataError(f"{where}: the images must be numbers, got {values.dtype} of shape {values.shape}")
    smallest, largest = float(values.min()), float(values.max())
    if high is None:
        high = 1.0 if values.dtype.kind == "f" and largest <= 1 else 255.0
    if not (low <= smallest and largest <= high):  # false for NaN too
        raise DataError(f"{where}: pixels must lie between {low:g} and {high:g}, got {smallest:g} to {largest:g}")
    return np.rint((values - low) * (255 / (high - low))).astype(np.uint8)


def as_digits(values: NDArray[Any], where: str, *, rows: int, ten_is_zero: bool = False) -> Bytes:
    """One digit an image, from digits in any shape or from one column a digit (a one in it, zeros elsewhere)."""
    if values.dtype.kind not in "fiub" or values.size == 0:
        raise DataError(f"{where}: the labels must be numbers, got {values.dtype} of shape {values.shape}")
    if values.shape == (rows, 10) and set(np.unique(values)) <= {0, 1} and (values.sum(1) == 1).all():
        return values.argmax(1).astype(np.uint8)
    flat = values.reshape(-1)
    if len(flat) != rows:
        raise DataError(f"{where}: {rows:,} images but {len(flat):,} labels; the file is not what its name says")
    flat = np.where(flat == 10, 0, flat) if ten_is_zero else flat
    outside = ~np.isin(flat, np.arange(10))
    if outside.any():
        row = int(np.argmax(outside))
        raise DataError(
            f"{where}: label {flat[row]} of image {row} is not a digit ({int(outside.sum()):,} such labels)"
        )
    return flat.astype(np.uint8)


def as_images(values: NDArray[Any], where: str, *, shape: tuple[int, ...]) -> NDArray[Any]:
    """Refuse images of another shape than their publisher's, such as (28, 28)."""
    if values.shape[1:] != shape or len(values) == 0:
        wanted = " x ".join(str(side) for side in shape)
        raise DataError(f"{where}: images must be {wanted}, got an array of shape {values.shape}")
    return values
