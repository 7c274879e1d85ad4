"""The table of Digits-5 beside the published one: for the terminal, for a page, for machines."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gated_domains.evaluation.statistics import Spread
from gated_domains.reports.digits_numbers import DigitsNumbers
from gated_domains.reports.digits_words import MARKS, caption, contrast_sentences, difference, percent
from gated_domains.reports.published_digits import BLOCKS, REFERENCES, ROWS
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
from gated_domains.reports.reproduced_words import Reasons
from gated_domains.reports.terminal_table import ABSENT, p_text, time_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

FORMAT = 2
_FIELDS = (
    "row", "target", "seed", "settings", "accuracy", "validation", "epochs", "best_epoch", "stopped", "seconds",
    "machine", "run", "data", "selection", "protocol",
)  # fmt: skip


class DigitsTable:
    """Methods (rows, in blocks) against held-out domains (columns), the published number in every cell that has one."""

    def __init__(self, numbers: DigitsNumbers) -> None:
        self.numbers = numbers
        self.reasons = Reasons(cell.why for cell in numbers.cells.values() if cell.why)
        self.caption = caption(numbers, self.reasons)
        self.contrasts = contrast_sentences(numbers)

    @property
    def title(self) -> str:
        if self.numbers.published:
            return "Digits-5, each domain held out in turn: ours / the paper's"
        return f"Digits, held out in turn: {self.numbers.about.partition(':')[0] or 'ours'}"

    def block(self, name: str) -> Lines:
        """The rows of one block as text, the heading first; the heading alone where none was asked for."""
        numbers = self.numbers
        reference = ROWS[REFERENCES[name]].label
        heading = ["method", *numbers.targets.values(), "mean", "n", "time", f"to {reference}", "p (Holm)", "verdict"]
        rows = [row for row in numbers.rows if ROWS[row].block == name]
        return [heading, *(self._line(row) for row in rows)]

    def markdown(self) -> str:
        """The whole page: a table a block, the contrasts, the caption."""
        parts = [f"# {escaped(self.title)}"]
        for name, title in self._blocks():
            parts += [f"## {title}", lines_markdown(self.block(name))]
        if self.contrasts:
            parts += ["## Contrasts", "\n".join(f"- {escaped(line)}" for line in self.contrasts)]
        parts += ["## How to read it", "\n".join(f"- {escaped(line)}" for line in self.caption)]
        return "\n\n".join(parts) + "\n"

    def latex(self) -> str:
        """A table a block, for a paper; the contrasts and the caption below the last."""
        *first, (name, title) = self._blocks()
        parts = [lines_latex(self.block(one), title=f"{self.title}. {words}") for one, words in first]
        notes = [*self.contrasts, *self.caption]
        return latex_page([*parts, lines_latex(self.block(name), title=f"{self.title}. {title}", notes=notes)])

    def csv(self) -> str:
        """One line a run, unrounded."""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=_FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._runs())
        return text.getvalue()

    def json(self) -> str:
        """Everything, unrounded."""
        numbers = self.numbers
        stored = {
            "format": FORMAT,
            "published": numbers.published,
            "about": numbers.about,
            "machine": numbers.machine,
            "targets": dict(numbers.targets),
            "rows": {row: self._row_fields(row) for row in numbers.rows},
            "contrasts": [{**asdict(contrast), "found": contrast.found.as_json()} for contrast in numbers.contrasts],
            "sentences": self.contrasts,
            "runs": self._runs(),
            "caption": self.caption,
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

        yield Text(self.title, style="bold")
        for line in self.contrasts:
            yield Text(line)
        for name, title in self._blocks():
            yield Text(f"\n{title}", style="bold")
            for block in blocks(self.block(name), options.max_width):
                yield lines_rich(block)
        yield Text()
        for line in self.caption:
            yield Text(line, style="dim")

    def _blocks(self) -> list[tuple[str, str]]:
        """The blocks that have rows here, with their titles."""
        there = {ROWS[row].block for row in self.numbers.rows}
        return [(name, title) for name, title in BLOCKS.items() if name in there]

    def _line(self, row: str) -> list[str]:
        numbers, found = self.numbers, self.numbers.against.get(row)
        seconds = numbers.seconds(row)
        return [
            ROWS[row].label,
            *(self._cell(row, target) for target in numbers.targets),
            self._beside(row, None, shown(numbers.mean(row))),
            self._counts(row),
            ABSENT if seconds is None else time_text(seconds),
            difference(found.new_domain if found else None),
            p_text(found.holm if found else None),
            (found.verdict if found else None) or ABSENT,
        ]

    def _cell(self, row: str, target: str) -> str:
        """``98.10 (0.20) / 97.98 (0.34) ≈``; a number in brackets says why runs are missing."""
        cell, number = self.numbers.cell(row, target), self.numbers.number(row, target)
        reason = f" [{self.reasons.number(cell.why)}]" if cell.why else ""
        ours = f"n/a{reason}" if number is None and reason else shown(number) + reason
        return self._beside(row, target, ours)

    def _beside(self, row: str, target: str | None, ours: str) -> str:
        paper = self.numbers.paper(row, target)
        mark = MARKS[self.numbers.agreement(row, target)]
        return ours if paper is None else f"{ours} / {paper.text}{' ' * bool(mark)}{mark}"

    def _counts(self, row: str) -> str:
        counts = [len(self.numbers.cell(row, target).results) for target in self.numbers.targets]
        return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)}-{max(counts)}"

    def _runs(self) -> list[dict[str, Any]]:
        """One mapping a run."""
        return [
            {
                "row": row,
                "target": run.hold_out,
                "seed": run.seed,
                "settings": self.numbers.settings.get((row, run.hold_out), ""),
                "accuracy": next(iter(run.test.values()), None),
                "validation": run.validation_overall,
                "epochs": run.epochs,
                "best_epoch": run.best_epoch,
                "stopped": run.stopped,
                "seconds": run.seconds,
                "machine": self.numbers.made_on.get((row, run.hold_out, run.seed), ""),
                "run": run.run,
                "data": run.data,
                "selection": run.selection,
                "protocol": run.protocol,
            }
            for row, runs in self.numbers.runs.items()
            for run in runs
        ]

    def _row_fields(self, row: str) -> dict[str, Any]:
        numbers, found = self.numbers, self.numbers.against.get(row)
        return {
            "label": ROWS[row].label,
            "block": ROWS[row].block,
            "reference": REFERENCES[ROWS[row].block],
            "cells": {target: self._cell_fields(row, target) for target in numbers.targets},
            "mean": self._cell_fields(row, None),
            "seconds": numbers.seconds(row),
            "against": None if found is None else found.as_json(),
        }

    def _cell_fields(self, row: str, target: str | None) -> dict[str, Any]:
        numbers = self.numbers
        number = numbers.mean(row) if target is None else numbers.number(row, target)
        paper = numbers.paper(row, target)
        cell = None if target is None else numbers.cell(row, target)
        return {
            "mean": None if number is None else number.mean,
            "std": None if number is None else number.std,
            "n": 0 if number is None else number.n,
            "published_percent": None if paper is None else paper.mean,
            "agreement": numbers.agreement(row, target),
            **({} if cell is None else {"asked": cell.asked, "why": cell.why}),
        }


def shown(number: Spread | None) -> str:
    """``98.10 (0.20)``; without the bracket for a single run."""
    if number is None:
        return ABSENT
    mean = percent(number.mean)
    return mean if number.std is None else f"{mean} ({percent(number.std)})"
