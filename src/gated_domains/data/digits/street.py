"""House numbers as a passer-by photographs them: seen from aside, in sun and shade, on walls and plates, softly."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits.drawing import (
    SIDE,
    Floats,
    Pictures,
    as_bytes,
    brightness,
    grainy,
    painted,
    seen,
    softened,
    views,
)
from gated_domains.data.digits.glyphs import CELL, LINE_WIDTH, Face, line
from gated_domains.data.digits.parts import Domain, Sizes, balanced, own_seed
from gated_domains.data.digits.walls import lit, muted, walls

# Heavy and plain ones, as on houses; `numbers` has the light and the slanted ones.
FACES = (
    Face("DejaVuSans-Bold.ttf"),
    Face("DejaVuSansMono-Bold.ttf"),
    Face("DejaVuSerif-Bold.ttf"),
    Face("STIXGeneralBol.ttf"),
    Face("STIXGeneral.ttf", zero="\U0001d7e2"),  # sans-serif
    Face("STIXGeneral.ttf", zero="\U0001d7ec"),  # sans-serif, bold
    Face("cmss10.ttf"),
    Face("cmb10.ttf"),
)
_CHUNK = 250


def make(seed: int, sizes: Sizes, *, advance: Callable[[int], None]) -> Domain:
    """House numbers; the label is the digit in the middle. Photographs behind those to test on show other parts."""
    rng = np.random.default_rng(own_seed(seed, "street"))
    labels = np.concatenate([balanced(sizes.train, rng), balanced(sizes.test, rng)])
    train = _photos(labels[: sizes.train], rng, for_test=False, advance=advance)
    test = _photos(labels[sizes.train :], rng, for_test=True, advance=advance)
    return Domain.joined(train, test, labels=labels)


def _photos(
    labels: NDArray[np.int64], rng: np.random.Generator, *, for_test: bool, advance: Callable[[int], None]
) -> NDArray[np.uint8]:
    parts = []
    for start in range(0, len(labels), _CHUNK):
        part = labels[start : start + _CHUNK]
        scenes = lit(_numbered(part, walls(rng, len(part), for_test=for_test), rng), rng)
        scenes = softened(scenes, rng.uniform(0.4, 1.1, len(part)))
        parts.append(_compressed(as_bytes(grainy(scenes, rng.uniform(1, 7, len(part)), rng)), rng))
        advance(len(part))
    return np.concatenate(parts)


def _numbered(labels: NDArray[np.int64], images: Pictures, rng: np.random.Generator) -> Pictures:
    """Walls with a number each: on a plate or on the wall itself, with the shadow that raised digits throw."""
    count = len(labels)
    plate, fill, shadow = _masks(labels, rng)
    images = painted(images, plate, muted(rng, count))
    behind = images[:, SIDE // 4 : -SIDE // 4, SIDE // 4 : -SIDE // 4].mean((1, 2))
    depth = rng.uniform(0, 0.6, (count, 1, 1))
    images = painted(images, (shadow * depth).astype(np.uint8), behind * 0.2)
    return painted(images, fill, _paint_on(behind, rng))


def _paint_on(behind: Floats, rng: np.random.Generator) -> NDArray[np.float64]:
    """A colour for each number, brighter or darker than what is behind it, now and then by little."""
    below = brightness(behind)
    step = rng.uniform(50, 140, len(behind))
    brighter = np.where(below + step > 245, False, np.where(below - step < 10, True, rng.random(len(behind)) < 0.5))
    level = np.clip(np.where(brighter, below + step, below - step), 0, 255)
    tint = rng.normal(0, 14, (len(behind), 3))
    return level[:, None] + tint - brightness(tint)[:, None]


def _masks(
    labels: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """What a plate covers, what the digits cover, and their shadow: nothing where there is no plate or no shadow."""
    count = len(labels)
    faces = rng.integers(len(FACES), size=count)
    neighbours = np.where(rng.random((count, 2)) < 0.6, rng.integers(10, size=(count, 2)), -1)
    tracking = rng.uniform(-2, 6, count)
    lean = {
        "height": rng.uniform(16, 26, count),
        "aspect": rng.uniform(0.7, 1.05, count),
        "degrees": np.clip(rng.normal(0, 5, count), -15, 15),
        "slant": rng.normal(0, 0.08, count),
        "tilt": rng.normal(0, (0.14, 0.06), (count, 2)).clip(-0.3, 0.3),
    }
    place = rng.uniform(-2, 2, (count, 2))
    light = rng.uniform((-1.6, 0.4), (1.6, 1.8), (count, 2))  # it comes from above
    view, shadow_view = views(shift=place, **lean), views(shift=place + light, **lean)
    border = np.where(rng.random(count) < 0.35, rng.integers(2, 9, count), -1)
    has_shadow = rng.random(count) < 0.5
    plate, fill, shadow = np.zeros((3, count, SIDE, SIDE), np.uint8)
    for row, label in enumerate(labels):
        plain, _ = line(FACES[faces[row]], int(label), neighbours=neighbours[row], tracking=float(tracking[row]))
        fill[row] = seen(plain, view[row])
        if has_shadow[row]:
            shadow[row] = seen(plain, shadow_view[row])
        if border[row] >= 0:
            plate[row] = seen(_plate(plain, int(border[row])), view[row])
    return plate, fill, shadow


def _plate(plain: NDArray[np.uint8], border: int) -> NDArray[np.uint8]:
    """A plate behind a line of digits, with some border around them."""
    down, across = (np.flatnonzero(plain.any(axis)) for axis in (1, 0))
    plate = np.zeros((CELL, LINE_WIDTH), np.uint8)
    plate[max(0, down[0] - border) : down[-1] + border, max(0, across[0] - border) : across[-1] + border] = 255
    return plate


def _compressed(images: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Images as JPEG leaves them."""
    from PIL import Image

    def once(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        return np.asarray(Image.open(file))

    qualities = rng.integers(35, 90, len(images))
    return np.stack([once(image, int(quality)) for image, quality in zip(images, qualities, strict=True)])
