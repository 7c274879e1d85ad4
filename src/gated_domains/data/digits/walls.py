"""What house numbers are put on, and the light that falls there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits.backgrounds import clouds, photographed
from gated_domains.data.digits.drawing import SIDE, Pictures, ramps, sheets


def walls(rng: np.random.Generator, count: int, *, for_test: bool) -> Pictures:
    """Plaster, brick, planks, or something out of a photograph, washed out behind the number."""
    paint = sheets(muted(rng, count))
    rough = clouds(rng, count)[..., None] * sheets(rng.uniform(2, 14, (count, 1)))
    joints = _joints(rng, count)[..., None] * sheets(rng.uniform(-45, 25, (count, 1)))
    images = paint + rough + joints
    rows = np.flatnonzero(rng.random(count) < 0.35)
    crops = photographed(rng, len(rows), for_test=for_test)
    images[rows] = images[rows] + (crops - images[rows]) * sheets(rng.uniform(0.4, 0.9, (len(rows), 1)))
    return images


def muted(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Colours as walls have: a brightness, and a tint that leans to red or blue rather than to green."""
    grey = rng.uniform(45, 225, (count, 1))
    warmth, green = rng.normal(0, 1, (2, count, 1))
    tint = warmth * np.array([22.0, 4.0, -20.0]) + green * np.array([-3.0, 6.0, -3.0])
    return grey + tint * rng.uniform(0.2, 1.4, (count, 1))


def _joints(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Lines (n, SIDE, SIDE) between bricks (a quarter of the walls) or planks (another); 0 where there is none."""
    down, across = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    height = rng.uniform(5, 12, (count, 1, 1))
    course, into = np.divmod(down + rng.uniform(0, 12, (count, 1, 1)), height)
    flat = into < 1.2
    along = across + rng.uniform(0, 24, (count, 1, 1)) + (course % 2) * height
    upright = along % (2 * height) < 1.2
    kind = rng.random((count, 1, 1))
    return np.where(kind < 0.25, flat | upright, (kind < 0.5) & flat).astype(np.float32)


def lit(scenes: Pictures, rng: np.random.Generator) -> Pictures:
    """Light that falls off to one side and, in half of the scenes, the edge of a shadow somewhere."""
    count = len(scenes)
    fall = 1 + ramps(rng, count) * rng.uniform(0, 0.35, (count, 1, 1)).astype(np.float32)
    edge = ramps(rng, count) * (SIDE / 2) + rng.uniform(-10, 10, (count, 1, 1))
    inside = 1 / (1 + np.exp(-edge / rng.uniform(0.3, 2, (count, 1, 1))))
    depth = rng.uniform(0.15, 0.45, (count, 1, 1)) * (rng.random((count, 1, 1)) < 0.5)
    return scenes * (fall * (1 - depth * inside)).astype(np.float32)[..., None]
