"""What stands on the ground in the miniature of FMoW, one function a category, drawn in the middle of the sheet."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gated_domains.data.miniatures.drawing import Pen

_GREY, _LIGHT, _WHITE = (118.0, 116.0, 112.0), (188.0, 184.0, 176.0), (232.0, 230.0, 224.0)
_GREEN, _WATER, _PANEL = (72.0, 128.0, 62.0), (46.0, 82.0, 112.0), (34.0, 44.0, 84.0)


def airport(pen: Pen, rng: np.random.Generator) -> None:
    """Two long runways that cross, and a terminal."""
    pen.box(-0.95, -0.08, 0.95, 0.08, _LIGHT)
    shift, slope = rng.uniform(-0.4, 0.4), rng.uniform(0.3, 0.6)
    pen.polygon(
        [(shift - slope, -0.8), (shift - slope + 0.14, -0.8), (shift + slope, 0.8), (shift + slope - 0.14, 0.8)], _LIGHT
    )
    pen.box(-0.5, 0.2, -0.1, 0.36, _WHITE)


def crop_field(pen: Pen, rng: np.random.Generator) -> None:
    """Parallel strips of two crops."""
    count = int(rng.integers(7, 13))
    edges = np.linspace(-0.8, 0.8, count + 1)
    for strip in range(count):
        colour = (142.0, 148.0, 66.0) if strip % 2 else (92.0, 122.0, 48.0)
        pen.box(edges[strip], -0.75, edges[strip + 1], 0.75, colour)


def lake_or_pond(pen: Pen, rng: np.random.Generator) -> None:
    """Water with an uneven shore."""
    around = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    radius = 0.55 + 0.14 * np.sin(2 * around + rng.uniform(0, 6)) + 0.08 * np.sin(5 * around + rng.uniform(0, 6))
    pen.polygon(np.stack([radius * np.cos(around), radius * np.sin(around)], axis=1), _WATER)


def parking_lot_or_garage(pen: Pen, rng: np.random.Generator) -> None:
    """Rows of cars of all colours on tar."""
    pen.box(-0.7, -0.6, 0.7, 0.6, _GREY)
    for y in np.linspace(-0.5, 0.4, 5):
        for x in np.linspace(-0.62, 0.54, 11):
            if rng.random() < 0.75:
                pen.box(x, y, x + 0.06, y + 0.11, 60.0 + 60.0 * rng.integers(0, 4, 3))


def race_track(pen: Pen, rng: np.random.Generator) -> None:
    """An oval course around a green."""
    wide, high = rng.uniform(0.75, 0.9), rng.uniform(0.4, 0.55)
    pen.ellipse(0.0, 0.0, wide, high, _LIGHT)
    pen.ellipse(0.0, 0.0, wide - 0.14, high - 0.14, _GREEN)


def solar_farm(pen: Pen, rng: np.random.Generator) -> None:
    """Blocks of dark panels."""
    columns = int(rng.integers(2, 4))
    for column in np.linspace(-0.75, 0.75, columns + 1)[:-1]:
        for y in np.arange(-0.7, 0.7, 0.17):
            pen.box(column, y, column + 1.5 / columns - 0.08, y + 0.1, _PANEL)


def stadium(pen: Pen, rng: np.random.Generator) -> None:
    """A bowl of seats around a field with marked lines."""
    size = rng.uniform(0.5, 0.65)
    pen.ellipse(0.0, 0.0, size * 1.2, size, _WHITE)
    pen.ellipse(0.0, 0.0, size * 0.95, size * 0.75, _GREY)
    pen.box(-size * 0.6, -size * 0.38, size * 0.6, size * 0.38, _GREEN)
    pen.box(-0.015, -size * 0.38, 0.015, size * 0.38, _WHITE)


def storage_tank(pen: Pen, rng: np.random.Generator) -> None:
    """Round white tanks, each with a shadow."""
    spots = [(x, y) for x in (-0.5, 0.0, 0.5) for y in (-0.5, 0.0, 0.5)]
    for spot in rng.permutation(len(spots))[: rng.integers(4, 9)]:
        x, y = spots[spot]
        pen.ellipse(x + 0.05, y + 0.05, 0.19, 0.19, (60.0, 58.0, 56.0))
        pen.ellipse(x, y, 0.19, 0.19, _WHITE)


SHAPES: dict[str, Callable[[Pen, np.random.Generator], None]] = {
    "airport": airport,
    "crop_field": crop_field,
    "lake_or_pond": lake_or_pond,
    "parking_lot_or_garage": parking_lot_or_garage,
    "race_track": race_track,
    "solar_farm": solar_farm,
    "stadium": stadium,
    "storage_tank": storage_tank,
}
