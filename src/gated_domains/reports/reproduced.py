"""What came of reproducing a table: runs by row and data set, and the numbers that stand beside the published ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gated_domains.evaluation.metrics import METRICS
from gated_domains.evaluation.statistics import Spread, spread
from gated_domains.reports.published import BENCHMARKS, DETAILS, MAIN, Benchmark, Value

COUNTS = "test"
"""The kind of score that stands in the main table: what counts for the publisher, on the test part."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A method: whether it was told domains in training, and whether it looks at a batch of test rows at once."""

    label: str
    uses_domains: bool = False
    batchwise: bool = False


@dataclass(frozen=True, kw_only=True)
class Column:
    """A data set in one set-up; ``published`` says whether the paper's numbers are of this one."""

    dataset: str
    title: str
    body: str
    published: bool = True

    @property
    def benchmark(self) -> Benchmark:
        return BENCHMARKS[self.dataset]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The results of the runs of a method on a data set, of as many as were ``asked`` for; ``why`` some are missing."""

    results: tuple[Mapping[str, Any], ...] = ()
    asked: int = 0
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A whole table. ``cells`` go by (row, column); what was not asked for is not there.

    ``machine`` says what the runs were made on.
    """

    rows: Mapping[str, Row]
    columns: Mapping[str, Column]
    cells: Mapping[tuple[str, str], Cell]
    machine: str
    miniature: bool = False
    notes: tuple[str, ...] = ()
    benchmark: str = "WILDS"

    def number(self, row: str, column: str, kind: str = COUNTS) -> Spread | None:
        """Mean and standard deviation over the runs that have such a score; None where none has."""
        cell = self.cells.get((row, column))
        beside = self.columns[column].benchmark.beside
        scores = [score(result, kind, beside=beside) for result in (cell.results if cell else ())]
        known = [value for value in scores if value is not None]
        return spread(known) if known else None

    def paper(self, row: str, column: str, kind: str = COUNTS) -> Value | None:
        """The published number: for what counts the main table's."""
        if not self.columns[column].published:
            return None
        dataset = self.columns[column].dataset
        return MAIN[dataset].get(row) if kind == COUNTS else DETAILS.get(f"{dataset}.{kind}", {}).get(row)

    def kinds(self, column: str) -> dict[str, str]:
        """The kinds of scores that any run on a data set has, and what each is called, what counts first."""
        benchmark = self.columns[column].benchmark
        average, beside = benchmark.average, benchmark.beside
        inside = "in distribution: "
        called = {
            COUNTS: benchmark.statistic,
            "average": average,
            "beside": beside,
            "inside": inside + benchmark.statistic,
            "inside_average": inside + average if average else "",
            "inside_beside": inside + beside if beside else "",
        }
        return {kind: name for kind, name in called.items() if name and self._any(column, kind)}

    def given(self) -> Iterator[tuple[str, str, Cell]]:
        """All cells, row by row."""
        for row in self.rows:
            for column in self.columns:
                if (row, column) in self.cells:
                    yield row, column, self.cells[row, column]

    def percent(self, column: str) -> bool:
        """Whether scores of a data set are shares, which are shown in percent."""
        results = (result for _, name, cell in self.given() if name == column for result in cell.results)
        first = next(results, None)
        return self.columns[column].dataset != "poverty" if first is None else METRICS[first["metric"]].percent

    def _any(self, column: str, kind: str) -> bool:
        return any(self.number(row, column, kind) is not None for row in self.rows)


def score(result: Mapping[str, Any], kind: str, *, beside: str = "") -> float | None:
    """One number of a ``result.json``: ``test``, ``average`` and ``beside``, the same ``inside`` the distribution."""
    where, _, what = kind.rpartition("_")
    inside = "inside" in (where, what)
    parts: Mapping[str, Any] = result.get("also") or {}
    name = next((part for part in ("id_test", "id_val") if part in parts), "") if inside else "test"
    found = (parts.get(name) if inside else result.get("test")) or {}
    if what == "beside":
        found = result.get("all_metrics", {}).get(name, {}).get(beside) or {}
    if what in ("beside", "average"):
        value = found.get("overall")
    else:
        value = next(iter((found.get("by_domain") or {}).values()), None)
    return None if value is None else float(value)
