"""SRIP and cross-entropy by epoch, with and without the orthogonality penalty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.reports.ablations.setting import (
    MODES,
    PAPER_ORTH,
    STRONG_ORTH,
    Found,
    Mode,
    Setting,
    orthogonality_runs,
)
from gated_domains.reports.ablations.words import difference
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel
from gated_domains.reports.charts.palette import MARKERS, METHOD_COLOURS

Curve = Sequence[Mapping[str, Any]]
_TITLES = {"SRIP": "SRIP of the bases", "cross-entropy": "cross-entropy on training rows"}
_SHOWN = {"SRIP": ("measures", "srip"), "cross-entropy": ("train", "task")}


def srip_chart(found: Found, *, target: str, title: str) -> Chart:
    """A row of panels a mode: the SRIP value of the bases, and the loss on training rows."""
    lines = {mode: orthogonality_runs(mode, target) for mode in MODES}
    panels = tuple(
        Panel(
            title=f"{mode}: {_TITLES[name]}",
            x=Axis(label="epoch"),
            y=Axis(label=name),
            marks=tuple(_marks(lines[mode], found, where, legend=(mode, name) == (MODES[0], "SRIP"))),
        )
        for mode in MODES
        for name, where in _SHOWN.items()
    )
    return Chart(
        key="srip",
        title=f"Bases and loss with and without the orthogonality penalty, {title} held out",
        caption=" ".join([_caption(lines, found), *(f"{line}." for line in found.holes())]),
        runs=found.runs,
        panels=panels,
        columns=2,
        height=300,
    )


def by_epoch(curves: Mapping[int, Curve], where: tuple[str, str]) -> NDArray[np.float64]:
    """(runs, epochs) of one number, as far as all runs have it, in the order of ``curves``."""
    part, name = where
    rows = [
        [record[part][name] for record in curve if record.get(part, {}).get(name) is not None]
        for curve in curves.values()
    ]
    epochs = min(map(len, rows), default=0)
    return np.array([row[:epochs] for row in rows], np.float64).reshape(len(rows), epochs)


def _marks(lines: Mapping[str, Setting], found: Found, where: tuple[str, str], *, legend: bool) -> list[Marks]:
    marks = []
    for number, (name, cell) in enumerate(lines.items()):
        table = by_epoch(found.curves.get(cell, {}), where)
        if not table.size:
            continue
        mean = table.mean(0)
        # The paper's weight is so small that its line would hide the one without: dots, on top of that.
        hides = cell.lambda_orth == PAPER_ORTH
        reach = table.std(0, ddof=1) if len(table) > 1 and not hides else None
        marks.append(
            Marks(
                name=name,
                x=tuple(float(epoch) for epoch in range(1, len(mean) + 1)),
                y=tuple(mean.tolist()),
                low=None if reach is None else tuple((mean - reach).tolist()),
                high=None if reach is None else tuple((mean + reach).tolist()),
                colour=METHOD_COLOURS[number % len(METHOD_COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                form="dots" if hides else "line",
                legend=legend,
            )
        )
    return marks


def _caption(lines: Mapping[Mode, Mapping[str, Setting]], found: Found) -> str:
    parts = [
        "SRIP is the largest singular value of the Gram matrix of the bases without its diagonal, 0 where they are "
        "orthogonal; bands are one standard deviation."
    ]
    for mode, settings in lines.items():
        curves = {cell.lambda_orth: found.curves.get(cell, {}) for cell in settings.values()}
        if all(by_epoch(curves[weight], _SHOWN["SRIP"]).size for weight in (0.0, STRONG_ORTH)):
            parts.append(f"{mode}: {_told(curves)}.")
    parts.append(
        "The paper sees SRIP rise in the first epochs and fall later, and no effect on the cross-entropy; its table "
        f"has a weight of {PAPER_ORTH:g}."
    )
    return " ".join(parts)


def _told(curves: Mapping[float | None, Mapping[int, Curve]]) -> str:
    """How SRIP moves without the penalty, where it ends, and what the penalty does to the loss."""
    srip = {weight: by_epoch(each, _SHOWN["SRIP"]) for weight, each in curves.items()}
    first, last = (srip[0.0][:, place].mean() for place in (0, -1))
    ends = ", ".join(f"{weight:g}: {table[:, -1].mean():.2f}" for weight, table in srip.items() if table.size)
    strong, without = (
        dict(zip(curves[weight], by_epoch(curves[weight], _SHOWN["cross-entropy"])[:, -1].tolist(), strict=True))
        for weight in (STRONG_ORTH, 0.0)
    )
    loss, _ = difference(strong, without, unit="", digits=3)
    return (
        f"without the penalty SRIP goes from {first:.2f} after the first epoch to {last:.2f}; it ends, by weight, at "
        f"{ends}; cross-entropy at the end with {STRONG_ORTH:g} less without: {loss}"
    )
