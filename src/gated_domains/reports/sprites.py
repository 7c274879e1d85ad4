"""Small pictures in one large one: a file for a thousand samples."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COLUMNS = 32
_FEWEST = 40  # below, a map says little by pictures: then by none


@dataclass(frozen=True, eq=False)
class Sprite:
    """A data URI of tiles in a grid, and the tile of each sample, -1 where it has none."""

    uri: str
    columns: int
    size: int
    tiles: NDArray[np.int64]


def sprite_of(pictures: NDArray[np.uint8], domains: NDArray[np.int64], *, most_bytes: int) -> Sprite:
    """The pictures that fit into so many bytes, as many of each domain; where there are none, no tiles."""
    nothing = Sprite("", 0, 0, np.full(len(domains), -1, np.int64))
    if pictures.size == 0:
        return nothing
    count = len(pictures)
    while count >= min(_FEWEST, len(pictures)):
        chosen = _balanced(domains, count)
        uri = picture_uri(_grid(pictures[chosen]))
        if len(uri) <= most_bytes:
            tiles = nothing.tiles.copy()
            tiles[chosen] = np.arange(len(chosen))
            return Sprite(uri, _COLUMNS, max(pictures.shape[1:3]), tiles)
        count = min(count - 1, int(count * 0.95 * most_bytes / len(uri)))
    return nothing


def picture_uri(pixels: NDArray[np.uint8]) -> str:
    """A picture (height, width, 1 or 3 channels) as a data URI."""
    from PIL import Image, features

    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels[..., :3])
    kind, options = ("webp", {"quality": 60, "method": 4}) if features.check("webp") else ("jpeg", {"quality": 70})
    written = io.BytesIO()
    _as_rgb(image).save(written, format=kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(written.getvalue()).decode('ascii')}"


def strip(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pictures beside each other, a pixel of grey between two."""
    height, _, channels = pictures.shape[1:]
    gap = np.full((height, 1, channels), 127, np.uint8)
    parts = [part for picture in pictures for part in (picture, gap)]
    return np.concatenate(parts[:-1], axis=1)


def _as_rgb(image: Any) -> Any:
    return image.convert("RGB")


def _balanced(domains: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """So many places, spread evenly over domains and within each."""
    groups = [np.flatnonzero(domains == domain) for domain in np.unique(domains)]
    ranks = np.empty(len(domains))
    for group in groups:
        ranks[np.random.default_rng(0).permutation(group)] = np.arange(len(group)) / len(group)
    return np.sort(np.argsort(ranks, kind="stable")[:count])


def _grid(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    count, height, width, channels = pictures.shape
    side = max(height, width)
    lines = math.ceil(count / _COLUMNS)
    grid = np.zeros((lines * side, _COLUMNS * side, channels), np.uint8)
    for place, picture in enumerate(pictures):
        top, left = place // _COLUMNS * side, place % _COLUMNS * side
        grid[top : top + height, left : left + width] = picture
    return grid
