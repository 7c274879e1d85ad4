"""The columns of a comparison as text, and the table that they make in the terminal.

The columns are the same in every format. The terminal shows the answer, one table where it fits the width, else
several, and a short caption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gated_domains.evaluation.metrics import Metric, significant
from gated_domains.evaluation.statistics import Effect, Interval, Spread
from gated_domains.reports.summary import PERCENTILE, Against, MethodNumbers, Numbers

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

ABSENT = "\u2013"
DOMAINS_MARK, ORACLE_MARK, BATCH_MARK = "†", "‡", "§"
_GAP = 2
_LONGEST_METHOD, _LONGEST_HEADING = (28, 14), 14
_MOST_BLOCKS = 2


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


@dataclass(frozen=True)
class TerminalTable:
    """Something for rich's ``Console.print``: the answer, the table and its caption, fitted to the console's width."""

    numbers: Numbers
    title: str
    answer: str
    details: Sequence[str]
    caption: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(self.title)
        yield Text(self.answer, style="bold")
        for line in self.details:
            yield Text(line)
        for block in blocks(self.numbers, options.max_width):
            yield Text()
            yield _table(block, grey=[row.worse for row in self.numbers.rows])
        yield Text()
        for line in self.caption:
            yield Text(line, style="dim")


def blocks(numbers: Numbers, width: int) -> list[list[Column]]:
    """The columns as they fit the width, each block with a first column of its own.

    All in one block; else scores above, differences below. Scores of many hold-outs take one or two blocks, or are
    turned, with hold-outs down and methods across. Long names are shortened where that saves a block. Details are
    shown as far as they fit beside the rest.
    """
    return min((_blocks(numbers, width, longest) for longest in _LONGEST_METHOD), key=len)


def _blocks(numbers: Numbers, width: int, longest: int) -> list[list[Column]]:
    methods = first_column(numbers)
    methods = replace(methods, cells=tuple(shortened(methods.cells, longest)))
    found = columns(numbers)
    scores = [column for column in found if column.kind == "hold-out"]
    headings = shortened([column.heading for column in scores], _LONGEST_HEADING)
    across = [replace(column, heading=name) for name, column in zip(headings, scores, strict=True)]
    rest = [
        replace(column, heading=_cut(column.heading, _LONGEST_METHOD[0])) for column in found if column not in scores
    ]
    summary, against, cost = (
        [column for column in rest if column.kind == kind] for kind in ("summary", "against", "cost")
    )
    room = width - _width(methods)
    if _widths([*across, *summary, *against, *cost]) <= room:
        return [[methods, *_with_details([*across, *summary, *against, *cost], rest, room)]]
    beside = max(
        count for count in range(len(summary) + 1) if _widths([*across, *summary[:count]]) <= room or not count
    )
    if beside:
        upper = [[methods, *across, *summary[:beside]]]
        lower = _joined([against, [*summary[beside:], *cost]], room)
    else:
        upper = [[methods, *block] for block in _packed(across, room)]
        upper = upper if len(upper) <= _MOST_BLOCKS else _turned(methods, scores, width)
        together = _widths([*summary, *against]) <= room
        lower = _joined([summary, against, cost] if together else [[*summary, *cost], against], room)
    lower[-1] = _with_details(lower[-1], rest, room)
    return [*upper, *([methods, *block] for block in lower)]


def _joined(groups: list[list[Column]], room: int) -> list[list[Column]]:
    """Groups of columns in as few blocks as they fit; a group is divided only where it is too wide by itself."""
    joined: list[list[Column]] = [[]]
    for group in groups:
        if _widths([*joined[-1], *group]) <= room:
            joined[-1] = [*joined[-1], *group]
        else:
            joined = [*joined, *_filled(group, room)]
    return [block for block in joined if block]


def _with_details(block: list[Column], found: list[Column], room: int) -> list[Column]:
    """A block with as many details at its end as there is room for."""
    for column in found:
        if column.kind == "detail" and _widths([*block, column]) <= room:
            block = [*block, column]
    return block


def _turned(methods: Column, scores: list[Column], width: int) -> list[list[Column]]:
    """Hold-outs down, methods across."""
    nothing = (False,) * len(scores)
    first = Column("held out", tuple(shortened([column.heading for column in scores], _LONGEST_METHOD[0])), nothing)
    turned = [
        Column(method, tuple(column.cells[row] for column in scores), nothing)
        for row, method in enumerate(shortened(methods.cells, _LONGEST_HEADING))
    ]
    return [[first, *block] for block in _packed(turned, width - _width(first))]


def _packed(group: list[Column], room: int) -> list[list[Column]]:
    """As few blocks as can be, about as many columns in each."""
    for count in range(1, len(group) + 1):
        size = -(-len(group) // count)
        packed = [group[start : start + size] for start in range(0, len(group), size)]
        if all(_widths(block) <= room for block in packed):
            return packed
    return [[column] for column in group]


def _filled(group: list[Column], room: int) -> list[list[Column]]:
    """Each block as full as it can be, so that the first holds what matters most."""
    filled: list[list[Column]] = [[]]
    for column in group:
        if filled[-1] and _widths([*filled[-1], column]) > room:
            filled.append([])
        filled[-1].append(column)
    return filled


def _widths(group: list[Column]) -> int:
    return sum(_width(column) + _GAP for column in group)


def _width(column: Column) -> int:
    from rich.cells import cell_len

    return max(cell_len(text) for text in (column.heading, *column.cells))


def _table(block: list[Column], *, grey: Sequence[bool]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, column in enumerate(block):
        table.add_column(Text(column.heading), justify="right" if place else "left", no_wrap=True, overflow="ellipsis")
    for row in range(len(block[0].cells)):
        style = "dim" if len(grey) == len(block[0].cells) and grey[row] else ""
        table.add_row(*(Text(column.cells[row], style="bold" if column.bold[row] else style) for column in block))
    return table


def shortened(names: Sequence[str], most: int) -> list[str]:
    """Names of at most so many cells: long ones lose their middle; those that then look alike get a number."""
    short = [_cut(" ".join(name.split()), most) for name in names]
    seen: dict[str, int] = {}
    for place, name in enumerate(short):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            mark = f"~{seen[name]}"
            short[place] = _cut(name, most - len(mark)) + mark
    return short


def _cut(name: str, most: int) -> str:
    from rich.cells import cell_len

    if cell_len(name) <= most:
        return name
    end = max(1, most // 3)
    tail = name[-end:]
    while cell_len(tail) > end:
        tail = tail[1:]
    head = name
    while cell_len(head) + 1 + cell_len(tail) > most:
        head = head[:-1]
    return f"{head}…{tail}"
