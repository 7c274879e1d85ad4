"""A reproduced table beside the published one: for the terminal, for a page, for machines."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gated_domains.evaluation.statistics import Spread
from gated_domains.reports.published import Value
from gated_domains.reports.renderers import (
    Lines,
    blocks,
    escaped,
    latex_page,
    lines_latex,
    lines_markdown,
    lines_rich,
    write_texts,
)
from gated_domains.reports.reproduced import COUNTS, Cell, Reproduction
from gated_domains.reports.reproduced_words import Reasons, caption
from gated_domains.reports.terminal_table import ABSENT, BATCH_MARK, DOMAINS_MARK

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

FORMAT = 1


class PublishedTable:
    """Methods (rows) against data sets (columns), our mean (std) and the published one in every cell."""

    def __init__(self, found: Reproduction) -> None:
        self.found = found
        self.reasons = Reasons(cell.why for _, _, cell in found.given() if cell.why)
        self.caption = caption(found, self.reasons)

    @property
    def title(self) -> str:
        made_up = " on MINIATURES" * self.found.miniature
        return f"{self.found.benchmark}{made_up}: ours / the paper's"

    def main(self) -> Lines:
        """The main table as text, its heading first."""
        found = self.found
        counts = [(column.title, column.benchmark) for column in found.columns.values()]
        heading = ["method", *(f"{title}\n{one.statistic}{' ' * bool(one.slip)}{one.slip}" for title, one in counts)]
        return [
            heading,
            *([self._label(row), *(self._cell(row, name) for name in found.columns)] for row in found.rows),
        ]

    def details(self, column: str) -> Lines:
        """All kinds of scores on one data set as text; nothing but the heading where there is one kind only."""
        found = self.found
        kinds = found.kinds(column)
        heading = ["method", *(name.replace(": ", ":\n") for name in kinds.values())]
        if len(kinds) < 2:
            return [heading]
        rows = [row for row in found.rows if (row, column) in found.cells]
        return [heading, *([self._label(row), *(self._cell(row, column, kind) for kind in kinds)] for row in rows)]

    def markdown(self) -> str:
        """The whole page: the main table, the caption, a table for each data set."""
        found = self.found
        parts = [f"# {escaped(self.title)}", lines_markdown(self.main())]
        parts.append("\n".join(f"- {escaped(line)}" for line in self.caption))
        for name, column in found.columns.items():
            lines = self.details(name)
            if len(lines) > 1:
                parts += [f"## {escaped(column.title)}: all scores", lines_markdown(lines)]
        return "\n\n".join(parts) + "\n"

    def latex(self) -> str:
        """The main table with its caption, then one for each data set, for a paper."""
        parts = [lines_latex(self.main(), title=self.title, notes=self.caption)]
        for name, column in self.found.columns.items():
            lines = self.details(name)
            if len(lines) > 1:
                parts.append(lines_latex(lines, title=f"{column.title}: all scores"))
        return latex_page(parts)

    def csv(self) -> str:
        """One line a score, unrounded: shares are not percent, published numbers are as printed."""
        text = io.StringIO()
        lines = self._flat()
        writer = csv.DictWriter(text, fieldnames=list(lines[0]) if lines else ["dataset"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return text.getvalue()

    def json(self) -> str:
        """Everything, unrounded, with the result of every run."""
        found = self.found
        stored = {
            "format": FORMAT,
            "benchmark": found.benchmark,
            "miniature": found.miniature,
            "machine": found.machine,
            "rows": {name: asdict(row) for name, row in found.rows.items()},
            "columns": {name: asdict(column) for name, column in found.columns.items()},
            "scores": self._flat(),
            "runs": [
                {"row": row, "column": column, **result}
                for row, column, cell in found.given()
                for result in cell.results
            ],
            "caption": list(self.caption),
        }
        return json.dumps(stored, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write ``table.md``, ``.tex``, ``.csv`` and ``.json``, each whole or not at all; their paths."""
        texts = {
            "table.md": self.markdown(),
            "table.tex": self.latex(),
            "table.csv": self.csv(),
            "table.json": self.json(),
        }
        return write_texts(folder, texts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        # What people look for first comes last: there the eye rests when a long output has passed.
        for name, column in self.found.columns.items():
            lines = self.details(name)
            if len(lines) > 1:
                yield Text(f"{column.title}: all scores", style="bold")
                for block in blocks(lines, options.max_width):
                    yield lines_rich(block)
                    yield Text()
        yield Text(self.title, style="bold")
        for block in blocks(self.main(), options.max_width):
            yield Text()
            yield lines_rich(block)
        yield Text()
        for line in self.caption:
            yield Text(line, style="dim")

    def _label(self, row: str) -> str:
        told = self.found.rows[row]
        return told.label + f" {DOMAINS_MARK}" * told.uses_domains + f" {BATCH_MARK}" * told.batchwise

    def _cell(self, row: str, column: str, kind: str = COUNTS) -> str:
        """``71.2 (1.3) / 70.3 (6.4)``; a mark refers to what is wrong with a published number or a missing run."""
        cell = self.found.cells.get((row, column))
        ours = self._ours(cell, self.found.number(row, column, kind), self.found.percent(column))
        paper = self.found.paper(row, column, kind)
        return ours if paper is None else f"{ours} / {_published(paper)}"

    def _ours(self, cell: Cell | None, number: Spread | None, percent: bool) -> str:
        if cell is None:
            return ABSENT
        reason = f" [{self.reasons.number(cell.why)}]" if cell.why else ""
        if number is None:
            return f"n/a{reason}" if cell.why else ABSENT
        return shown(number, percent=percent) + reason

    def _flat(self) -> list[dict[str, Any]]:
        """One mapping a score."""
        found = self.found
        lines = []
        for row, column, cell in found.given():
            about = found.columns[column]
            kinds = found.kinds(column) or {COUNTS: about.benchmark.statistic}
            for kind, metric in kinds.items():
                number, paper = found.number(row, column, kind), found.paper(row, column, kind)
                lines.append(
                    {
                        "dataset": about.dataset,
                        "set_up": column,
                        "row": row,
                        "method": found.rows[row].label,
                        "kind": kind,
                        "metric": metric,
                        "mean": None if number is None else number.mean,
                        "std": None if number is None else number.std,
                        "n": 0 if number is None else number.n,
                        "asked": cell.asked,
                        "why": cell.why,
                        **_published_fields(paper),
                    }
                )
        return lines


def shown(number: Spread, *, percent: bool) -> str:
    """``71.2 (1.3)``, or ``0.45 (0.06)`` where it is no share; without the bracket for a single run."""
    scale, digits = (100.0, 1) if percent else (1.0, 2)
    mean = f"{scale * number.mean:.{digits}f}"
    return mean if number.std is None else f"{mean} ({scale * number.std:.{digits}f})"


def _published(value: Value) -> str:
    right = f", right: {value.right}" if value.right is not None else ""
    return f"{value}{value.slip}{right}"


def _published_fields(value: Value | None) -> dict[str, Any]:
    right = None if value is None else value.right
    return {
        "published_mean": None if value is None else value.mean,
        "published_std": None if value is None else value.std,
        "published_slip": "" if value is None else value.slip,
        "right_mean": None if right is None else right.mean,
        "right_std": None if right is None else right.std,
    }
