"""Accuracy over the weights of two penalties, for each gate, on frozen features and end to end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gated_domains.reports.ablations.setting import GATES, MODES, WEIGHTS, Fineness, Found, Mode, Setting, heat_map
from gated_domains.reports.ablations.words import (
    AGREES,
    DISAGREES,
    NOISE,
    agreement,
    difference,
    mean_by_seed,
    noise,
    typical_std,
)
from gated_domains.reports.charts.chart import Axis, Chart, Heat, Panel

PAPERS = {"lambda_l1": ("cosine", "mmd"), "lambda_orth": ("projection",)}
"""The gates that the paper draws each of the two figures of; we draw both of all three."""
_KEYS = {"lambda_l1": "sparsity", "lambda_orth": "orthogonality"}
_NOTES = {
    "lambda_l1": " Weights of softmax gates (CS, MMD) sum to one, so that their L1 penalty is a constant: what moves "
    "along it there is rounding that training made larger.",
    "lambda_orth": "",
}
Grid = Sequence[Sequence[Setting]]
Grids = Mapping[tuple[Mode, str], Grid]


def heat_chart(weight: str, found: Found, fineness: Fineness, *, target: str, title: str) -> Chart:
    """Six heat-maps over (``weight``, lambda_ols)."""
    grids = {
        (mode, gate): heat_map(weight, gate, mode, fineness.weights[mode], target) for mode in MODES for gate in GATES
    }
    panels = tuple(
        _panel(weight, mode, gate, grid, found, _ends(grids, mode, found)) for (mode, gate), grid in grids.items()
    )
    return Chart(
        key=_KEYS[weight],
        title=f"Accuracy on {title} over {WEIGHTS[weight]} and {WEIGHTS['lambda_ols']}",
        caption=_caption(weight, grids, found),
        runs=found.runs,
        panels=panels,
        columns=len(GATES),
    )


def panel_words(weight: str, found: Found, fineness: Fineness, *, target: str) -> list[str]:
    """A line for each heat-map: its span, what both penalties off have, and what both on bring."""
    lines = []
    for mode in MODES:
        for gate in GATES:
            grid = heat_map(weight, gate, mode, fineness.weights[mode], target)
            lines.append(f"{_title(weight, mode, gate)}: {_span(found, grid)}; {_ablated(found, grid)[0]}.")
    return lines


def _panel(weight: str, mode: Mode, gate: str, grid: Grid, found: Found, ends: tuple[float, float] | None) -> Panel:
    values = [f"{getattr(cell, weight):g}" for cell in grid[0]]
    heat = Heat(
        rows=tuple(f"{row[0].lambda_ols:g}" for row in grid),
        columns=tuple(values),
        values=tuple(tuple(_mean(found, cell) for cell in row) for row in grid),
        digits=1,
        low=None if ends is None else ends[0],
        high=None if ends is None else ends[1],
    )
    x, y = Axis(label=WEIGHTS[weight]), Axis(label=WEIGHTS["lambda_ols"])
    return Panel(title=_title(weight, mode, gate), heat=heat, x=x, y=y)


def _title(weight: str, mode: Mode, gate: str) -> str:
    return f"{mode} {GATES[gate]}" + ("" if gate in PAPERS[weight] else " (not in the paper)")


def _caption(weight: str, grids: Grids, found: Found) -> str:
    parts = [f"Mean accuracy, in percent, colours by row of panels; {noise(_typical(grids, found))}."]
    for mode in MODES:
        ours = [grid for (kind, _), grid in grids.items() if kind == mode]
        parts.append(f"{mode}: over the grid {_span(found, [row for grid in ours for row in grid])}.")
    papers = {place: grid for place, grid in grids.items() if place[1] in PAPERS[weight]}
    verdicts = [_ablated(found, grid)[1] for grid in papers.values()]
    told = [agreement(sign, 1) for sign in verdicts]
    parts.append(
        "The paper finds that accuracy falls where both penalties are off; of its "
        f"{len(told)} heat-maps here ours agree in {told.count(AGREES)}, disagree in {told.count(DISAGREES)}, and "
        f"in {told.count(NOISE)} the difference is not significant.{_NOTES[weight]}"
    )
    return " ".join([*parts, *(f"{line}." for line in found.holes())])


def _span(found: Found, grid: Grid) -> str:
    spreads = [one for row in grid for cell in row if (one := found.spread(cell)) is not None]
    if not spreads:
        return "there is no run yet"
    off = [one.mean for row in grid for cell in row if _off(cell) and (one := found.spread(cell)) is not None]
    without = f", with both penalties off {' and '.join(f'{value:.1f}' for value in off)}" if off else ""
    low, high = min(one.mean for one in spreads), max(one.mean for one in spreads)
    return f"accuracy spans {low:.1f} to {high:.1f}{without}"


def _ablated(found: Found, grid: Grid) -> tuple[str, int]:
    """Both penalties on, the mean of all such cells, less both off; in words, and the sign."""
    on = [found.scores[c] for row in grid for c in row if _both_on(c) and found.scores.get(c)]
    off = [found.scores.get(c, {}) for row in grid for c in row if _off(c)]
    said, sign = difference(mean_by_seed(on), mean_by_seed(off))
    return f"both on less both off: {said}", sign


def _weights(cell: Setting) -> list[float]:
    return [value for value in (cell.lambda_ols, cell.lambda_l1, cell.lambda_orth) if value]


def _off(cell: Setting) -> bool:
    return not _weights(cell)


def _both_on(cell: Setting) -> bool:
    return len(_weights(cell)) > 1


def _mean(found: Found, cell: Setting) -> float:
    one = found.spread(cell)
    return math.nan if one is None else one.mean


def _typical(grids: Grids, found: Found) -> float | None:
    cells = [cell for grid in grids.values() for row in grid for cell in row]
    return typical_std(one for cell in cells if (one := found.spread(cell)) is not None)


def _ends(grids: Grids, mode: Mode, found: Found) -> tuple[float, float] | None:
    """One scale for the heat-maps of a row: what looks alike is alike."""
    cells = [cell for (kind, _), grid in grids.items() if kind == mode for row in grid for cell in row]
    means = [value for cell in cells if not math.isnan(value := _mean(found, cell))]
    return (min(means), max(means)) if means and min(means) < max(means) else None
