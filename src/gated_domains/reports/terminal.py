"""A comparison in the terminal: the answer, one table where it fits the width, else several, and a short caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gated_domains.reports.columns import Column, columns, first_column
from gated_domains.reports.numbers import Numbers

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

_GAP = 2
_LONGEST_METHOD, _LONGEST_HEADING = (28, 14), 14
_MOST_BLOCKS = 2


@dataclass(frozen=True)
class TerminalTable:
    """Something for rich's ``Console.print``: the answer, the table and its caption, fitted to the console's width."""

    numbers: Numbers
    title: str
    answer: str
    details: Sequence[str]
    caption: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(self.title)
        yield Text(self.answer, style="bold")
        for line in self.details:
            yield Text(line)
        for block in blocks(self.numbers, options.max_width):
            yield Text()
            yield _table(block, grey=[row.worse for row in self.numbers.rows])
        yield Text()
        for line in self.caption:
            yield Text(line, style="dim")


def blocks(numbers: Numbers, width: int) -> list[list[Column]]:
    """The columns as they fit the width, each block with a first column of its own.

    All in one block; else scores above, differences below. Scores of many hold-outs take one or two blocks, or are
    turned, with hold-outs down and methods across. Long names are shortened where that saves a block. Details are
    shown as far as they fit beside the rest.
    """
    return min((_blocks(numbers, width, longest) for longest in _LONGEST_METHOD), key=len)


def _blocks(numbers: Numbers, width: int, longest: int) -> list[list[Column]]:
    methods = first_column(numbers)
    methods = replace(methods, cells=tuple(shortened(methods.cells, longest)))
    found = columns(numbers)
    scores = [column for column in found if column.kind == "hold-out"]
    headings = shortened([column.heading for column in scores], _LONGEST_HEADING)
    across = [replace(column, heading=name) for name, column in zip(headings, scores, strict=True)]
    rest = [
        replace(column, heading=_cut(column.heading, _LONGEST_METHOD[0])) for column in found if column not in scores
    ]
    summary, against, cost = (
        [column for column in rest if column.kind == kind] for kind in ("summary", "against", "cost")
    )
    room = width - _width(methods)
    if _widths([*across, *summary, *against, *cost]) <= room:
        return [[methods, *_with_details([*across, *summary, *against, *cost], rest, room)]]
    beside = max(
        count for count in range(len(summary) + 1) if _widths([*across, *summary[:count]]) <= room or not count
    )
    if beside:
        upper = [[methods, *across, *summary[:beside]]]
        lower = _joined([against, [*summary[beside:], *cost]], room)
    else:
        upper = [[methods, *block] for block in _packed(across, room)]
        upper = upper if len(upper) <= _MOST_BLOCKS else _turned(methods, scores, width)
        together = _widths([*summary, *against]) <= room
        lower = _joined([summary, against, cost] if together else [[*summary, *cost], against], room)
    lower[-1] = _with_details(lower[-1], rest, room)
    return [*upper, *([methods, *block] for block in lower)]


def _joined(groups: list[list[Column]], room: int) -> list[list[Column]]:
    """Groups of columns in as few blocks as they fit; a group is divided only where it is too wide by itself."""
    joined: list[list[Column]] = [[]]
    for group in groups:
        if _widths([*joined[-1], *group]) <= room:
            joined[-1] = [*joined[-1], *group]
        else:
            joined = [*joined, *_filled(group, room)]
    return [block for block in joined if block]


def _with_details(block: list[Column], found: list[Column], room: int) -> list[Column]:
    """A block with as many details at its end as there is room for."""
    for column in found:
        if column.kind == "detail" and _widths([*block, column]) <= room:
            block = [*block, column]
    return block


def _turned(methods: Column, scores: list[Column], width: int) -> list[list[Column]]:
    """Hold-outs down, methods across."""
    nothing = (False,) * len(scores)
    first = Column("held out", tuple(shortened([column.heading for column in scores], _LONGEST_METHOD[0])), nothing)
    turned = [
        Column(method, tuple(column.cells[row] for column in scores), nothing)
        for row, method in enumerate(shortened(methods.cells, _LONGEST_HEADING))
    ]
    return [[first, *block] for block in _packed(turned, width - _width(first))]


def _packed(group: list[Column], room: int) -> list[list[Column]]:
    """As few blocks as can be, about as many columns in each."""
    for count in range(1, len(group) + 1):
        size = -(-len(group) // count)
        packed = [group[start : start + size] for start in range(0, len(group), size)]
        if all(_widths(block) <= room for block in packed):
            return packed
    return [[column] for column in group]


def _filled(group: list[Column], room: int) -> list[list[Column]]:
    """Each block as full as it can be, so that the first holds what matters most."""
    filled: list[list[Column]] = [[]]
    for column in group:
        if filled[-1] and _widths([*filled[-1], column]) > room:
            filled.append([])
        filled[-1].append(column)
    return filled


def _widths(group: list[Column]) -> int:
    return sum(_width(column) + _GAP for column in group)


def _width(column: Column) -> int:
    from rich.cells import cell_len

    return max(cell_len(text) for text in (column.heading, *column.cells))


def _table(block: list[Column], *, grey: Sequence[bool]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, column in enumerate(block):
        table.add_column(Text(column.heading), justify="right" if place else "left", no_wrap=True, overflow="ellipsis")
    for row in range(len(block[0].cells)):
        style = "dim" if len(grey) == len(block[0].cells) and grey[row] else ""
        table.add_row(*(Text(column.cells[row], style="bold" if column.bold[row] else style) for column in block))
    return table


def shortened(names: Sequence[str], most: int) -> list[str]:
    """Names of at most so many cells: long ones lose their middle; those that then look alike get a number."""
    short = [_cut(" ".join(name.split()), most) for name in names]
    seen: dict[str, int] = {}
    for place, name in enumerate(short):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            mark = f"~{seen[name]}"
            short[place] = _cut(name, most - len(mark)) + mark
    return short


def _cut(name: str, most: int) -> str:
    from rich.cells import cell_len

    if cell_len(name) <= most:
        return name
    end = max(1, most // 3)
    tail = name[-end:]
    while cell_len(tail) > end:
        tail = tail[1:]
    head = name
    while cell_len(head) + 1 + cell_len(tail) > most:
        head = head[:-1]
    return f"{head}…{tail}"
