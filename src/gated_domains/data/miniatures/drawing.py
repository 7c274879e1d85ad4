"""What the drawn miniatures share: soft random fields, few colours, and a pen for shapes that turn and scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Colour = float | Sequence[float] | NDArray[Any]  # a grey, or red, green and blue
_AROUND = np.linspace(0, 2 * np.pi, 24, endpoint=False)
_CIRCLE = np.stack([np.cos(_AROUND), np.sin(_AROUND)], axis=1)


def field(rng: np.random.Generator, cells: int, *, height: int, width: int) -> Floats:
    """A random surface, mean 0 and deviation about 1, that changes ``cells`` times across the picture."""
    corners = rng.standard_normal((cells + 1, cells + 1), np.float32) * np.float32(1.5)
    return _between(_between(corners, height).T, width).T


def _between(corners: Floats, pixels: int) -> Floats:
    """Rows between the given ones, by linear interpolation: (cells + 1, n) -> (pixels, n)."""
    # By hand, not by a product of matrices: that would start as many threads as there are processors, for nothing.
    place = np.linspace(0, len(corners) - 1, pixels, endpoint=False, dtype=np.float32)
    before = place.astype(np.int64)
    share = (place - before.astype(np.float32))[:, None]
    return corners[before] * (1 - share) + corners[before + 1] * share


def steps(values: Floats, size: float) -> Floats:
    """Values rounded to multiples: few different colours make small files."""
    return np.rint(values / np.float32(size)) * np.float32(size)


def as_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """0 to 255, rounded and cut off."""
    return np.clip(values + 0.5, 0, 255).astype(np.uint8)


def colour(*parts: float) -> Floats:
    """Red, green and blue, in the precision that pictures are computed in."""
    return np.array(parts, np.float32)


class Pen:
    """Draws filled shapes on a sheet in coordinates of its own: x and y from -1 to 1 across the shorter side.

    ``place`` turns, scales and moves what follows.
    """

    def __init__(self, sheet: NDArray[np.uint8]) -> None:
        from PIL import Image, ImageDraw

        self._image = Image.fromarray(sheet)
        self._draw = ImageDraw.Draw(self._image)
        self._middle = np.array(self._image.size) / 2
        self._unit = min(self._image.size) / 2
        self.place()

    def place(
        self, x: float = 0.0, y: float = 0.0, *, scale: float = 1.0, degrees: float = 0.0, mirrored: bool = False
    ) -> None:
        """Where, how large and how turned what follows is drawn."""
        cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        turn = np.array([[cosine, -sine], [sine, cosine]])
        self._matrix = scale * turn @ np.diag([-1 if mirrored else 1, 1])
        self._shift = np.array([x, y])

    def polygon(self, points: NDArray[Any] | list[tuple[float, float]], colour: Colour) -> None:
        """A filled polygon."""
        place = np.asarray(points, np.float64) @ self._matrix.T + self._shift
        self._draw.polygon((place * self._unit + self._middle).ravel().tolist(), fill=_fill(colour))

    def ellipse(self, x: float, y: float, a: float, b: float, colour: Colour, *, degrees: float = 0.0) -> None:
        """A filled ellipse around (x, y) with half-axes a and b."""
        cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        turn = np.array([[a * cosine, a * sine], [-b * sine, b * cosine]])
        self.polygon(_CIRCLE @ turn + (x, y), colour)

    def box(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        """A filled rectangle."""
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], colour)

    def tone(self, *, gain: Colour, lift: Colour = 0.0) -> None:
        """Change all colours so far, by channel: ``gain * colour + lift``."""
        from PIL import ImageDraw

        table = as_bytes(np.reshape(lift, (-1, 1)) + np.reshape(gain, (-1, 1)) * np.arange(256))
        self._image = self._image.point(np.broadcast_to(table, (len(self._image.getbands()), 256)).ravel().tolist())
        self._draw = ImageDraw.Draw(self._image)

    @property
    def picture(self) -> NDArray[np.uint8]:
        """What has been drawn."""
        return np.asarray(self._image)


def _fill(colour: Colour) -> tuple[int, ...] | int:
    if isinstance(colour, int | float | np.number):
        return min(max(round(float(colour)), 0), 255)
    return tuple(min(max(round(float(part)), 0), 255) for part in colour)
