"""The numbers of the table of Digits-5: cells beside the paper's, rows against their reference, named contrasts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gated_domains.evaluation.metrics import METRICS, Metric
from gated_domains.evaluation.statistics import Spread, holm, spread
from gated_domains.reports.against import Against, Key, against
from gated_domains.reports.numbers import Numbers, summarise
from gated_domains.reports.published import Value
from gated_domains.reports.published_digits import CONTRASTS, PAPER_RUNS, REFERENCES, ROWS, TABLE
from gated_domains.reports.reproduced import Cell
from gated_domains.reports.results import RunResult

METRIC: Metric = METRICS["accuracy"]
_WITHIN = 2.0  # standard errors of the difference


@dataclass(frozen=True)
class Paper:
    """A published number in percent, and its standard error."""

    mean: float
    error: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One row less another over the pairs (target, seed) that both have; ``holm`` is corrected over all contrasts."""

    letter: str
    first: str
    second: str
    found: Against
    first_mean: float
    second_mean: float
    targets: int
    holm: float | None = None


@dataclass(frozen=True, kw_only=True)
class DigitsNumbers:
    """The whole table. ``cells`` go by (row, target); ``machine`` says what the runs were made on.

    ``published`` says whether the paper's numbers are of this set-up; ``about`` is what a reader must know first, and
    ``how`` says how rows were trained.
    """

    rows: Sequence[str]
    targets: Mapping[str, str]
    cells: Mapping[tuple[str, str], Cell]
    machine: str
    published: bool = True
    about: str = ""
    how: tuple[str, ...] = ()

    @cached_property
    def runs(self) -> dict[str, list[RunResult]]:
        """The finished runs of each row, under the names of the table."""
        return {
            row: [
                replace(RunResult.from_json(result, f"{row}, {target}"), method=row, label=ROWS[row].label)
                for target in self.targets
                for result in self.cell(row, target).results
            ]
            for row in self.rows
        }

    @cached_property
    def scores(self) -> dict[str, dict[Key, float]]:
        """Accuracy of each row by (target, target, seed)."""
        return {
            row: {(run.hold_out, name, run.seed): score for run in runs for name, score in run.test.items()}
            for row, runs in self.runs.items()
        }

    def cell(self, row: str, target: str) -> Cell:
        """What came of the runs of a cell."""
        return self.cells.get((row, target), Cell())

    def number(self, row: str, target: str) -> Spread | None:
        """Mean and standard deviation over seeds; None where nothing is done."""
        return _spread([score for (_, name, _), score in self.scores[row].items() if name == target])

    def mean(self, row: str) -> Spread | None:
        """The mean over all targets of every seed that has them, then over seeds."""
        by_seed: dict[int, list[float]] = {}
        for (_, _, seed), score in self.scores[row].items():
            by_seed.setdefault(seed, []).append(score)
        return _spread([spread(found).mean for found in by_seed.values() if len(found) == len(self.targets)])

    def paper(self, row: str, target: str | None) -> Paper | None:
        """The published number of a cell, or the mean over the targets here; None where there is none."""
        if not self.published or row not in TABLE:
            return None
        values = TABLE[row]
        if target is not None:
            return Paper(values[target].mean, _error(values[target]), str(values[target]))
        mean = sum(values[name].mean for name in self.targets) / len(self.targets)
        error = math.hypot(*(_error(values[name]) for name in self.targets)) / len(self.targets)
        return Paper(mean, error, f"{mean:.2f}")

    def agreement(self, row: str, target: str | None) -> str:
        """``same``, ``higher`` or ``lower``: ours against the paper's; nothing where it cannot be told.

        The same is: apart by at most two standard errors of their difference.
        """
        ours = self.mean(row) if target is None else self.number(row, target)
        paper = self.paper(row, target)
        if ours is None or ours.std is None or paper is None:
            return ""
        apart = 100 * ours.mean - paper.mean
        if abs(apart) <= _WITHIN * math.hypot(100 * ours.std / ours.n**0.5, paper.error):
            return "same"
        return "higher" if apart > 0 else "lower"

    def seconds(self, row: str) -> float | None:
        """Of one training, the mean over runs."""
        found = _spread([run.seconds for run in self.runs[row]])
        return None if found is None else found.mean

    @cached_property
    def against(self) -> dict[str, Against]:
        """Every row against the reference of its block, corrected by Holm over the rows set against the same one."""
        found: dict[str, Against] = {}
        for reference in dict.fromkeys(REFERENCES.values()):
            rows = [row for row in self.rows if REFERENCES[ROWS[row].block] == reference]
            if reference in self.rows and self.scores[reference]:
                scores = {row: self.scores[row] for row in dict.fromkeys([reference, *rows])}
                found |= against(scores, reference, metric=METRIC)
        return found

    @cached_property
    def comparison(self) -> Numbers | None:
        """All runs as `compare` has them, rows and targets in the order of the table; None where nothing is done."""
        if not any(self.scores.values()):
            return None
        found = summarise([run for runs in self.runs.values() for run in runs], REFERENCES["ours"])
        rows = {row.method: row for row in found.rows}
        return replace(
            found,
            hold_outs=tuple(name for name in self.targets if name in found.hold_outs),
            rows=tuple(rows[name] for name in self.rows if name in rows),
        )

    @cached_property
    def contrasts(self) -> list[Contrast]:
        """Those whose rows share pairs."""
        there = [self._contrast(*named) for named in CONTRASTS if {*named[1:]} <= {*self.rows}]
        found = [contrast for contrast in there if contrast is not None]
        corrected = holm([contrast.found.pair.p_value for contrast in found])
        return [replace(contrast, holm=p) for contrast, p in zip(found, corrected, strict=True)]

    def _contrast(self, letter: str, first: str, second: str) -> Contrast | None:
        """One of them, not corrected yet; None where no pair is shared."""
        mine, theirs = self.scores[first], self.scores[second]
        shared = [key for key in mine if key in theirs]
        if not shared:
            return None
        return Contrast(
            letter=letter,
            first=first,
            second=second,
            found=against({first: mine, second: theirs}, second, metric=METRIC)[first],
            first_mean=spread(mine[key] for key in shared).mean,
            second_mean=spread(theirs[key] for key in shared).mean,
            targets=len({key[0] for key in shared}),
        )


def _error(value: Value) -> float:
    """The standard error of a published mean."""
    return value.std / PAPER_RUNS**0.5


def _spread(values: Sequence[float]) -> Spread | None:
    return spread(values) if values else None
