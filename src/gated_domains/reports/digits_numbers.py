"""The numbers of the table of Digits-5: cells beside the paper's, rows against their reference, named contrasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from gated_domains.evaluation.metrics import METRICS, Metric
from gated_domains.evaluation.statistics import (
    SIGNIFICANT,
    Effect,
    Spread,
    equivalent,
    spread,
    welch_effect,
)
from gated_domains.reports.published_digits import CONTRASTS, PAPER_RUNS, REFERENCES, ROWS, TABLE
from gated_domains.reports.reproduced import Cell
from gated_domains.reports.summary import Against, Key, Numbers, compare_methods, judged, summarise
from gated_domains.runs.result import RunResult

METRIC: Metric = METRICS["accuracy"]
MARGIN = METRIC.margin()
MIN_SEEDS = 5
"""With fewer runs of ours it is undecided whether a published number is reproduced."""
_MARGIN, _WIDE_MARGIN = 1.0, 2.0  # of a published number, in points
_WIDE_FROM = 2.0  # the paper's standard deviation above which the wide one holds
Agreement = Literal["reproduces", "differs", "undecided", ""]


@dataclass(frozen=True)
class Paper:
    """A published number in percent, its squared standard error, and the margin within which ours reproduces it."""

    mean: float
    variance: float
    margin: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One row less another over the targets and seeds that both have; p is corrected over all contrasts."""

    letter: str
    first: str
    second: str
    found: Against
    first_mean: float
    second_mean: float


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
    settings: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """A hash of the settings of each (row, target)."""
    made_on: Mapping[tuple[str, str, int], str] = field(default_factory=dict)
    """The machine of each run, by (row, target, seed)."""

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
            value = values[target]
            margin = _WIDE_MARGIN if value.std > _WIDE_FROM else _MARGIN
            return Paper(value.mean, value.std**2 / PAPER_RUNS, margin, str(value))
        count = len(self.targets)
        mean = sum(values[name].mean for name in self.targets) / count
        variance = sum(values[name].std ** 2 / PAPER_RUNS for name in self.targets) / count**2
        return Paper(mean, variance, _MARGIN, f"{mean:.2f}")

    def agreement(self, row: str, target: str | None) -> Agreement:
        """Whether ours reproduces the paper's number: its level, and its gain over the paper's ERM.

        Reproduces: both differences to the paper are equivalent to zero within the margin (two one-sided Welch tests).
        Differs: one of them is significantly different from zero and not equivalent. Else undecided; also with fewer
        than `MIN_SEEDS` runs. Nothing where the paper has no number or we have no run.
        """
        paper = self.paper(row, target)
        ours = self.mean(row) if target is None else self.number(row, target)
        if paper is None or ours is None:
            return ""
        if ours.n < MIN_SEEDS or ours.std is None:
            return "undecided"
        reference = REFERENCES["paper"]
        level = _beside(ours, paper)
        checks = [(level, paper.margin)]
        if row != reference:
            gain = self._gain(row, target)
            base = self.paper(reference, target)
            if gain is None or gain.n < MIN_SEEDS or gain.std is None or base is None:
                return "undecided"
            published = Paper(
                paper.mean - base.mean, paper.variance + base.variance, max(paper.margin, base.margin), ""
            )
            checks.append((_beside(gain, published, base.variance), published.margin))
        if all(equivalent(effect, margin) for effect, margin in checks):
            return "reproduces"
        apart = [effect for effect, margin in checks if not equivalent(effect, margin)]
        return "differs" if any((effect.p_value or 0.0) < SIGNIFICANT for effect in apart) else "undecided"

    def _gain(self, row: str, target: str | None) -> Spread | None:
        """The gain over the paper's ERM for every seed that both have: on a target, or the mean over all of them."""
        base = REFERENCES["paper"]
        if base not in self.rows:
            return None
        gaps: dict[int, list[float]] = {}
        for key, score in self.scores[row].items():
            if key in self.scores[base] and target in (None, key[1]):
                gaps.setdefault(key[2], []).append(score - self.scores[base][key])
        wanted = len(self.targets) if target is None else 1
        return _spread([spread(found).mean for found in gaps.values() if len(found) == wanted])

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
                found |= compare_methods(scores, reference, metric=METRIC, margin=MARGIN)
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
        corrected = judged([contrast.found for contrast in found], metric=METRIC, margin=MARGIN)
        return [replace(contrast, found=one) for contrast, one in zip(found, corrected, strict=True)]

    def _contrast(self, letter: str, first: str, second: str) -> Contrast | None:
        """One of them, not corrected yet; None where no target and seed is shared."""
        mine, theirs = self.scores[first], self.scores[second]
        shared = [key for key in mine if key in theirs]
        if not shared:
            return None
        return Contrast(
            letter=letter,
            first=first,
            second=second,
            found=compare_methods({first: mine, second: theirs}, second, metric=METRIC, margin=MARGIN)[first],
            first_mean=spread(mine[key] for key in shared).mean,
            second_mean=spread(theirs[key] for key in shared).mean,
        )


def _beside(ours: Spread, paper: Paper, reference: float = 0.0) -> Effect:
    """Ours less the paper's in points; ``reference`` is the part of the paper's variance that belongs to its ERM."""
    assert ours.std is not None
    parts = [((100 * ours.std) ** 2 / ours.n, ours.n - 1), (paper.variance - reference, PAPER_RUNS - 1)]
    parts += [(reference, PAPER_RUNS - 1)] if reference else []
    return welch_effect(100 * ours.mean - paper.mean, parts)


def _spread(values: Sequence[float]) -> Spread | None:
    return spread(values) if values else None
