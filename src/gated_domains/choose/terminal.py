"""The curve over the number of bases in a terminal: letters alone, no colour needed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.choose.num_bases import NumBasesCurve

_NARROWEST = 30
_WIDEST_STEP = 6  # columns from one M to the next; further apart, the eye no longer joins them
_SHARES_OF_TEN = (1, 2, 2.5, 5, 10)  # steps that people count in
# The dots of a Braille letter by column and row, as bits above U+2800: a line eight times as fine as letters.
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


class Glyphs(NamedTuple):
    """The letters that a chart is drawn with."""

    best: str
    mean: str
    spread: str
    axis: str
    tick: str
    corner: str
    floor: str
    mark: str
    plus_minus: str
    fine: bool
    """Whether the line is made of Braille dots, else of full stops."""


UNICODE = Glyphs("◆", "●", "│", "│", "┤", "└", "─", "┬", "±", fine=True)
ASCII = Glyphs("#", "o", ":", "|", "+", "+", "-", "+", "+-", fine=False)


def glyphs_for(encoding: str | None) -> Glyphs:
    """The best letters that text in this encoding can hold."""
    needed = "".join(letters for letters in UNICODE if isinstance(letters, str)) + "⣿"
    try:
        needed.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def draw_num_bases(curve: NumBasesCurve, *, width: int = 80, height: int = 12, glyphs: Glyphs = UNICODE) -> str:
    """Mean score over the number of bases, one standard deviation to each side, the best with a mark of its own.

    No line is wider than ``width``, from 30 on; ``height`` counts the lines between top and floor.
    """
    width = max(width, _NARROWEST)
    scale = _Scale.around(curve, height)
    margin = max(len(text) for text in scale.labels.values())
    room = width - margin - 4
    columns = _columns(curve.candidates, room)
    sheet = [[" "] * (columns[-1] + 2) for _ in range(height)]
    _draw_line(sheet, columns, curve.mean, scale, glyphs)
    for column, mean, std in zip(columns, curve.mean, curve.std, strict=True):
        for row in range(scale.row(mean + std), scale.row(mean - std) + 1):
            sheet[row][column] = glyphs.spread
    for column, mean in zip(columns, curve.mean, strict=True):
        sheet[scale.row(mean)][column] = glyphs.mean
    best = curve.candidates.tolist().index(curve.best)
    sheet[scale.row(curve.mean[best])][columns[best]] = glyphs.best  # last: where many share a column, it must show
    lines = []
    for row, cells in enumerate(sheet):
        label = scale.labels.get(row, "")
        lines.append(f" {label:>{margin}} {glyphs.tick if label else glyphs.axis}{''.join(cells)}".rstrip())
    ticks = _ticks(curve.candidates, columns)
    floor = [glyphs.mark if place in ticks else glyphs.floor for place in range(columns[-1] + 2)]
    lines.append(f" {'':>{margin}} {glyphs.corner}{''.join(floor)}")
    lines.append(f" {'':>{margin}}  {_spelled(ticks)}".rstrip())
    return "\n".join([*lines, *_legend(curve, margin, width, glyphs)])


class _Scale(NamedTuple):
    """Scores -> rows from the top, and the rows that are labelled."""

    low: float
    high: float
    rows: int
    labels: dict[int, str]

    @classmethod
    def around(cls, curve: NumBasesCurve, rows: int) -> _Scale:
        """All of the curve and its spread, with a little room where there is nothing to tell apart."""
        low, high = float((curve.mean - curve.std).min()), float((curve.mean + curve.std).max())
        if high - low <= 1e-9 * max(abs(low), abs(high), 1e-300):
            room = abs(high) * 0.1 or 1.0
            low, high = low - room, high + room
        bare = cls(low, high, rows, {})
        step = _step(high - low, most=max(2, rows // 3))
        places = np.arange(math.ceil(low / step), math.floor(high / step) + 1) * step
        digits = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if _is_quarter(step) else 0))
        return bare._replace(labels={bare.row(place): _number(place, digits) for place in places[::-1]})

    def row(self, score: float) -> int:
        """The row that a score falls into."""
        return min(self.rows - 1, max(0, math.floor((self.high - score) / (self.high - self.low) * self.rows)))

    def fine(self, scores: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
        """Scores in rows from the top, with each row cut into steps."""
        return np.clip((self.high - scores) / (self.high - self.low) * self.rows * steps, 0, self.rows * steps - 1)


def _step(span: float, *, most: int) -> float:
    """The smallest round step of which at most ``most`` fit into the span."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(share * power for share in _SHARES_OF_TEN if share * power * most >= span * (1 - 1e-9))


def _is_quarter(step: float) -> bool:
    return math.isclose(step / 10.0 ** math.floor(math.log10(step)), 2.5)


def _number(value: float, digits: int) -> str:
    if digits > 8 or abs(value) >= 1e7:
        return f"{value:.6g}"
    return f"{value + 0.0:,.{digits}f}"  # + 0.0: no minus before a zero


def _columns(candidates: NDArray[np.int64], room: int) -> list[int]:
    """The column of each candidate, in proportion to M."""
    first, last = int(candidates[0]), int(candidates[-1])
    step = min(_WIDEST_STEP, (room - 4) / max(1, last - first))
    return [2 + round((int(m) - first) * step) for m in candidates]


def _draw_line(
    sheet: list[list[str]], columns: list[int], mean: NDArray[np.float64], scale: _Scale, glyphs: Glyphs
) -> None:
    """From point to point."""
    across, down = (2, 4) if glyphs.fine else (1, 1)
    # Through the middle of each point's column; several looks at each step, so that steep lines have no gaps.
    marks = np.array(columns) * across + (across - 1) / 2
    places = np.linspace(marks[0], marks[-1], max(2, int(marks[-1] - marks[0]) * scale.rows * down + 1))
    heights = scale.fine(np.interp(places, marks, mean), down)
    dots: dict[tuple[int, int], int] = {}
    for x, y in zip(np.rint(places).astype(int), np.floor(heights).astype(int), strict=True):
        cell = (int(y) // down, int(x) // across)
        dots[cell] = dots.get(cell, 0) | (_BRAILLE[int(x) % 2][int(y) % 4] if glyphs.fine else 1)
    for (row, column), bits in dots.items():
        sheet[row][column] = chr(0x2800 + bits) if glyphs.fine else "."


def _ticks(candidates: NDArray[np.int64], columns: list[int]) -> dict[int, str]:
    """Column -> number, of every candidate or, where those would run into each other, of every second, third, ..."""
    for every in range(1, len(columns) + 1):
        ticks = {column: str(m) for column, m in zip(columns[::every], candidates[::every].tolist(), strict=True)}
        line = _spelled(ticks)
        if line.split() == list(ticks.values()):
            return ticks
    raise AssertionError("one number always has room")


def _spelled(ticks: dict[int, str]) -> str:
    """The numbers, each below its tick."""
    line = ""
    for column, text in ticks.items():
        line = line.ljust(column - len(text) // 2) + text
    return line


def _legend(curve: NumBasesCurve, margin: int, width: int, glyphs: Glyphs) -> list[str]:
    """What the marks mean, in one line where there is room."""
    runs = len(curve.scores)
    parts = [
        "number of bases M",
        f"{glyphs.best} best",
        f"{glyphs.mean} {'one run' if runs == 1 else f'mean of {runs} runs'}",
    ]
    if runs > 1:
        parts.append(f"{glyphs.spread} {glyphs.plus_minus} 1 std")
    lead = " " * (margin + 3)
    line = lead + "   ".join(parts)
    return [line] if len(line) <= width else [" " * 3 + part for part in parts]
