"""The columns of a comparison as text, the same in the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gated_domains.evaluation.scores import Metric, significant
from gated_domains.evaluation.statistics import Paired, Spread
from gated_domains.reports.numbers import MethodNumbers, Numbers

ABSENT = "\u2013"
DOMAINS_MARK = "†"


@dataclass(frozen=True)
class Column:
    """A heading and a cell a method, the best ``bold``; ``kind`` is ``hold-out``, ``summary`` or ``cost``."""

    heading: str
    cells: tuple[str, ...]
    bold: tuple[bool, ...]
    kind: str = "summary"


def first_column(numbers: Numbers) -> Column:
    """The methods' labels, marked where domain labels were used."""
    cells = tuple(row.label + f" {DOMAINS_MARK}" * row.uses_domains for row in numbers.rows)
    return Column("method", cells, (False,) * len(cells))


def columns(numbers: Numbers) -> list[Column]:
    """All columns after the first: hold-outs, mean, worst, seeds, difference to the baseline, cost."""
    metric, rows = numbers.metric, numbers.rows

    def column(heading: str, cell: Callable[[MethodNumbers], str], kind: str = "summary") -> Column:
        return Column(heading, tuple(map(cell, rows)), (False,) * len(rows), kind)

    # The default binds each hold-out to its own column.
    scores = [
        column(name, lambda row, name=name: spread_text(row.cells.get(name), metric), "hold-out")  # type: ignore[misc]
        for name in numbers.hold_outs
    ]
    mean = Column("mean", tuple(spread_text(row.mean, metric) for row in rows), tuple(row.best for row in rows))
    summary = [
        mean,
        column("worst", lambda row: spread_text(row.worst, metric)),
        column("n", lambda row: _counts(row, numbers.hold_outs)),
    ]
    if numbers.baseline is not None and len(rows) > 1:
        summary += [
            column(f"to {numbers.baseline.label}", lambda row: difference_text(row.difference, metric)),
            column("p", lambda row: p_text(row.difference)),
        ]
    cost = [column("time", lambda row: time_text(row.seconds), "cost"), column("parameters", _parameters, "cost")]
    return [*scores, *summary, *cost]


def spread_text(value: Spread | None, metric: Metric) -> str:
    """``71.2 ± 0.4``; without a ± for a single seed."""
    if value is None:
        return ABSENT
    return metric.shown(value.mean) + ("" if value.std is None else f" ± {metric.shown(value.std)}")


def difference_text(pair: Paired | None, metric: Metric) -> str:
    """``+0.3 (-0.8 to +1.4)``; without an interval where none can be told."""
    if pair is None:
        return ABSENT
    return metric.shown_difference(pair.difference) + ("" if pair.low is None else f" ({interval_text(pair, metric)})")


def interval_text(pair: Paired, metric: Metric) -> str:
    """``-0.8 to +1.4``."""
    assert pair.low is not None
    assert pair.high is not None
    return f"{metric.shown_difference(pair.low)} to {metric.shown_difference(pair.high)}"


def p_text(pair: Paired | None) -> str:
    """``0.57``, ``<0.001``."""
    if pair is None or pair.p_value is None:
        return ABSENT
    return "<0.001" if pair.p_value < 0.001 else f"{pair.p_value:.{2 if pair.p_value >= 0.0995 else 3}f}"


def time_text(seconds: float) -> str:
    """``12 s``, ``3.4 min``, ``2.1 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"


def count_text(count: float) -> str:
    """``842``, ``72.0k``, ``1.23M``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            return significant(count / size) + letter
    return f"{count:.0f}"


def _parameters(row: MethodNumbers) -> str:
    trained, together = (
        count_text(sum(counts) / len(counts))
        for counts in ([run.parameters_trained for run in row.runs], [run.parameters_all for run in row.runs])
    )
    return trained if trained == together else f"{trained} of {together}"


def _counts(row: MethodNumbers, hold_outs: tuple[str, ...]) -> str:
    counts = {len(row.seeds_of(hold_out)) for hold_out in hold_outs}
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)}-{max(counts)}"
