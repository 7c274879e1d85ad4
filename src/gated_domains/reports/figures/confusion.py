"""Which classes are taken for which, in the held-out domain that the best method is worst at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gated_domains.evaluation.metrics import Metric
from gated_domains.reports.charts.chart import Axis, Chart, Heat, Panel
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures.predicted import Predicted, all_predictions
from gated_domains.reports.figures.runs import as_gathered
from gated_domains.reports.summary import MethodNumbers, Numbers
from gated_domains.runs.collection import RunCollection
from gated_domains.runs.result import RunResult

_MOST_CLASSES = 20
_MOST_SEEDS = 10


def chart(numbers: Numbers, gathered: RunCollection, palette: Palette) -> Chart | None:
    """The best method, beside it the baseline (or the next best), over seeds; None where no classes are predicted."""
    best = _best(numbers.rows, numbers.metric)
    if numbers.metric.of != "classes" or best is None:
        return None
    metric = numbers.metric
    worst = metric.worst_of(cell.mean for cell in best.cells.values())
    hold_out = next(name for name, cell in best.cells.items() if cell.mean == worst)
    others = [row for row in numbers.rows if row is not best]
    other = numbers.baseline if numbers.baseline in others else _best(others, metric)
    rows = [best] if other is None else [best, other]
    runs = {row.label: _runs(gathered, row, hold_out) for row in rows}
    read = {label: all_predictions(gathered, mine) for label, mine in runs.items()}
    counts = {label: confusion(predicted) for label, predicted in read.items() if predicted}
    if best.label not in counts or len({found.shape for found in counts.values()}) > 1:
        return None
    names = _class_names(gathered.class_names(runs[best.label][0]), len(counts[best.label]))
    shown = _most_confused(counts[best.label])
    panels = tuple(_panel(label, found, names, shown, hold_out) for label, found in counts.items())
    return Chart(
        key="confusion",
        title=f"What is taken for what: {hold_out} held out",
        caption=_caption(best, hold_out, metric.shown(worst), counts[best.label], names, len(shown)),
        runs=sum(map(len, read.values())),
        panels=panels,
        columns=len(panels),
        height=max(260, 130 + 24 * len(shown)),
    )


def confusion(predicted: list[Predicted]) -> NDArray[np.int64]:
    """How many rows of a class (down) were said to be of which (across)."""
    classes = max(output.shape[1] for output, _ in predicted)
    counts = np.zeros((classes, classes), np.int64)
    for output, targets in predicted:
        np.add.at(counts, (targets, output.argmax(axis=1)), 1)
    return counts


def _best(rows: Sequence[MethodNumbers], metric: Metric) -> MethodNumbers | None:
    """By the mean over all hold-outs; where no method has all, by the mean over those it has."""
    rows = [row for row in rows if row.mean is not None] or rows

    def mean(row: MethodNumbers) -> float:
        return row.mean.mean if row.mean is not None else float(np.mean([cell.mean for cell in row.cells.values()]))

    return max(rows, key=lambda row: metric.as_gain(mean(row)), default=None)


def _runs(gathered: RunCollection, row: MethodNumbers, hold_out: str) -> list[RunResult]:
    return as_gathered(gathered, [run for run in row.runs if run.hold_out == hold_out])[:_MOST_SEEDS]


def _class_names(names: tuple[str, ...], classes: int) -> tuple[str, ...]:
    return names if len(names) == classes else tuple(map(str, range(classes)))


def _most_confused(counts: NDArray[np.int64]) -> list[int]:
    """All classes; of very many, those with the most rows said to be of another."""
    errors = counts.sum(axis=1) - np.diag(counts)
    return sorted(np.argsort(-errors, kind="stable")[:_MOST_CLASSES].tolist())


def _panel(label: str, counts: NDArray[np.int64], names: tuple[str, ...], shown: list[int], hold_out: str) -> Panel:
    rows = counts.sum(axis=1, keepdims=True)
    shares = np.where(rows > 0, 100 * counts / np.maximum(rows, 1), np.nan)[np.ix_(shown, shown)]
    chosen = tuple(names[place] for place in shown)
    values = tuple(tuple(map(float, row)) for row in shares)
    heat = Heat(rows=chosen, columns=chosen, values=values, digits=0, low=0.0, high=100.0)
    return Panel(title=label, heat=heat, x=Axis(label="said"), y=Axis(label="true"), domain=hold_out)


def _caption(
    best: MethodNumbers, hold_out: str, score: str, counts: NDArray[np.int64], names: tuple[str, ...], shown: int
) -> str:
    rows = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    wrong = np.where(np.eye(len(counts), dtype=bool), 0.0, counts / rows)
    true, said = np.unravel_index(int(wrong.argmax()), wrong.shape)
    most = f" Most often {names[true]!r} is taken for {names[said]!r}: {100 * wrong[true, said]:.0f} %."
    most = most if wrong.any() else " None is taken for another."
    few = f" Of {len(names)} classes, the {shown} with the most errors are shown." * (shown < len(names))
    return (
        f"{hold_out} is what {best.label}, best on average, does worst at: {score}. "
        f"Each line is a true class, in percent of its rows.{most}{few}"
    )
