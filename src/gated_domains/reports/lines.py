"""Tables as lines of text, their heading first: for a page, and for a terminal of any width."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gated_domains.data.errors import written_whole
from gated_domains.reports.markdown import escaped

if TYPE_CHECKING:
    from rich.table import Table

Lines = list[list[str]]
_GAP = 2


def blocks(lines: Lines, width: int) -> list[Lines]:
    """The table cut into as few tables as fit the width, each with the first column."""
    sizes = [max(_width(line[place]) for line in lines) for place in range(len(lines[0]))]
    cut: list[list[int]] = [[]]
    for place in range(1, len(sizes)):
        taken = sizes[0] + sum(sizes[other] + _GAP for other in cut[-1])
        if cut[-1] and taken + _GAP + sizes[place] > width:
            cut.append([])
        cut[-1].append(place)
    return [[[line[0], *(line[place] for place in chosen)] for line in lines] for chosen in cut]


def lines_markdown(lines: Lines) -> str:
    """For a page; a line break in a cell becomes a comma."""

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(escaped(cell.replace(":\n", ": ").replace("\n", ", ")) for cell in cells) + " |"

    heading, *rest = lines
    return "\n".join([row(heading), "|" + "---|" + "---:|" * (len(heading) - 1), *map(row, rest)])


def lines_rich(lines: Lines) -> Table:
    """For rich's ``Console.print``."""
    from rich.table import Table
    from rich.text import Text

    heading, *rest = lines
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, text in enumerate(heading):
        table.add_column(Text(text), justify="right" if place else "left", no_wrap=True, overflow="ellipsis")
    for line in rest:
        table.add_row(*map(Text, line))
    return table


def _width(text: str) -> int:
    from rich.cells import cell_len

    return max(cell_len(line) for line in text.split("\n"))


def write_texts(folder: str | os.PathLike[str], texts: Mapping[str, str]) -> list[Path]:
    """Write files by name, each whole or not at all; their paths."""
    for name, text in texts.items():
        with written_whole(Path(folder, name)) as draft:
            draft.write_text(text, encoding="utf-8", newline="")
    return [Path(folder, name) for name in texts]
