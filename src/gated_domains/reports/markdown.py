"""A comparison as Markdown: a title, the answer, the table, how it was made."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gated_domains.reports.columns import Column, columns, first_column
from gated_domains.reports.numbers import Numbers


def as_markdown(numbers: Numbers, *, title: str, verdict: str, caption: Sequence[str]) -> str:
    """The whole page."""
    methods, rest = first_column(numbers), columns(numbers)
    lines = [
        _row([escaped(methods.heading), *(escaped(column.heading) for column in rest)]),
        _row(["---", *("---:" for _ in rest)]),
        *(_row([_cell(column, row) for column in (methods, *rest)]) for row in range(len(numbers.rows))),
    ]
    said = "\n".join(f"- {escaped(line)}" for line in verdict.splitlines())
    how = "\n".join(f"- {escaped(line)}" for line in caption)
    return f"# {escaped(title)}\n\n{said}\n\n" + "\n".join(lines) + f"\n\nHow to read it:\n\n{how}\n"


# Inside a word an underscore is no emphasis, before a number < opens no tag: there a backslash is only hard to read.
_MEANS_SOMETHING = re.compile(r"[\\|*`\[\]]|<(?=[A-Za-z/!?])|(?<![^\W_])_|_(?![^\W_])")


def escaped(text: str) -> str:
    """Text on one line that Markdown shows letter by letter, in a table too."""
    return _MEANS_SOMETHING.sub(lambda found: "\\" + found[0], " ".join(text.split()))


def _cell(column: Column, row: int) -> str:
    text = escaped(column.cells[row])
    return f"**{text}**" if column.bold[row] else text


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
