"""Digits of the typefaces that matplotlib brings, as masks, set in lines of up to three."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError

DIGIT_HEIGHT = 32  # of a digit in its cell and in a line
CELL = 64  # height and width of a cell: room for slanted digits, for the 4 of an italic, and for outlines
LINE_WIDTH = 160  # three of the widest digits with some space between them
OUTLINE = 3


@dataclass(frozen=True)
class Face:
    """A typeface: a file among matplotlib's fonts, and where in it the ten digits start.

    STIX has digits of several faces in one file: the sans-serif and typewriter ones of mathematics lie far from "0".
    """

    file: str
    zero: str = "0"


@dataclass(frozen=True, eq=False)
class Glyphs:
    """The ten digits of a face as masks 0 to 255 of shape (10, CELL, CELL), plain and outlined, and their widths."""

    plain: NDArray[np.uint8]
    outlined: NDArray[np.uint8]
    widths: NDArray[np.float64]


@cache
def glyphs(face: Face) -> Glyphs:
    """The digits of a face, drawn so that a zero is ``DIGIT_HEIGHT`` high."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / face.file
    if not path.is_file():
        raise DataError(f"matplotlib's font {path} is missing; install matplotlib anew (pip install --force-reinstall)")
    # Without the basic layout the picture would depend on whether the raqm library is installed.
    basic = ImageFont.Layout.BASIC
    _, top, _, bottom = ImageFont.truetype(str(path), 100, layout_engine=basic).getbbox(face.zero)
    font = ImageFont.truetype(str(path), round(100 * DIGIT_HEIGHT / (bottom - top)), layout_engine=basic)
    characters = [chr(ord(face.zero) + digit) for digit in range(10)]

    def mask(character: str, stroke: int) -> NDArray[np.uint8]:
        cell = Image.new("L", (CELL, CELL))
        baseline = (CELL + DIGIT_HEIGHT) / 2
        pen = ImageDraw.Draw(cell)
        pen.text((CELL / 2, baseline), character, fill=255, font=font, anchor="ms", stroke_width=stroke)
        return np.asarray(cell)

    return Glyphs(
        plain=np.stack([mask(character, 0) for character in characters]),
        outlined=np.stack([mask(character, OUTLINE) for character in characters]),
        widths=np.array([font.getlength(character) for character in characters]),
    )


def line(
    face: Face, digit: int, *, neighbours: NDArray[np.int64], tracking: float
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Masks (CELL, LINE_WIDTH), plain and outlined, of a digit in the middle and one to its left and right.

    A neighbour of -1 is a blank. ``tracking`` is the space between digits beyond what the face asks for.
    """
    drawn = glyphs(face)
    plain = np.zeros((CELL, LINE_WIDTH), np.uint8)
    outlined = np.zeros_like(plain)
    left, right = (int(neighbour) for neighbour in neighbours)
    for side, one in ((-1, left), (0, digit), (1, right)):
        if one < 0:
            continue
        step = (drawn.widths[digit] + drawn.widths[one]) / 2 + tracking
        start = round((LINE_WIDTH - CELL) / 2 + side * step)
        for whole, masks in ((plain, drawn.plain), (outlined, drawn.outlined)):
            place = whole[:, start : start + CELL]
            np.maximum(place, masks[one], out=place)
    return plain, outlined
