"""The columns of a comparison as text, the same in the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gated_domains.evaluation.metrics import Metric, significant
from gated_domains.evaluation.statistics import Interval, Paired, Spread
from gated_domains.reports.numbers import PERCENTILE, MethodNumbers, Numbers

ABSENT = "\u2013"
DOMAINS_MARK, ORACLE_MARK, BATCH_MARK = "†", "‡", "§"


@dataclass(frozen=True)
class Column:
    """A heading and a cell a method, the best ``bold``.

    ``kind`` is ``hold-out``, ``summary``, ``against`` (the baseline), ``cost``, or ``detail``: that which a narrow
    terminal does without. ``about`` explains it where the heading does not.
    """

    heading: str
    cells: tuple[str, ...]
    bold: tuple[bool, ...]
    kind: str = "summary"
    about: str = ""


def first_column(numbers: Numbers) -> Column:
    """The methods' labels, marked where domain labels were used, where the held-out domain selected, or its batches."""
    cells = tuple(
        row.label
        + f" {DOMAINS_MARK}" * row.uses_domains
        + f" {ORACLE_MARK}" * row.oracle
        + f" {BATCH_MARK}" * row.batchwise
        for row in numbers.rows
    )
    return Column("method", cells, (False,) * len(cells))


def columns(numbers: Numbers) -> list[Column]:
    """All columns after the first: hold-outs, mean, worst, groups, seeds, difference to the baseline, cost, details."""
    metric, rows = numbers.metric, numbers.rows

    def column(heading: str, cell: Callable[[MethodNumbers], str], kind: str = "summary", about: str = "") -> Column:
        return Column(heading, tuple(map(cell, rows)), (False,) * len(rows), kind, about)

    # The default binds each hold-out to its own column.
    scores = [
        column(name, lambda row, name=name: spread_text(row.cells.get(name), metric), "hold-out")  # type: ignore[misc]
        for name in numbers.hold_outs
    ]
    mean = Column("mean", tuple(spread_text(row.mean, metric) for row in rows), tuple(row.best for row in rows))
    summary = [mean, column("worst", lambda row: spread_text(row.worst, metric))]
    if numbers.score_by:
        summary += [
            column("worst group", lambda row: spread_text(row.worst_group, metric)),
            column(f"{PERCENTILE}th pct.", lambda row: spread_text(row.percentile, metric)),
        ]
    summary.append(column("n", lambda row: _counts(row, numbers.hold_outs)))
    versus = [] if numbers.baseline is None or len(rows) < 2 else _against(numbers, numbers.baseline.label, column)
    time = column("time", lambda row: time_text(row.seconds), "cost")
    return [*scores, *summary, *versus, time, column("parameters", _parameters, "detail")]


def _against(numbers: Numbers, baseline: str, column: Callable[..., Column]) -> list[Column]:
    """What the pairs with the baseline tell."""
    metric, several = numbers.metric, numbers.tested > 1
    corrected, likewise = " (Holm)" * several, ", Holm-corrected as well" * several
    return [
        column(f"to {baseline}", lambda row: difference_text(row.difference, metric), "against"),
        column(f"p{corrected}", lambda row: p_text(row.against.holm if row.against else None), "against"),
        column("W/T/L", _record, "detail", f"W/T/L: pairs won, tied and lost against {baseline}."),
        column(
            f"Wilcoxon p{corrected}",
            lambda row: p_text(row.against.wilcoxon_holm if row.against else None),
            "detail",
            f"Wilcoxon p: by the signed-rank test over the same pairs{likewise}.",
        ),
        column(
            "bootstrap",
            lambda row: interval_text(row.against.bootstrap if row.against else None, metric),
            "detail",
            "bootstrap: 95 % interval of the difference when held-out domains and then their seeds are redrawn; unlike "
            "the t-test it does not take pairs of one domain as independent.",
        ),
    ]


def _record(row: MethodNumbers) -> str:
    found = None if row.against is None else row.against.record
    return ABSENT if found is None else f"{found.wins}/{found.ties}/{found.losses}"


def spread_text(value: Spread | None, metric: Metric) -> str:
    """``71.2 ± 0.4``; without a ± for a single seed."""
    if value is None:
        return ABSENT
    return metric.shown(value.mean) + ("" if value.std is None else f" ± {metric.shown(value.std)}")


def difference_text(pair: Paired | None, metric: Metric) -> str:
    """``+0.3 (-0.8 to +1.4)``; without an interval where none can be told."""
    if pair is None:
        return ABSENT
    interval = None if pair.low is None or pair.high is None else Interval(pair.low, pair.high)
    return metric.shown_difference(pair.difference) + (f" ({interval_text(interval, metric)})" if interval else "")


def interval_text(interval: Interval | None, metric: Metric) -> str:
    """``-0.8 to +1.4``."""
    if interval is None:
        return ABSENT
    return f"{metric.shown_difference(interval.low)} to {metric.shown_difference(interval.high)}"


def p_text(p_value: float | None) -> str:
    """``0.57``, ``<0.001``."""
    if p_value is None:
        return ABSENT
    return "<0.001" if p_value < 0.001 else f"{p_value:.{2 if p_value >= 0.0995 else 3}f}"


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
