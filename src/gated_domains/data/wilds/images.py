"""Images of WILDS: PNG and JPEG files, stretched to one size as its own examples do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Images, Rows, describe_images
from gated_domains.data.readers.folders import opened_image
from gated_domains.data.wilds.sample_files import SampleFiles


class WildsImages(SampleFiles):
    """Images on disk as RGB bytes. ``standardise``: a model sees each by its own mean and deviation, as RxRx1's."""

    kind = "images"

    def __init__(
        self,
        root: Path,
        paths: Sequence[str] | NDArray[Any],
        *,
        size: int,
        name: str,
        standardise: bool = False,
    ) -> None:
        super().__init__(root, paths, name=name)
        if not 1 <= size <= 4096:
            raise DataError(f"the image size must be 1 to 4096 pixels, got {size}")
        self.size, self.standardise = size, standardise

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.size, 3)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    def decode(self, path: str) -> NDArray[Any]:
        return read_stretched(path, size=self.size)

    def at_hand(self) -> WildsImages | HeldImages:
        """All in memory where they are few, else as they are."""
        if not self.is_small:
            return self
        return HeldImages(self.read_all(), digests=self.digests(), standardise=self.standardise)

    def take(self, rows: Rows) -> WildsImages:
        return WildsImages(self.root, self.paths[rows], size=self.size, name=self.name, standardise=self.standardise)

    def describe(self) -> str:
        return describe_images(self.size, self.size, 3)


class HeldImages(Images):
    """Such images in memory."""

    def __init__(self, values: NDArray[Any], *, digests: NDArray[np.uint64], standardise: bool) -> None:
        super().__init__(values, digests=digests)
        self.standardise = standardise

    def take(self, rows: Rows) -> HeldImages:
        return HeldImages(self.values[rows], digests=self.digests()[rows], standardise=self.standardise)


def read_stretched(path: str | os.PathLike[str], *, size: int) -> NDArray[np.uint8]:
    """One image as RGB bytes, scaled to a square whatever its ratio, as the file has it: not cut, not turned."""
    from PIL import Image

    with opened_image(path) as image:
        rgb = image if image.mode == "RGB" else image.convert("RGB")
        if rgb.size != (size, size):
            rgb = rgb.resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(rgb)
