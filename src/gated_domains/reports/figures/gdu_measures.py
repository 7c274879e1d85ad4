"""What gates and bases do while they are trained: entropy, spread of beta, SRIP, coverage, by epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gated_domains.reports.charts import Axis, Chart, Marks, Panel
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures.runs import counted, number
from gated_domains.runs.collection import RunCollection
from gated_domains.runs.result import RunResult

_MEASURES = {
    "gate_entropy": "gate entropy",
    "srip": "SRIP of the bases",
    "beta_std": "spread of beta over samples",
    "coverage": "mean coverage",
}
_MOST_RUNS = 60
Curve = dict[int, float]
"""By epoch, counted from 1; an epoch whose value is no number is not there."""
Curves = Mapping[str, Sequence[Curve]]
"""Those of the runs of each hold-out."""


def chart(runs: Sequence[RunResult], gathered: RunCollection, *, palette: Palette) -> Chart | None:
    """A line a hold-out, the mean over its seeds, a band of one standard deviation; None where nothing was measured."""
    read = runs[:: -(-len(runs) // _MOST_RUNS)] if runs else []
    measured = [(run, found) for run in read if (found := _measures(run, gathered))]
    by_measure = {name: _by_hold_out(name, measured) for name in _MEASURES}
    panels = [_panel(_MEASURES[name], curves, palette) for name, curves in by_measure.items() if curves]
    if not panels:
        return None
    return Chart(
        key="measures",
        title=f"Gates and bases by epoch: {runs[0].label}",
        caption=_caption(by_measure.values(), len(measured), len(runs)),
        runs=len(measured),
        panels=tuple(panels),
        columns=2,
        height=250,
    )


def _measures(run: RunResult, gathered: RunCollection) -> dict[str, Curve]:
    """By measure, what was recorded of a run and is a number."""
    found: dict[str, Curve] = {}
    for record in gathered.curve(run):
        measures = record.get("measures")
        for name in _MEASURES:
            if isinstance(measures, dict) and (value := number(measures.get(name))) is not None:
                found.setdefault(name, {})[record["epoch"] + 1] = value
    return found


def _by_hold_out(name: str, measured: Sequence[tuple[RunResult, dict[str, Curve]]]) -> Curves:
    curves: dict[str, list[Curve]] = {}
    for run, found in measured:
        if name in found:
            curves.setdefault(run.hold_out, []).append(found[name])
    return curves


def _caption(by_measure: Iterable[Curves], drawn: int, there: int) -> str:
    together = [mine for curves in by_measure for mine in curves.values() if len(mine) > 1]
    said = [
        "Measured on validation rows after each epoch. Entropy 0: one basis takes all; its largest value: all alike. "
        "A spread of beta near 0: the gates do not depend on the input. SRIP 0: bases are orthogonal."
    ]
    if together:
        said.append("Lines are means over the seeds of a hold-out, bands one standard deviation over them.")
    if any(len(set(map(max, mine))) > 1 for mine in together):
        said.append("Where seeds stop at different epochs, a line ends with the first that stops.")
    if drawn < there:
        said.append(f"Drawn from {drawn} of {counted(there, 'run')}.")
    return " ".join(said)


def _panel(title: str, curves: Curves, palette: Palette) -> Panel:
    marks = tuple(_line(hold_out, found, palette) for hold_out, found in curves.items())
    return Panel(title=title, x=Axis(label="epoch"), marks=marks)


def _line(hold_out: str, curves: Sequence[Curve], palette: Palette) -> Marks:
    end = min(map(max, curves))
    epochs = sorted({epoch for curve in curves for epoch in curve if epoch <= end})
    values = [[curve[epoch] for curve in curves if epoch in curve] for epoch in epochs]
    means = [float(np.mean(mine)) for mine in values]
    stds = [float(np.std(mine, ddof=1)) if len(mine) > 1 else 0.0 for mine in values]
    several = len(curves) > 1
    return Marks(
        name=f"{hold_out} held out",
        x=tuple(map(float, epochs)),
        y=tuple(means),
        low=tuple(mean - std for mean, std in zip(means, stds, strict=True)) if several else None,
        high=tuple(mean + std for mean, std in zip(means, stds, strict=True)) if several else None,
        form="line",
        colour=palette.domain(hold_out),
        domain=hold_out,
        hover=tuple(
            f"{hold_out} held out, epoch {epoch}: {mean:.4g}" for epoch, mean in zip(epochs, means, strict=True)
        ),
    )
