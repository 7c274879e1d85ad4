"""What each part of a recipe is worth: paired differences by data set, one analysis over all, tables and a figure.

`choose_recipe.py` has the parts and the data sets, and writes what is made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from gated_domains.evaluation.metrics import METRICS
from gated_domains.evaluation.statistics import (
    MIN_DATASETS,
    Effect,
    RandomEffects,
    new_domain_effect,
    random_effects,
)
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel, Rule
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.summary import Key, differences
from gated_domains.reports.terminal_table import ABSENT

LARGEST_LOSS = 0.5
LEVEL = 0.90
Scores = dict[str, dict[str, dict[Key, float]]]
"""In percent, by data set, method and (hold-out, domain, seed)."""


@dataclass(frozen=True)
class Part:
    """A part of a recipe: a method with it, and the same method without it."""

    name: str
    with_it: str
    without: str
    also: tuple[tuple[str, str], ...] = ()
    """More pairs (with it, without it); each pair weighs the same in the mean of a held-out domain."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return ((self.with_it, self.without), *self.also)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a part is worth, in points: by data set, and over all."""

    part: Part
    by_set: Mapping[str, Effect]
    pairs: int
    folds: Effect
    """Every held-out domain of every data set as one draw."""
    clustered: Effect
    """The same mean, where folds of one data set may be alike."""
    pooled: RandomEffects | None
    """Data sets as draws."""

    @property
    def decision(self) -> str:
        interval = self.folds.interval(LEVEL)
        if len(self.by_set) < MIN_DATASETS or interval is None:
            return "no decision"
        if self.folds.difference <= 0:
            return "off: no gain on average"
        return "on" if interval.low > -LARGEST_LOSS else f"off: may cost more than {LARGEST_LOSS}"

    def rows(self) -> list[dict[str, Any]]:
        with_it, without = ("; ".join(dict.fromkeys(pair[side] for pair in self.part.pairs)) for side in (0, 1))
        about = {"part": self.part.name, "with": with_it, "without": without}
        pooled = {} if self.pooled is None else {"all data sets": self.pooled.effect}
        rows = []
        over_all = {"all folds, clustered": self.clustered, "all folds": self.folds}
        for name, effect in {**self.by_set, **pooled, **over_all}.items():
            interval = effect.interval(LEVEL)
            ends = (None, None) if interval is None else (interval.low, interval.high)
            numbers = {"points": effect.difference, "standard_error": effect.error, "low90": ends[0], "high90": ends[1]}
            numbers["tau"] = self.pooled.tau if self.pooled is not None and name == "all data sets" else None
            rounded = {key: None if value is None else round(value, 6) for key, value in numbers.items()}
            decision = self.decision if name == "all folds" else None
            rows.append({**about, "dataset": name, **rounded, "n": effect.n, "decision": decision})
        return rows


def measure(part: Part, scores: Scores) -> Finding | None:
    """The paired differences of a part on every data set that has both variants."""
    gaps: dict[str, dict[str, list[float]]] = {}
    pairs = 0
    for name, methods in scores.items():
        for with_it, without in part.pairs:
            for fold, values in differences(methods.get(with_it, {}), methods.get(without, {})).items():
                gaps.setdefault(name, {}).setdefault(fold, []).append(float(np.mean(values)))
                pairs += len(values)
    if not gaps:
        return None
    by_set = {name: new_domain_effect(found) for name, found in gaps.items()}
    everywhere = {f"{name} {fold}": values for name, found in gaps.items() for fold, values in found.items()}
    return Finding(
        part=part,
        by_set=by_set,
        pairs=pairs,
        folds=new_domain_effect(everywhere),
        clustered=clustered([[float(np.mean(values)) for values in found.values()] for found in gaps.values()]),
        pooled=random_effects(list(by_set.values())),
    )


def clustered(folds: Sequence[Sequence[float]]) -> Effect:
    """The mean over the folds of all data sets, with an error that is robust to folds of one set being alike.

    With the difference d_gf on fold f of set g, F folds and G sets: the squared error is
    ``G / (G - 1) sum_g (sum_f (d_gf - mean))^2 / F^2``, with G - 1 degrees of freedom; none for one set.
    """
    every = np.concatenate([np.asarray(found) for found in folds])
    mean, sets = float(every.mean()), len(folds)
    squares = sum(float((np.asarray(found) - mean).sum()) ** 2 for found in folds)
    error = float(np.sqrt(sets / (sets - 1) * squares)) / len(every) if sets > 1 else None
    return Effect(mean, error, float(sets - 1), sets)


