"""Numbers rendered from fonts, in the manner of the SYN numbers: the label is the digit in the middle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits.drawing import (
    SIDE,
    as_bytes,
    grainy,
    painted,
    ramps,
    seen,
    sheets,
    softened,
    standing_out,
    views,
)
from gated_domains.data.digits.glyphs import Face, line
from gated_domains.data.digits.parts import Domain, Sizes, balanced, own_seed
from gated_domains.data.errors import DataError

FACES = (
    Face("DejaVuSans.ttf"),
    Face("DejaVuSans-Oblique.ttf"),
    Face("DejaVuSans-BoldOblique.ttf"),
    Face("DejaVuSansMono.ttf"),
    Face("DejaVuSansMono-Oblique.ttf"),
    Face("DejaVuSerif.ttf"),
    Face("DejaVuSerif-Italic.ttf"),
    Face("DejaVuSerif-BoldItalic.ttf"),
    Face("STIXGeneral.ttf"),
    Face("STIXGeneralItalic.ttf"),
    Face("STIXGeneralBolIta.ttf"),
    Face("STIXGeneral.ttf", zero="\U0001d7f6"),  # typewriter
    Face("cmr10.ttf"),
    Face("cmti10.ttf"),
    Face("cmtt10.ttf"),
)
_CHUNK = 256


def make(seed: int, sizes: Sizes, *, advance: Callable[[int], None]) -> Domain:
    """Rendered numbers, those to test on with a seed of their own."""
    own = own_seed(seed, "numbers")
    rng = np.random.default_rng(own)
    labels = np.concatenate([balanced(sizes.train, rng), balanced(sizes.test, rng)])
    train_seed, test_seed = (int(state) for state in own.generate_state(2))
    train = render(labels[: sizes.train], seed=train_seed, advance=advance)
    test = render(labels[sizes.train :], seed=test_seed, advance=advance)
    return Domain.joined(train, test, labels=labels)


def render(labels: NDArray[np.int64], *, seed: int, advance: Callable[[int], None] | None = None) -> NDArray[np.uint8]:
    """One image (32, 32, 3) a label, of one to three digits in one of ``FACES``, the labelled one in the middle.

    Typeface, neighbours, place, size, rotation, colours, outline and blur vary. The same labels and seed give the same
    images. ``advance`` hears how many more are done.
    """
    if labels.ndim != 1 or ((labels < 0) | (labels > 9)).any():
        raise DataError(f"labels must be digits 0 to 9, one a row, got {np.unique(labels)} of shape {labels.shape}")
    images = np.empty((len(labels), SIDE, SIDE, 3), np.uint8)
    rng = np.random.default_rng(seed)
    for start in range(0, len(labels), _CHUNK):
        part = labels[start : start + _CHUNK]
        images[start : start + _CHUNK] = _drawn(part, rng)
        if advance is not None:
            advance(len(part))
    return images


def _drawn(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
    count = len(labels)
    fill, outlined = _masks(labels, rng)
    paper = rng.uniform(0, 255, (count, 3))
    change = rng.normal(0, 40, (count, 3)) * (rng.random((count, 1)) < 0.4)  # paper of one colour, mostly
    ink = standing_out(paper, by=rng.uniform(50, 120, count), rng=rng)
    edge = standing_out(ink, by=40.0, rng=rng)
    images = sheets(paper) + ramps(rng, count)[..., None] * sheets(change)
    images = painted(painted(images, outlined, edge), fill, ink)
    images = softened(images, rng.uniform(0, 1.2, count))
    return as_bytes(grainy(images, rng.uniform(0, 6, count), rng))


def _masks(labels: NDArray[np.int64], rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """What the digits cover, and what they and their outlines cover: nothing where there is no outline."""
    count = len(labels)
    faces = rng.integers(len(FACES), size=count)
    neighbours = np.where(rng.random((count, 2)) < 0.65, rng.integers(10, size=(count, 2)), -1)
    tracking = rng.uniform(-2, 4, count)
    has_outline = rng.random(count) < 0.4
    view = views(
        height=rng.uniform(15, 25, count),
        aspect=rng.uniform(0.8, 1.2, count),
        degrees=np.clip(rng.normal(0, 9, count), -25, 25),
        slant=rng.uniform(-0.15, 0.15, count),
        shift=rng.uniform(-2.5, 2.5, (count, 2)),
        tilt=np.zeros((count, 2)),
    )
    fill, outlined = np.zeros((2, count, SIDE, SIDE), np.uint8)
    for row, label in enumerate(labels):
        plain, bold = line(FACES[faces[row]], int(label), neighbours=neighbours[row], tracking=float(tracking[row]))
        fill[row] = seen(plain, view[row])
        if has_outline[row]:
            outlined[row] = seen(bold, view[row])
    return fill, outlined
