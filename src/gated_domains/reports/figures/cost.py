"""What a score costs: time of a training, and memory where it is known."""

from __future__ import annotations

import math
from collections.abc import Callable

from gated_domains.evaluation.metrics import significant
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.dots import axis_label
from gated_domains.reports.figures.runs import count_runs, counted, drawn, drawn_methods, headed, methods_said
from gated_domains.reports.summary import MethodNumbers, Numbers
from gated_domains.runs.collection import RunCollection

_WIDE = 20.0  # times as much, past which an axis counts in powers
_MIB = 2**20


def chart(numbers: Numbers, gathered: RunCollection, palette: Palette) -> Chart | None:
    """A dot a method, its interval one standard deviation over seeds; None where no method has all hold-outs."""
    rows = [row for row in numbers.rows if row.mean is not None]
    if not rows:
        return None
    shown = drawn_methods(numbers, rows)
    panels = [_panel(numbers, shown, palette, _seconds, "seconds of a training")]
    if any(math.isfinite(_memory(row)) for row in shown):
        panels.append(_panel(numbers, shown, palette, _memory, "MiB of memory at most"))
    said = [_caption(rows), _memory_said(shown), methods_said(numbers, shown, len(rows))]
    return Chart(
        key="cost",
        title=headed(f"{numbers.metric.label} against its cost"),
        caption=" ".join(filter(None, said)),
        runs=count_runs(shown),
        panels=tuple(panels),
        columns=len(panels),
        height=320,
    )


def _seconds(row: MethodNumbers) -> float:
    return row.seconds


def _memory(row: MethodNumbers) -> float:
    """The most that any run took, in MiB; NaN where nobody knows."""
    known = [run.peak_memory for run in row.runs if run.peak_memory is not None]
    return max(known) / _MIB if known else math.nan


def _panel(
    numbers: Numbers, rows: list[MethodNumbers], palette: Palette, cost: Callable[[MethodNumbers], float], label: str
) -> Panel:
    known = [row for row in rows if math.isfinite(cost(row))]
    costs = [cost(row) for row in known]
    log = min(costs) > 0 and max(costs) > _WIDE * min(costs)
    return Panel(
        x=Axis(label=label, log=log, low=None if log else 0.0),
        y=Axis(label=axis_label(numbers.metric)),
        marks=tuple(_marks(numbers, row, palette, cost(row), label) for row in known),
    )


def _marks(numbers: Numbers, row: MethodNumbers, palette: Palette, cost: float, label: str) -> Marks:
    metric = numbers.metric
    assert row.mean is not None  # others are not drawn
    mean, std = drawn(row.mean.mean, metric), row.mean.std
    ends = [math.nan if std is None else mean + sign * drawn(std, metric) for sign in (-1, 1)]
    about = f"{row.label}: {metric.shown(row.mean.mean)}" + ("" if std is None else f" ± {metric.shown(std)}")
    return Marks(
        name=row.label, x=(cost,), y=(mean,), low=(ends[0],), high=(ends[1],), colour=palette.method(row.label),
        marker=palette.marker(row.label), size=12.0, hover=(f"{about}\n{significant(cost)} {label}",),
    )  # fmt: skip


def _caption(rows: list[MethodNumbers]) -> str:
    about = "Mean over held-out domains, with one standard deviation over seeds; time is the mean over runs."
    quick, slow = min(rows, key=_seconds), max(rows, key=_seconds)
    if not slow.seconds > quick.seconds > 0:
        return about
    return f"{about} {slow.label} takes {significant(slow.seconds / quick.seconds, 2)} times as long as {quick.label}."


def _memory_said(rows: list[MethodNumbers]) -> str:
    """What the memory is, and how many of the runs drawn tell it."""
    known = sum(run.peak_memory is not None for row in rows for run in row.runs)
    if not known:
        return ""
    return (
        "Memory is the largest peak of any run of a method, on a CPU of all that its process held, on a GPU of what "
        f"torch took there; known for {known:,} of {counted(count_runs(rows), 'run')}."
    )