def section(findings: Sequence[Finding], missing: Sequence[Part]) -> list[str]:
    """The tables of the page."""
    groups: dict[str, list[str]] = {"on": [], "off": [], "no decision": []}
    for one in findings:
        groups[one.decision.partition(":")[0]].append(f"{one.part.name} ({_points(one.folds.difference)})")
    groups["not run on the choosing sets"] = [part.name for part in missing]
    lines = [f"- **{group.capitalize()}**: {'; '.join(names)}." for group, names in groups.items() if names]
    names = list(dict.fromkeys(name for one in findings for name in one.by_set))
    lines += ["", f"| part | gain (90 %) | decision | {' | '.join(names)} | folds | paired runs |"]
    lines.append("|---|---:|---|" + "---:|" * (len(names) + 2))
    for one in findings:
        cells = [_points(one.by_set[name].difference) if name in one.by_set else ABSENT for name in names]
        counts = f"{one.folds.n} | {one.pairs}"
        lines.append(f"| {one.part.name} | {_text(one.folds)} | {one.decision} | {' | '.join(cells)} | {counts} |")
    lines += ["", "What each row compares:", "", "| part | with it | without it |", "|---|---|---|"]
    for one in findings:
        methods = [", ".join(dict.fromkeys(f"`{pair[side]}`" for pair in one.part.pairs)) for side in (0, 1)]
        lines.append(f"| {one.part.name} | {methods[0]} | {methods[1]} |")
    return lines


def ladder(scores: Scores, steps: Mapping[str, str]) -> list[str]:
    """A table of mean scores by data set: a row per step, over the held-out domains and seeds that all steps share."""
    sets = [name for name, methods in scores.items() if len(methods.keys() & steps.values()) > 2]
    lines = [f"| | {' | '.join(sets)} |", "|---|" + "---:|" * len(sets)]
    shared = {
        name: set.intersection(*(set(scores[name][step]) for step in steps.values() if step in scores[name]))
        for name in sets
    }
    for label, method in steps.items():
        found = [[scores[name][method][key] for key in shared[name]] if method in scores[name] else [] for name in sets]
        lines.append(f"| {label} | {' | '.join(f'{fmean(cells):.1f}' if cells else ABSENT for cells in found)} |")
    counts = [f"{len({fold for fold, *_ in keys})} x {len({seed for *_, seed in keys})}" for keys in shared.values()]
    return [*lines, f"| held-out domains x seeds | {' | '.join(counts)} |"]


def _text(effect: Effect) -> str:
    """``+0.6 (-0.2 to +1.4)``."""
    interval = effect.interval(LEVEL)
    ends = "no interval" if interval is None else f"{_points(interval.low)} to {_points(interval.high)}"
    return f"{_points(effect.difference)} ({ends})"


def _points(value: float) -> str:
    return METRICS["accuracy"].shown_difference(value / 100)


def forest(findings: Sequence[Finding]) -> Chart:
    """A line per part: a dot per data set, and the mean over all folds with its 90 % interval."""
    sets = list(dict.fromkeys(name for one in findings for name in one.by_set))
    palette = Palette(domains=sets)
    marks = [
        Marks(
            name=name,
            x=tuple(one.by_set[name].difference for one in findings if name in one.by_set),
            y=tuple(place - 0.22 for place, one in enumerate(findings) if name in one.by_set),
            colour=palette.domain(name),
            size=5.0,
        )
        for name in sets
    ]
    ends = [one.folds.interval(LEVEL) for one in findings]
    marks.append(
        Marks(
            name="over all folds, 90 % interval",
            x=tuple(one.folds.difference for one in findings),
            y=tuple(place + 0.12 for place in range(len(findings))),
            low=tuple(np.nan if interval is None else interval.low for interval in ends),
            high=tuple(np.nan if interval is None else interval.high for interval in ends),
            interval="x",
            colour="#333333",
            marker="D",
            size=7.0,
        )
    )
    panel = Panel(
        x=Axis(label="points gained on held-out domains (*: statistics of the batch)"),
        y=Axis(categories=tuple(one.part.name for one in findings)),
        marks=tuple(marks),
        rules=(Rule(along="y", at=0.0), Rule(along="y", at=-LARGEST_LOSS)),
    )
    height = 110 + 42 * len(findings)
    return Chart(key="what-helps", title="What each part is worth", caption="", runs=0, panels=(panel,), height=height)
