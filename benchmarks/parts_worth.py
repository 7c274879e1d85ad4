"""What each part of a recipe is worth: paired differences by data set, one analysis over all, tables and a figure.

`choose_recipe.py` has the parts and the data sets, and writes what is made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gated_domains.evaluation.statistics import Effect, RandomEffects, new_domain_effect, random_effects
from gated_domains.reports.against import Key, differences
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel, Rule
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.columns import ABSENT

LARGEST_LOSS = 0.5
LEVEL = 0.90
_HEADING = (
    "| part | points (90 % interval) | decision | cautious lower bound | mean over folds | tau "
    "| data sets | folds | pairs |"
)
Scores = dict[str, dict[str, dict[Key, float]]]
"""In percent, by data set, method and (hold-out, domain, seed)."""


@dataclass(frozen=True)
class Part:
    """A part of a recipe: a method with it, and the same method without it."""

    name: str
    with_it: str
    without: str
    images: bool = False
    """Exists for images only."""
    also: tuple[tuple[str, str], ...] = ()
    """More pairs (with it, without it), whose differences are averaged with those of the first by held-out domain."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return ((self.with_it, self.without), *self.also)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a part is worth, in points: by data set, and over all."""

    part: Part
    by_set: Mapping[str, Effect]
    pairs: int
    fold_mean: float
    pooled: RandomEffects | None

    @property
    def decision(self) -> str:
        if self.pooled is None:
            return "no decision"
        interval = self.pooled.effect.interval(LEVEL)
        if min(self.pooled.effect.difference, self.fold_mean) <= 0 or interval is None:
            return "off: no gain on average"
        return "on" if interval.low > -LARGEST_LOSS else "off: may cost more than 0.5"

    @property
    def text(self) -> str:
        """``+0.6 (-0.2 to +1.4)``; a plain mean over folds where there is no interval."""
        interval = None if self.pooled is None else self.pooled.effect.interval(LEVEL)
        if self.pooled is None or interval is None:
            return f"{self.fold_mean:+.2f} (no interval)"
        return f"{self.pooled.effect.difference:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"

    @property
    def cautious_low(self) -> float | None:
        """The lower bound with a standard error that is never below that of the weights alone.

        Data sets that happen to agree give Hartung and Knapp's interval hardly any width. The usual remedy (Roever,
        Knapp and Friede 2015) takes the larger of their variance and ``1 / sum(w)``, with ``w = 1 / (v + tau^2)``.
        """
        if self.pooled is None or self.pooled.effect.error is None:
            return None
        effect, tau = self.pooled.effect, self.pooled.tau
        weights = sum(1 / (one.error**2 + tau**2) for one in self.by_set.values() if one.error)
        interval = replace(effect, error=max(effect.error or 0.0, weights**-0.5)).interval(LEVEL)
        return None if interval is None else interval.low

    def rows(self) -> list[dict[str, Any]]:
        about = {"part": self.part.name, "with": self.part.with_it, "without": self.part.without}
        effects = {**self.by_set, **({} if self.pooled is None else {"all": self.pooled.effect})}
        rows = []
        for name, effect in effects.items():
            interval = effect.interval(LEVEL)
            ends = (None, None) if interval is None else (interval.low, interval.high)
            numbers = {"points": effect.difference, "standard_error": effect.error, "low90": ends[0], "high90": ends[1]}
            tau = self.pooled.tau if self.pooled is not None and name == "all" else None
            last = {"cautious_low90": self.cautious_low, "decision": self.decision} if name == "all" else {}
            rows.append({**about, "dataset": name, **numbers, "n": effect.n, "tau": tau, **last})
        return rows


def measure(part: Part, scores: Scores) -> Finding | None:
    """The paired differences of a part on every data set that has both variants."""
    gaps: dict[str, dict[str, list[float]]] = {}
    for name, methods in scores.items():
        for with_it, without in part.pairs:
            for fold, values in differences(methods.get(with_it, {}), methods.get(without, {})).items():
                gaps.setdefault(name, {}).setdefault(fold, []).extend(values)
    if not gaps:
        return None
    by_set = {name: new_domain_effect(found) for name, found in gaps.items()}
    folds = [float(np.mean(values)) for found in gaps.values() for values in found.values()]
    pairs = sum(len(values) for found in gaps.values() for values in found.values())
    pooled = random_effects(list(by_set.values()))
    return Finding(part=part, by_set=by_set, pairs=pairs, fold_mean=float(np.mean(folds)), pooled=pooled)


def section(findings: Sequence[Finding], missing: Sequence[Part]) -> list[str]:
    """The tables of the page."""
    groups: dict[str, list[str]] = {"on": [], "off": [], "no decision": []}
    for one in findings:
        groups[one.decision.partition(":")[0]].append(f"{one.part.name} {one.text.partition(' ')[0]}")
    groups["not measured yet"] = [part.name for part in missing]
    lines = [f"- **{group.capitalize()}**: {', '.join(names)}." for group, names in groups.items() if names]
    lines += ["", _HEADING, "|---|---:|---|" + "---:|" * 6]
    for one in findings:
        tau = ABSENT if one.pooled is None else f"{one.pooled.tau:.2f}"
        folds = sum(effect.n for effect in one.by_set.values())
        sets = sum(bool(effect.error) for effect in one.by_set.values())  # others are not in the analysis
        low = ABSENT if one.cautious_low is None else f"{one.cautious_low:+.2f}"
        counts = f"{low} | {one.fold_mean:+.2f} | {tau} | {sets} | {folds} | {one.pairs}"
        lines.append(f"| {one.part.name} | {one.text} | {one.decision} | {counts} |")
    names = list(dict.fromkeys(name for one in findings for name in one.by_set))
    lines += ["", f"| part | with it | without it | {' | '.join(names)} |", "|---|---|---|" + "---:|" * len(names)]
    for one in findings:
        cells = [f"{one.by_set[name].difference:+.2f}" if name in one.by_set else ABSENT for name in names]
        methods = [", ".join(f"`{pair[side]}`" for pair in one.part.pairs) for side in (0, 1)]
        lines.append(f"| {one.part.name} | {methods[0]} | {methods[1]} | {' | '.join(cells)} |")
    return lines


def forest(findings: Sequence[Finding]) -> Chart:
    """A line per part: a dot per data set, and the mean over them with its 90 % interval."""
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
    pooled = [(place, one.pooled.effect) for place, one in enumerate(findings) if one.pooled is not None]
    intervals = [effect.interval(LEVEL) for _, effect in pooled]
    marks.append(
        Marks(
            name="over data sets, 90 % interval",
            x=tuple(effect.difference for _, effect in pooled),
            y=tuple(place + 0.12 for place, _ in pooled),
            low=tuple(np.nan if ends is None else ends.low for ends in intervals),
            high=tuple(np.nan if ends is None else ends.high for ends in intervals),
            interval="x",
            colour="#333333",
            marker="D",
            size=7.0,
        )
    )
    panel = Panel(
        x=Axis(label="points of accuracy gained on held-out domains (right: better)"),
        y=Axis(categories=tuple(one.part.name for one in findings)),
        marks=tuple(marks),
        rules=(Rule(along="y", at=0.0), Rule(along="y", at=-LARGEST_LOSS)),
    )
    height = 110 + 42 * len(findings)
    return Chart(key="what-helps", title="What each part is worth", caption="", runs=0, panels=(panel,), height=height)
