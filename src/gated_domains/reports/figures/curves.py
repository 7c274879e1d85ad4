"""Learning curves: validation score, losses and penalties by epoch, a colour a method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gated_domains.evaluation.metrics import METRICS, significant
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures.runs import (
    count_runs,
    counted,
    drawn,
    drawn_methods,
    methods_said,
    number,
    some_runs,
)
from gated_domains.reports.summary import Numbers
from gated_domains.runs.collection import RunCollection

Curve = dict[int, float]
"""By epoch, counted from 1."""
_MOST_READ = 120
_MOST_PANELS = 9
_TASK = "task"


def chart(numbers: Numbers, gathered: RunCollection, palette: Palette) -> Chart | None:
    """A panel a quantity: the mean over runs, in a band of one standard deviation."""
    read = some_runs(numbers, gathered, _MOST_READ)
    found = {
        label: [quantities for run in runs if (quantities := _quantities(gathered.curve(run)))]
        for label, runs in read.items()
    }
    titles = list(dict.fromkeys(title for curves in found.values() for mine in curves for title in mine))
    panels = [_panel(title, found, palette) for title in sorted(titles, key=_order)[:_MOST_PANELS]]
    if not panels:
        return None
    drawn_runs, there = sum(map(len, found.values())), count_runs(numbers.rows)
    some = f"Drawn from {drawn_runs} of {there:,} runs, evenly over methods and hold-outs." * (drawn_runs < there)
    about = "Lines are means over the runs of a method, bands one standard deviation."
    unequal = "Where runs stop early, a line is the mean of those that go on." * _is_ragged(found)
    dropped = f"Of {len(titles)} quantities, the first {len(panels)} are drawn." * (len(panels) < len(titles))
    left_out = methods_said(numbers, drawn_methods(numbers), len(numbers.rows))
    return Chart(
        key="curves",
        title="Learning curves",
        caption=" ".join(filter(None, [about, unequal, some, dropped, left_out])),
        runs=drawn_runs,
        panels=tuple(panels),
        columns=min(3, len(panels)),
        height=260,
    )


def _quantities(records: Iterable[Mapping[str, Any]]) -> dict[str, Curve]:
    """By title, what was recorded of a run."""
    curves: dict[str, Curve] = {}
    for record in records:
        for title, value in _recorded(record).items():
            if (known := number(value)) is not None:
                curves.setdefault(title, {})[record["epoch"] + 1] = known
    return curves


def _recorded(record: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    validation = record.get("validation")
    if isinstance(validation, dict) and (score := number(validation.get("overall"))) is not None:
        metric = METRICS.get(str(validation.get("metric")))
        label = "score" if metric is None else metric.label + " in percent" * metric.percent
        found[f"validation {label}"] = score if metric is None else drawn(score, metric)
    for name, value in record["train"].items():
        found["task loss" if name == _TASK else f"penalty: {name.replace('_', ' ')}"] = value
    return found


def _order(title: str) -> int:
    """Validation first, then losses, then penalties."""
    kinds = ("validation", "task loss", "penalty")
    return next((place for place, kind in enumerate(kinds) if title.startswith(kind)), len(kinds))


def _is_ragged(found: Mapping[str, list[dict[str, Curve]]]) -> bool:
    ends = ({max(map(max, mine.values())) for mine in curves} for curves in found.values())
    return any(len(mine) > 1 for mine in ends)


def _panel(title: str, found: Mapping[str, list[dict[str, Curve]]], palette: Palette) -> Panel:
    lines = {label: [mine[title] for mine in curves if title in mine] for label, curves in found.items()}
    marks = tuple(_line(label, curves, palette) for label, curves in lines.items() if curves)
    return Panel(title=title, x=Axis(label="epoch"), marks=marks)


def _line(label: str, curves: list[Curve], palette: Palette) -> Marks:
    epochs = sorted({epoch for curve in curves for epoch in curve})
    values = [[curve[epoch] for curve in curves if epoch in curve] for epoch in epochs]
    means = [float(np.mean(mine)) for mine in values]
    stds = [float(np.std(mine, ddof=1)) if len(mine) > 1 else 0.0 for mine in values]
    return Marks(
        name=label,
        x=tuple(map(float, epochs)),
        y=tuple(means),
        colour=palette.method(label),
        form="line",
        low=tuple(mean - std for mean, std in zip(means, stds, strict=True)) if any(stds) else None,
        high=tuple(mean + std for mean, std in zip(means, stds, strict=True)) if any(stds) else None,
        hover=tuple(
            f"{label}, epoch {epoch}: {significant(mean)} ± {significant(std)}\n{counted(len(mine), 'run')}"
            for epoch, mean, std, mine in zip(epochs, means, stds, values, strict=True)
        ),
    )
