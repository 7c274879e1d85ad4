"""The table of a comparison: for the terminal, for a page, for machines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gated_domains.evaluation.metrics import metric_named
from gated_domains.reports import machine as for_machines
from gated_domains.reports import words
from gated_domains.reports.latex import as_latex
from gated_domains.reports.lines import write_texts
from gated_domains.reports.markdown import as_markdown
from gated_domains.reports.numbers import Numbers, summarise
from gated_domains.reports.terminal import TerminalTable
from gated_domains.reports.verdict import headline, verdict
from gated_domains.runs.result import RunResult


class Comparison:
    """Methods (rows) against hold-outs (columns), each in the order first met in ``results``.

    A cell is the mean over the held-out domains of a hold-out, then mean ± std over seeds. ``mean`` and ``worst`` are
    taken for each seed over all held-out domains, then over seeds. Each method is compared with ``baseline`` on the
    same (held-out domain, seed): on a new domain, and on these domains. ``metric`` names another metric than the one
    that the runs were scored and selected by. ``margin`` is the size of a negligible difference as printed: 0.5 by
    default for scores in percent, none for others. ``machine`` says what times were measured on.
    """

    def __init__(
        self,
        results: Sequence[RunResult],
        baseline: str = "erm",
        *,
        metric: str | None = None,
        margin: float | None = None,
        machine: str | None = None,
    ) -> None:
        if metric is not None:
            results = [result.under(metric_named(metric)) for result in results]
        self.numbers: Numbers = summarise(results, baseline, margin=margin)
        self.machine = machine
        self.notes: list[str] = words.attributed_notes(self.numbers)
        self.caption: list[str] = words.caption(self.numbers, machine=machine, notes=self.notes)

    @property
    def title(self) -> str:
        oracle = ", selected by ORACLE" * self.numbers.oracle
        return f"{self.numbers.data}: {self.numbers.metric.label} on held-out domains{oracle}"

    def headline(self) -> str:
        """The answer in a sentence or two."""
        return headline(self.numbers)

    def verdict(self) -> str:
        """A sentence for each method against the baseline, one per line."""
        return verdict(self.numbers)

    def details(self) -> list[str]:
        """The sentences of the verdict, unless the headline is all there is to say."""
        lines = self.verdict().splitlines()
        return [] if lines == [self.headline()] else lines

    def rich(self, *, explain: bool = False) -> TerminalTable:
        """For rich's ``Console.print``: answer, table and a short caption; the whole caption with ``explain``."""
        short = words.short_caption(self.numbers, notes=len(self.notes))
        return TerminalTable(
            self.numbers, self.title, self.headline(), self.details(), self.caption if explain else short
        )

    def markdown(self) -> str:
        return as_markdown(self.numbers, title=self.title, verdict=self.verdict(), caption=self.caption)

    def latex(self) -> str:
        """For a paper, with booktabs."""
        return as_latex(self.numbers, self.title, self.caption)

    def csv(self) -> str:
        """One line a method, unrounded."""
        return for_machines.methods_csv(self.numbers)

    def runs_csv(self) -> str:
        """One line a run, unrounded."""
        return for_machines.runs_csv(self.numbers)

    def json(self) -> str:
        """Everything, unrounded."""
        return for_machines.as_json(
            self.numbers, verdict=self.verdict(), caption=self.caption, notes=self.notes, machine=self.machine
        )

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write ``table.md``, ``.tex``, ``.csv``, ``.json`` and ``runs.csv``, each whole or not at all; their paths."""
        texts = {
            "table.md": self.markdown(),
            "table.tex": self.latex(),
            "table.csv": self.csv(),
            "runs.csv": self.runs_csv(),
            "table.json": self.json(),
        }
        return write_texts(folder, texts)
