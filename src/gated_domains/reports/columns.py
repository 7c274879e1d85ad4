"""The columns of a comparison as text, the same in the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gated_domains.evaluation.metrics import Metric, significant
from gated_domains.evaluation.statistics import Effect, Interval, Spread
from gated_domains.reports.against import Against
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
    """All columns after the first: hold-outs, mean, worst, groups, differences to the baseline, cost, details."""
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
    seeds = column("n", lambda row: _counts(row, numbers.hold_outs), "detail", "n: the number of seeds.")
    versus = [] if numbers.baseline is None or len(rows) < 2 else _against(numbers, numbers.baseline.label, column)
    time = column("time", lambda row: time_text(row.seconds), "cost")
    return [*scores, *summary, *versus, time, seeds, column("parameters", _parameters, "detail")]


def _against(numbers: Numbers, baseline: str, column: Callable[..., Column]) -> list[Column]:
    """The differences to the baseline and what follows from them."""
    metric, corrected = numbers.metric, " (Holm)" * (numbers.tested > 1)

    def cell(of: Callable[[Against], str]) -> Callable[[MethodNumbers], str]:
        return lambda row: ABSENT if row.against is None else of(row.against)

    versus = [
        column("on a new domain", cell(lambda found: _new_domain(found, metric)), "against"),
        column(f"p{corrected}", cell(lambda found: p_text(found.holm)), "against"),
        column("on these domains", cell(lambda found: effect_text(found.these_domains, metric)), "against"),
        column("verdict", cell(lambda found: found.verdict or ABSENT), "against"),
        column("W/T/L", cell(_record), "detail", f"W/T/L: held-out domains won, tied and lost against {baseline}."),
    ]
    if any(row.against is not None and row.against.domains_needed is not None for row in numbers.rows):
        needed = f"{numbers.unit}s needed: about how many would decide it, if mean and spread stay as they are."
        versus.append(column(f"{numbers.unit}s needed", cell(_needed), "detail", needed))
    if any(row.against is not None and row.against.sign_flip is not None for row in numbers.rows):
        about = "sign-flip p: by the permutation test that flips the signs of the domains' differences, not corrected."
        versus.append(column("sign-flip p", cell(lambda found: p_text(found.sign_flip)), "detail", about))
    return versus


def _new_domain(found: Against, metric: Metric) -> str:
    return ABSENT if found.new_domain.error is None else effect_text(found.new_domain, metric)


def _needed(found: Against) -> str:
    return ABSENT if found.domains_needed is None else about(found.domains_needed)


def _record(found: Against) -> str:
    return f"{found.record.wins}/{found.record.ties}/{found.record.losses}"


def spread_text(value: Spread | None, metric: Metric) -> str:
    """``71.2 ± 0.4``, both with the same decimals; without a ± for a single seed."""
    if value is None:
        return ABSENT
    mean = metric.shown(value.mean)
    if value.std is None:
        return mean
    decimals = len(mean.partition(".")[2])
    exponent = "e" in mean or metric.percent
    return f"{mean} ± {metric.shown(value.std) if exponent else f'{value.std:.{decimals}f}'}"


def effect_text(effect: Effect, metric: Metric) -> str:
    """``+0.3 (-0.8 to +1.4)``, the difference and its 95 % interval; without an interval where there is none."""
    interval = effect.interval()
    return metric.shown_difference(effect.difference) + (f" ({interval_text(interval, metric)})" if interval else "")


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


def about(count: int) -> str:
    """``37``, ``120``, ``1,300``: two significant digits."""
    digits = max(0, len(str(count)) - 2)
    return f"{round(count, -digits):,}"


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
