"""What digits are laid on: crops of two photographs, and textures made in code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits.drawing import SIDE, Pictures, ramps, sheets

# Photographs, and the column that parts them: crops to test on lie left of it, through a pagoda and through a flower.
_PARTED_AT = {"china.jpg": 210, "flower.jpg": 300}


@cache
def _regions(*, for_test: bool) -> tuple[NDArray[np.uint8], ...]:
    from sklearn.datasets import load_sample_image

    whole = {name: load_sample_image(name) for name in _PARTED_AT}
    return tuple(
        whole[name][:, :column] if for_test else whole[name][:, column:] for name, column in _PARTED_AT.items()
    )


def photographed(rng: np.random.Generator, count: int, *, for_test: bool) -> Pictures:
    """Square crops of scikit-learn's two photographs, of several sizes, turned, mirrored, darker or brighter."""
    from PIL import Image

    regions = _regions(for_test=for_test)
    which, quarter_turns = rng.integers(len(regions), size=count), rng.integers(4, size=count)
    sides = np.rint(np.exp(rng.uniform(np.log(SIDE), np.log(4 * SIDE), count))).astype(int)
    places = rng.random((count, 2, 2))
    mirrored = rng.random(count) < 0.5
    crops = np.empty((count, SIDE, SIDE, 3), np.float32)
    for row, side in enumerate(sides):
        region = regions[which[row]]
        corners = (places[row] * (np.array(region.shape[:2]) - side)).astype(int)
        # The busier of two: most of one photograph is sky, most of the other is out of focus.
        crop = max((region[top : top + side, left : left + side] for top, left in corners), key=np.std)
        crop = np.rot90(crop[:, ::-1] if mirrored[row] else crop, quarter_turns[row])
        shrunk = Image.fromarray(np.ascontiguousarray(crop)).resize((SIDE, SIDE), Image.Resampling.BOX)
        crops[row] = np.asarray(shrunk)
    return crops * sheets(rng.uniform(0.7, 1.3, (count, 1)))


def textured(rng: np.random.Generator, count: int) -> Pictures:
    """Textures of four kinds: clouds, stripes, blobs, and gradients."""
    kinds = rng.integers(len(_KINDS), size=count)
    images = np.empty((count, SIDE, SIDE, 3), np.float32)
    for kind, make in enumerate(_KINDS):
        rows = np.flatnonzero(kinds == kind)
        images[rows] = make(rng, len(rows))
    return images


def mixed(rng: np.random.Generator, count: int, *, photographs: float, for_test: bool) -> Pictures:
    """Crops of photographs, in that share of the images, and textures."""
    images = textured(rng, count)
    rows = np.flatnonzero(rng.random(count) < photographs)
    images[rows] = photographed(rng, len(rows), for_test=for_test)
    return images


def clouds(rng: np.random.Generator, count: int, *, cells: tuple[int, ...] = (3, 5, 9, 17)) -> NDArray[np.float32]:
    """Value noise (n, SIDE, SIDE) of mean 0 and variance 1: grids of random numbers, each grid as fine as it says.

    How much each grid weighs is drawn for every image.
    """
    weights = rng.dirichlet(np.ones(len(cells)), count).astype(np.float32)
    total = np.zeros((count, SIDE, SIDE), np.float32)
    for weight, cell in zip(weights.T, cells, strict=True):
        between = _interpolation(cell)
        total += weight[:, None, None] * (between @ rng.standard_normal((count, cell, cell), np.float32) @ between.T)
    total -= total.mean((1, 2), keepdims=True)
    return total / np.maximum(total.std((1, 2), keepdims=True), 1e-6)


@cache
def _interpolation(cells: int) -> NDArray[np.float32]:
    """The matrix (SIDE, cells) that draws straight lines between the points of a grid."""
    places = np.linspace(0, cells - 1, SIDE)
    return np.maximum(0, 1 - np.abs(places[:, None] - np.arange(cells))).astype(np.float32)


def _two_colours(rng: np.random.Generator, height: NDArray[np.float32]) -> Pictures:
    """A surface between -1 and 1, drawn from one colour to another."""
    first, second = rng.uniform(0, 255, (2, len(height), 3))
    share = np.clip((height[..., None] + 1) / 2, 0, 1)
    return sheets(first) + share * (sheets(second) - sheets(first))


def _cloudy(rng: np.random.Generator, count: int) -> Pictures:
    return _two_colours(rng, clouds(rng, count)) + 12 * clouds(rng, count)[..., None]


def _striped(rng: np.random.Generator, count: int) -> Pictures:
    turns = ramps(rng, count) * (SIDE / 2) / rng.uniform(4, 20, (count, 1, 1))  # a stripe every so many pixels
    bend = clouds(rng, count, cells=(3, 5)) * rng.uniform(0, 0.12, (count, 1, 1))
    waves = np.sin(2 * np.pi * (turns + bend)) * rng.uniform(1, 4, (count, 1, 1))  # up to almost sharp edges
    return _two_colours(rng, waves.astype(np.float32))


def _blobs(rng: np.random.Generator, count: int) -> Pictures:
    images = _graded(rng, count)
    axis = np.arange(SIDE, dtype=np.float32)
    for _ in range(6):
        across, down, radius = rng.uniform((0, 0, 3), (SIDE, SIDE, 10), (count, 3)).T[..., None, None]
        distance = np.hypot(axis - across, axis[:, None] - down)
        cover = np.clip(radius - distance + 0.5, 0, 1).astype(np.float32)[..., None]
        images += cover * (sheets(rng.uniform(0, 255, (count, 3))) - images)
    return images


def _graded(rng: np.random.Generator, count: int) -> Pictures:
    return _two_colours(rng, ramps(rng, count))


_KINDS: tuple[Callable[[np.random.Generator, int], Pictures], ...] = (_cloudy, _striped, _blobs, _graded)
