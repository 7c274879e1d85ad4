"""Where pictures go: a path whose suffix says how, and a figure written there whole."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from gated_domains.data.errors import DataError, written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


def picture_path(path: str | os.PathLike[str]) -> Path:
    """A path that a picture can be written to, by its suffix."""
    path = Path(path)
    if path.suffix.lower() not in FIGURE_SUFFIXES:
        raise DataError(f"{path}: a picture is written as {', '.join(FIGURE_SUFFIXES)}, by its suffix")
    return path


def write_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as its suffix says, whole or not at all."""
    path = picture_path(path)
    # Drawn in memory first: the writers of pictures keep to themselves why a disk refused them.
    drawn = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a name in a script that the font lacks
        figure.savefig(drawn, format=path.suffix.lower().removeprefix("."), dpi=150)
    with written_whole(path) as draft:
        draft.write_bytes(drawn.getvalue())
    return path
