"""Sources, unseen domain and bases in one plane; the sample under the pointer is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.reports.charts import Axis, Chart, Marks, Panel
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.sprites import Sprite, sprite_of
from gated_domains.runs.insight import Insight
from gated_domains.runs.result import RunResult

_BASES = "#7F7F7F"


def chart(result: RunResult, insight: Insight, *, palette: Palette, most_bytes: int) -> Chart:
    """The view that gates see, embedded; a dot a sample, a diamond a vector of a basis."""
    kind = str(insight.map_kind)
    sprite = sprite_of(insight.pictures, insight.domains, most_bytes=most_bytes)
    marks = [
        _domain(insight, place, sprite, palette)
        for place in range(len(insight.domain_names))
        if (insight.domains == place).any()
    ]
    marks.append(_bases(insight))
    unseen = insight.domain_names[insight.unseen].tolist()
    new = f" Unseen: {', '.join(unseen)}." if unseen else ""
    return Chart(
        key=f"map-{result.hold_out}",
        title=f"Sources, unseen domain and bases: {result.label}, {result.hold_out} held out",
        caption=(
            f"{kind} of what the gates see, {len(insight.rows):,} rows and {len(insight.map_bases):,} vectors of "
            f"{insight.bases} bases together, seed {result.seed}. Diamonds inside a cloud: a basis stands for it; "
            f"where a cloud has none, no vector shown lies in it.{new} "
            "Distances between clouds mean little here."
        ),
        runs=1,
        panels=(Panel(x=Axis(hidden=True), y=Axis(hidden=True), marks=tuple(marks), domain=result.hold_out),),
        height=560,
        square=True,
        sprite=sprite.uri,
        sprite_columns=sprite.columns,
        tile_size=sprite.size,
    )


def _domain(insight: Insight, place: int, sprite: Sprite, palette: Palette) -> Marks:
    mine = np.flatnonzero(insight.domains == place)
    name, unseen = str(insight.domain_names[place]), bool(insight.unseen[place])
    return Marks(
        name=name + " (unseen)" * unseen,
        x=_floats(insight.map_rows[mine, 0]),
        y=_floats(insight.map_rows[mine, 1]),
        colour=palette.domain(name),
        marker="s" if unseen else "o",
        size=6.5 if unseen else 4.5,
        alpha=0.9 if unseen else 0.55,
        hover=tuple(_said(insight, row, name) for row in mine.tolist()),
        tile=tuple(sprite.tiles[mine].tolist()) if sprite.uri else (),
    )


def _bases(insight: Insight) -> Marks:
    return Marks(
        name="bases",
        x=_floats(insight.map_bases[:, 0]),
        y=_floats(insight.map_bases[:, 1]),
        colour=_BASES,
        marker="D",
        size=9.0,
        hover=tuple(f"basis {number + 1}" for number in insight.map_basis_of.tolist()),
    )


def _said(insight: Insight, row: int, domain: str) -> str:
    """One sample in words: where it comes from, what it is, what was predicted, which basis it leans on."""
    classes = insight.class_names
    lines = [f"{domain}, row {int(insight.rows[row]):,}"]
    if len(classes) and insight.targets.ndim == 1:
        lines.append(f"is {_class(insight, insight.targets[row])}")
        if len(insight.predicted):
            lines[-1] += f", taken for {_class(insight, insight.predicted[row])}"
    elif insight.targets.ndim == 1:
        lines.append(f"is {float(insight.targets[row]):.4g}")
    most = int(insight.beta[row].argmax())
    lines.append(f"most of basis {most + 1} ({float(insight.beta[row, most]):.2f})")
    if len(insight.coverage):
        lines[-1] += f", coverage {float(insight.coverage[row]):.2f}"
    if len(insight.texts):
        lines.append(str(insight.texts[row])[:120])
    return "\n".join(lines)


def _class(insight: Insight, number: np.integer[Any]) -> str:
    return "of no class" if number < 0 else str(insight.class_names[number])


def _floats(values: NDArray[np.float32]) -> tuple[float, ...]:
    return tuple(round(value, 3) for value in values.astype(float).tolist())
