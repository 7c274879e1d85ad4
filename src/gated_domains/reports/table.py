"""The table of a comparison: for the terminal, for a page, for machines."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.evaluation.metrics import metric_named
from gated_domains.reports.captions import attributed_notes, caption, headline, short_caption, verdict
from gated_domains.reports.renderers import as_json, as_latex, as_markdown, methods_csv, runs_csv, write_texts
from gated_domains.reports.summary import MethodNumbers, Numbers, summarise
from gated_domains.reports.terminal_table import TerminalTable
from gated_domains.runs.collection import RunCollection
from gated_domains.runs.result import RunResult

_WIDTH = 100
Say = Callable[[str], None]


class Comparison:
    """Methods (rows) against hold-outs (columns), each in the order first met in ``results``.

    A cell is the mean over the held-out domains of a hold-out, then mean ± std over seeds. ``mean`` and ``worst`` are
    taken for each seed over all held-out domains, then over seeds. Each method is compared with ``baseline`` on the
    same (held-out domain, seed): on a new domain, and on these domains. ``metric`` names another metric than the one
    that the runs were scored and selected by. ``margin`` is the size of a negligible difference as printed: 0.5 by
    default for scores in percent, none for others. ``machine`` says what times were measured on.

    Printed, it shows the answer and the table. ``gated_domains.compare`` makes one.

    Examples
    --------
    >>> from gated_domains import compare
    >>> chosen = {"methods": "gdu,erm", "hold_out": "domain 1", "seeds": 1, "training": {"epochs": 1}}
    >>> comparison = compare("synthetic", **chosen, workers=1, progress=False)
    >>> comparison
    <Comparison of 2 methods on 1 hold-outs of synthetic>
    >>> comparison.table("markdown").splitlines()[0]
    '# synthetic: accuracy on held-out domains'
    """

    def __init__(
        self,
        results: Sequence[RunResult],
        baseline: str = "erm",
        *,
        metric: str | None = None,
        margin: float | None = None,
        machine: str | None = None,
        runs: Sequence[tuple[Path, RunResult]] | None = None,
        add_insights: Callable[[Say], Sequence[str]] | None = None,
        folder: Path | None = None,
        tracked: Sequence[str] = (),
        failure: BaseException | None = None,
    ) -> None:
        self.folder, self.tracked, self.failure = folder, tuple(tracked), failure
        self._runs = runs
        self.insight_notes: tuple[str, ...] = ()
        self._add_insights, self._margin = add_insights, margin
        if metric is not None:
            results = [result.under(metric_named(metric)) for result in results]
        self.numbers: Numbers = summarise(results, baseline, margin=margin)
        self.machine = machine

    @cached_property
    def runs(self) -> RunCollection | None:
        """The folders of the runs; None where results alone were given."""
        return None if self._runs is None else RunCollection(self._runs)

    @cached_property
    def notes(self) -> list[str]:
        """Notes on the data and the runs."""
        return attributed_notes(self.numbers)

    @cached_property
    def caption(self) -> list[str]:
        """Protocol, tests and notes."""
        return caption(self.numbers, machine=self.machine, notes=self.notes)

    @property
    def title(self) -> str:
        oracle = ", selected by ORACLE" * self.numbers.oracle
        return f"{self.numbers.data}: {self.numbers.metric.label} on held-out domains{oracle}"

    def __repr__(self) -> str:
        numbers = self.numbers
        return f"<Comparison of {len(numbers.rows)} methods on {len(numbers.hold_outs)} hold-outs of {numbers.data}>"

    def __str__(self) -> str:
        text = io.StringIO()
        if self.failure is not None:
            print(f"incomplete: {self.failure or 'interrupted'}\n", file=text)
        Console(file=text, width=_WIDTH, color_system=None).print(self.rich())
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        console = Console(file=io.StringIO(), width=_WIDTH, record=True)
        console.print(self.rich())
        return console.export_html(inline_styles=True, code_format='<pre style="line-height:1.3">{code}</pre>')

    def table(self, form: str = "markdown") -> str:
        """The table as text: ``markdown``, ``latex``, ``csv`` or ``json``."""
        forms = {"markdown": self.markdown, "latex": self.latex, "csv": self.csv, "json": self.json}
        if form not in forms:
            raise DataError(f"there is no table form {form!r}{did_you_mean(form, forms)}")
        return forms[form]()

    def to_frame(self) -> Any:
        """The table as a pandas data frame: a row per method, unrounded."""
        try:
            import pandas
        except ImportError as error:
            raise DataError("pandas is not installed; pip install pandas, or use table('csv')") from error
        return pandas.read_csv(io.StringIO(self.csv()))

    @property
    def verdicts(self) -> dict[str, str]:
        """By label, how each method compares with the baseline on a new domain: better, worse, practically equal,
        undecided, or "no verdict" where too few domains are held out."""
        compared = [(row.label, row.against) for row in self.numbers.rows if row.against is not None]
        return {label: against.verdict or "no verdict" for label, against in compared}

    @property
    def choice(self) -> MethodNumbers:
        """The method to take: of those better than the baseline on a new domain the best, else the baseline."""
        better = [row for row in self.numbers.rows if row.against is not None and row.against.verdict == "better"]
        gain = self.numbers.metric.as_gain
        best_first = sorted(better, key=lambda row: -gain(row.mean.mean) if row.mean is not None else 0.0)
        return next(iter(best_first), self.numbers.baseline or self.numbers.rows[0])

    def save_report(self, path: str | os.PathLike[str], *, say: Say = lambda line: None) -> list[Path]:
        """Write the page of the runs, with every figure and table in a folder beside it; all paths, the page first.

        Gated runs are examined first, which takes some seconds each; ``say`` is called with progress messages.
        """
        if self.runs is None:
            raise DataError("this comparison was made of results alone, without the folders of their runs")
        from gated_domains.reports.page import write_page

        self.insight_notes = tuple(self._add_insights(say)) if self._add_insights is not None else ()
        baseline = "erm" if self.numbers.baseline is None else self.numbers.baseline.method
        return write_page(self.runs, path, baseline=baseline, margin=self._margin, machine=self.machine, say=say)

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
        short = short_caption(self.numbers, notes=len(self.notes))
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
        return methods_csv(self.numbers)

    def runs_csv(self) -> str:
        """One line a run, unrounded."""
        return runs_csv(self.numbers)

    def json(self) -> str:
        """Everything, unrounded."""
        return as_json(
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
