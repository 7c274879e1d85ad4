"""Steps that the made domains share: moving a picture in the plane, colours that stand apart, softness, bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits.glyphs import CELL, DIGIT_HEIGHT, LINE_WIDTH

SIDE = 32
Floats = NDArray[np.floating[Any]]
Pictures = NDArray[np.float32]  # (n, SIDE, SIDE, 3), 0 to 255 and, on the way, beyond
_OVERSAMPLING = 2
_BRIGHTNESS = np.array([0.299, 0.587, 0.114])


def views(
    *, height: Floats, aspect: Floats, degrees: Floats, slant: Floats, shift: Floats, tilt: Floats
) -> NDArray[np.float64]:
    """Matrices (n, 3, 3) that lead from a pixel of an image to a point of a line of digits.

    ``height`` is that of a digit in pixels, ``aspect`` stretches its width, ``shift`` (n, 2) moves it from the middle,
    ``tilt`` (n, 2) turns the plane away from the viewer, sideways and upwards (0.2 is a lot).
    """
    count = len(height)
    angle, zoom = np.deg2rad(degrees), height / DIGIT_HEIGHT
    rotation, shear, scale, perspective = (np.tile(np.eye(3), (count, 1, 1)) for _ in range(4))
    rotation[:, 0, 0] = rotation[:, 1, 1] = np.cos(angle)
    rotation[:, 0, 1] = -np.sin(angle)
    rotation[:, 1, 0] = np.sin(angle)
    shear[:, 0, 1] = slant
    scale[:, 0, 0], scale[:, 1, 1] = zoom * aspect, zoom
    perspective[:, 2, :2] = tilt / (SIDE / 2)
    forward = _moves(shift + SIDE / 2) @ perspective @ rotation @ shear @ scale
    forward = forward @ _moves(np.full((count, 2), (-LINE_WIDTH / 2, -CELL / 2)))
    return np.asarray(np.linalg.inv(forward), np.float64)


def _moves(by: Floats) -> NDArray[np.float64]:
    matrices = np.tile(np.eye(3), (len(by), 1, 1))
    matrices[:, :2, 2] = by
    return matrices


def seen(mask: NDArray[np.uint8], view: Floats) -> NDArray[np.uint8]:
    """A mask as one of the ``views`` shows it: (SIDE, SIDE), smooth at its edges."""
    from PIL import Image

    matrix = view / view[2, 2]
    matrix = matrix / np.array([_OVERSAMPLING, _OVERSAMPLING, 1.0])
    large = Image.fromarray(mask).transform(
        (SIDE * _OVERSAMPLING, SIDE * _OVERSAMPLING),
        Image.Transform.PERSPECTIVE,
        tuple(matrix.ravel()[:8]),
        Image.Resampling.BILINEAR,
    )
    return np.asarray(large.reduce(_OVERSAMPLING))


def brightness(colours: Floats) -> NDArray[np.float64]:
    """How bright an eye finds colours: (..., 3) -> (...)."""
    return colours @ _BRIGHTNESS


def standing_out(from_colours: Floats, *, by: Floats | float, rng: np.random.Generator) -> NDArray[np.float64]:
    """A random colour for each of (n, 3), brighter or darker than it by a given step at least, where there is one."""
    tries = rng.uniform(0, 255, (len(from_colours), 16, 3))
    gaps = np.abs(brightness(tries) - brightness(from_colours)[:, None])
    enough = gaps >= np.reshape(by, (-1, 1))
    chosen = np.where(enough.any(1), enough.argmax(1), gaps.argmax(1))
    return tries[np.arange(len(tries)), chosen]


def sheets(colours: Floats) -> Pictures:
    """Pictures of one pixel, to be broadcast: (n, 3) -> (n, 1, 1, 3)."""
    return colours[:, None, None, :].astype(np.float32)


def painted(images: Pictures, masks: NDArray[np.uint8], colours: Floats) -> Pictures:
    """Images with a colour each (n, 3) laid on through masks (n, SIDE, SIDE)."""
    cover = masks[..., None].astype(np.float32) / np.float32(255)
    return images + cover * (sheets(colours) - images)


def grainy(images: Pictures, strength: Floats, rng: np.random.Generator) -> Pictures:
    """Images with noise of a strength each, of its own in every pixel and colour."""
    noise = rng.standard_normal(images.shape, np.float32)
    return images + noise * strength[:, None, None, None].astype(np.float32)


def ramps(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Planes (n, SIDE, SIDE) that rise from -1 to 1 in random directions."""
    angle = rng.uniform(0, 2 * np.pi, count)
    axis = np.linspace(-1, 1, SIDE)
    planes = np.cos(angle)[:, None, None] * axis + np.sin(angle)[:, None, None] * axis[:, None]
    return (planes / np.abs(planes).max((1, 2), keepdims=True)).astype(np.float32)


def softened(images: Pictures, sigma: Floats) -> Pictures:
    """Images after a Gaussian blur, each of its own width in pixels."""
    reach = 4
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-(offsets**2) / (2 * np.maximum(sigma, 1e-3)[:, None] ** 2))
    weights = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    result = images
    for axis in (1, 2):
        padding = [(0, 0)] * 4
        padding[axis] = (reach, reach)
        padded = np.pad(result, padding, mode="edge")
        slices = (padded[:, k : k + SIDE] if axis == 1 else padded[:, :, k : k + SIDE] for k in range(2 * reach + 1))
        result = sum(
            (part * weight[:, None, None, None] for part, weight in zip(slices, weights.T, strict=True)),
            start=np.zeros_like(result),
        )
    return result


def as_bytes(images: Pictures) -> NDArray[np.uint8]:
    """Numbers as bytes: rounded, and cut off at 0 and 255."""
    return np.clip(np.rint(images), 0, 255).astype(np.uint8)
