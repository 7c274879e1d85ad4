"""What a person is shown of a sample: a small picture, the beginning of a text, the cells of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.inputs import Column, Inputs, Numbers, Rows, Table
from gated_domains.data.sizes import sizes_of
from gated_domains.data.text.inputs import Text

SMALL, LARGE = 28, 48
"""Pixels, at most, of a picture among many and of one that is looked at by itself."""
MOST_LETTERS = 160
MOST_COLUMNS = 12
_MOST_IN_CELL = 40
_TOGETHER = 64  # pictures read at a time: of large ones a thousand would fill the memory
_MIDDLE = (2.0, 98.0)  # percentiles of a band between which it is drawn from black to white


def pictures(inputs: Inputs, rows: Rows, *, side: int) -> NDArray[np.uint8]:
    """(rows, height, width, 1 or 3): the samples as pictures of ``side`` pixels at most; empty for other samples."""
    if inputs.kind not in ("images", "bands") or not len(rows):
        return np.empty(0, np.uint8)
    starts = range(0, len(rows), _TOGETHER)
    if inputs.kind == "images":
        return np.concatenate([_shrunk(inputs.read(rows[start : start + _TOGETHER]), side) for start in starts])
    ends = np.percentile(_of_bands(inputs.read(rows[:_TOGETHER])), _MIDDLE, axis=(0, 1, 2))
    parts = [_of_bands(inputs.read(rows[start : start + _TOGETHER])) for start in starts]
    return np.concatenate([_shrunk(_as_bytes(part, *ends), side) for part in parts])


def texts(inputs: Inputs, rows: Rows, origin: Rows) -> NDArray[Any]:
    """(rows,): a few words for each sample; empty for pictures. ``origin`` has the numbers that people know rows by."""
    if inputs.kind in ("images", "bands"):
        return np.empty(0, np.str_)
    if isinstance(inputs, Text):
        return np.array([_beginning(text) for text in inputs.texts(rows)], np.str_)
    if isinstance(inputs, Table):
        names = columns(inputs)
        said = (
            ", ".join(f"{name} {cell or '-'}" for name, cell in zip(names, cells, strict=True))
            for cells in values(inputs, rows)
        )
        return np.array([_beginning(text) for text in said], np.str_)
    sizes = sizes_of(inputs.take(rows))
    if sizes is None:
        return np.array([f"row {row}" for row in origin], np.str_)
    return np.array([f"row {row}: {size:,} {sizes[0]}" for row, size in zip(origin, sizes[1], strict=True)], np.str_)


def columns(inputs: Inputs) -> NDArray[Any]:
    """The names of the first columns of a table; empty for other samples."""
    chosen = inputs.columns[:MOST_COLUMNS] if isinstance(inputs, Table) else ()
    return np.array([_cut(column.name, _MOST_IN_CELL) for column in chosen], np.str_)


def values(inputs: Inputs, rows: Rows) -> NDArray[Any]:
    """(rows, columns): what stands in them, nothing where it is missing; empty for other samples than of tables."""
    if not isinstance(inputs, Table):
        return np.empty(0, np.str_)
    return np.array([_cells(column, rows) for column in inputs.columns[:MOST_COLUMNS]], np.str_).T


def _cells(column: Column, rows: Rows) -> list[str]:
    if not isinstance(column, Numbers):
        return ["" if code < 0 else _cut(column.levels[code], _MOST_IN_CELL) for code in column.values[rows].tolist()]
    found: Sequence[float] = column.values[rows].tolist()
    if column.dates:
        return ["" if day != day else str(np.datetime64(int(day), "D")) for day in found]
    return ["" if number != number else f"{number:g}" for number in found]


def _shrunk(images: NDArray[Any], side: int) -> NDArray[np.uint8]:
    """Images of at most ``side`` pixels in the same ratio, with one channel or three; small ones stay as they are."""
    from PIL import Image

    height, width, channels = images.shape[1:]
    images = images[..., :3] if channels >= 3 else images[..., :1]
    factor = side / max(height, width)
    if factor >= 1:
        return images
    size = (max(1, round(factor * width)), max(1, round(factor * height)))
    flat = images[..., 0] if images.shape[3] == 1 else images
    made = [np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX)) for image in flat.copy()]
    return np.stack(made).reshape(len(images), size[1], size[0], images.shape[3])


def _of_bands(bands: NDArray[Any]) -> NDArray[Any]:
    """Bands first -> channels last: the first three in reverse, as satellites begin with blue; of fewer the first."""
    chosen = bands[:, 2::-1] if bands.shape[1] >= 3 else bands[:, :1]
    return chosen.transpose(0, 2, 3, 1)


def _as_bytes(values: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.uint8]:
    spread = np.where(high > low, high - low, 1)
    return (255 * ((values - low) / spread).clip(0, 1)).astype(np.uint8)


def _beginning(text: str) -> str:
    return _cut(" ".join(text.split()), MOST_LETTERS)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
