"""The animals of the miniature of iWildCam as silhouettes, one function each, looking to the right, feet at y = 0.5."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.miniatures.drawing import Pen

Colour = NDArray[np.float32]


def _legs(pen: Pen, places: tuple[float, ...], top: float, width: float, colour: Colour) -> None:
    for x in places:
        pen.box(x - width / 2, top, x + width / 2, 0.5, colour * 0.85)


def peccary(pen: Pen, colour: Colour) -> None:
    """A barrel on short legs, with a snout."""
    _legs(pen, (-0.35, -0.2, 0.2, 0.35), 0.2, 0.09, colour)
    pen.ellipse(0.0, 0.05, 0.55, 0.3, colour)
    pen.ellipse(0.55, 0.05, 0.22, 0.17, colour)
    pen.box(0.68, 0.03, 0.85, 0.15, colour)


def ocelot(pen: Pen, colour: Colour) -> None:
    """Long and low, spotted, with a long tail."""
    _legs(pen, (-0.4, -0.28, 0.25, 0.37), 0.15, 0.07, colour)
    pen.ellipse(0.0, 0.08, 0.52, 0.17, colour)
    pen.ellipse(0.6, -0.06, 0.15, 0.14, colour)
    pen.polygon([(0.5, -0.15), (0.54, -0.28), (0.6, -0.16)], colour)
    pen.polygon([(-0.48, 0.05), (-0.98, -0.25), (-0.94, -0.33), (-0.44, -0.02)], colour)
    for x in np.linspace(-0.4, 0.4, 7):
        pen.ellipse(x, 0.05 + 0.05 * np.sin(9 * x), 0.035, 0.04, colour * 0.4)


def guan(pen: Pen, colour: Colour) -> None:
    """A round bird on thin legs, tail up."""
    _legs(pen, (-0.04, 0.08), 0.25, 0.035, colour)
    pen.ellipse(0.0, 0.1, 0.3, 0.22, colour)
    pen.polygon([(0.15, 0.0), (0.24, -0.35), (0.34, -0.3), (0.28, 0.1)], colour)
    pen.ellipse(0.31, -0.36, 0.09, 0.08, colour)
    pen.polygon([(0.38, -0.39), (0.52, -0.34), (0.38, -0.31)], (200.0, 150.0, 60.0))
    pen.polygon([(-0.2, 0.0), (-0.75, -0.25), (-0.7, 0.02), (-0.24, 0.16)], colour)


def agouti(pen: Pen, colour: Colour) -> None:
    """Small, with a round back and no tail."""
    _legs(pen, (-0.2, 0.16), 0.3, 0.05, colour)
    pen.ellipse(-0.03, 0.24, 0.3, 0.19, colour)
    pen.ellipse(0.27, 0.18, 0.13, 0.1, colour)
    pen.ellipse(0.22, 0.07, 0.04, 0.05, colour)


def deer(pen: Pen, colour: Colour) -> None:
    """High legs, a raised neck and antlers."""
    _legs(pen, (-0.35, -0.25, 0.22, 0.32), 0.0, 0.055, colour)
    pen.ellipse(0.0, -0.1, 0.42, 0.18, colour)
    pen.polygon([(0.25, -0.15), (0.42, -0.55), (0.55, -0.5), (0.42, -0.02)], colour)
    pen.ellipse(0.54, -0.54, 0.16, 0.08, colour)
    for tip in (0.3, 0.42, 0.54):
        pen.polygon([(0.46, -0.58), (tip, -0.92), (tip + 0.04, -0.92), (0.5, -0.58)], colour)


def zebra(pen: Pen, colour: Colour) -> None:
    """A horse with upright stripes."""
    _legs(pen, (-0.35, -0.25, 0.22, 0.32), 0.05, 0.07, colour)
    pen.ellipse(0.0, -0.05, 0.45, 0.22, colour)
    pen.polygon([(0.25, -0.15), (0.42, -0.5), (0.58, -0.45), (0.42, 0.05)], colour)
    pen.ellipse(0.6, -0.45, 0.17, 0.09, colour)
    for x in np.linspace(-0.36, 0.36, 7):
        pen.box(x - 0.02, -0.2, x + 0.02, 0.12, (25.0, 22.0, 20.0))


def elephant(pen: Pen, colour: Colour) -> None:
    """Fills the view: a great body, an ear and a trunk."""
    _legs(pen, (-0.45, -0.2, 0.2, 0.42), 0.0, 0.18, colour)
    pen.ellipse(0.0, -0.2, 0.65, 0.42, colour)
    pen.ellipse(0.65, -0.3, 0.28, 0.28, colour)
    pen.polygon([(0.8, -0.25), (0.96, -0.2), (0.98, 0.4), (0.88, 0.4)], colour)
    pen.ellipse(0.52, -0.28, 0.16, 0.24, colour * 0.75)


class Animal(NamedTuple):
    """How it is drawn, and the colour of its fur."""

    draw: Callable[[Pen, Colour], None]
    fur: tuple[float, float, float]


# The names as biologists write them; "empty" is class 0, as in the original.
ANIMALS: dict[str, Animal | None] = {
    "empty": None,
    "tayassu pecari": Animal(peccary, (45.0, 38.0, 34.0)),
    "leopardus pardalis": Animal(ocelot, (205.0, 165.0, 95.0)),
    "penelope purpurascens": Animal(guan, (60.0, 40.0, 50.0)),
    "dasyprocta punctata": Animal(agouti, (150.0, 90.0, 40.0)),
    "odocoileus virginianus": Animal(deer, (170.0, 110.0, 70.0)),
    "equus quagga": Animal(zebra, (230.0, 225.0, 215.0)),
    "loxodonta africana": Animal(elephant, (120.0, 118.0, 115.0)),
}
