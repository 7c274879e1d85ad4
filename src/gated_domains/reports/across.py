"""One answer over several data sets: a random-effects analysis of differences to the baseline, and a forest plot."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gated_domains.data.errors import listing
from gated_domains.evaluation.metrics import Metric
from gated_domains.evaluation.statistics import (
    MIN_DATASETS,
    MIN_DOMAINS,
    SIGNIFICANT,
    Effect,
    RandomEffects,
    Verdict,
    decide,
    domains_to_decide,
    holm,
    random_effects,
)
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel, Rule
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures.dodging import band_height, offset
from gated_domains.reports.figures.runs import drawn
from gated_domains.reports.renderers import Lines, blocks, lines_rich
from gated_domains.reports.summary import Numbers
from gated_domains.reports.terminal_table import ABSENT, about, effect_text, interval_text, p_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_ALL = "all data sets"


@dataclass(frozen=True, kw_only=True)
class MethodAcross:
    """A method against the baseline on several data sets, and over all of them."""

    label: str
    by_dataset: Mapping[str, Effect]
    pooled: RandomEffects
    holm: float | None
    verdict: Verdict | None
    needed: int | None
    """About how many data sets would decide an undecided difference."""


@dataclass(frozen=True, kw_only=True)
class AcrossDatasets:
    """The differences to the baseline over several data sets, each with at least four held-out domains."""

    metric: Metric
    baseline: str
    datasets: tuple[str, ...]
    rows: tuple[MethodAcross, ...]
    runs: int

    @property
    def title(self) -> str:
        return f"{len(self.datasets)} data sets together: difference in {self.metric.label} to {self.baseline}"

    def sentences(self) -> list[str]:
        """One sentence per method, the best first."""
        metric, holm = self.metric, "Holm " * (len(self.rows) > 1)
        ranked = sorted(self.rows, key=lambda row: -metric.as_gain(row.pooled.effect.difference))
        return [
            f"{row.label} over {row.pooled.effect.n} data sets: "
            f"{metric.shown_difference(row.pooled.effect.difference)}{metric.unit} to {self.baseline} on a new data "
            f"set (95 % interval {interval_text(row.pooled.effect.interval(), metric)}, {holm}p {p_text(row.holm)}): "
            f"{row.verdict}{self._needed(row)}."
            for row in ranked
        ]

    def caption(self) -> list[str]:
        """How the analysis was made."""
        return [
            f"Data sets: {listing(self.datasets, 20)}. Each enters with its mean difference over held-out domains and "
            f"the variance of that mean; data sets with fewer than {MIN_DOMAINS} held-out domains, or with the same "
            "difference on all of them, take no part.",
            "Random-effects analysis by DerSimonian and Laird with the adjustment of Hartung and Knapp; tau is the "
            "standard deviation of the true differences between data sets.",
        ]

    def lines(self) -> Lines:
        """The table as text, its heading first."""
        p = "p (Holm)" if len(self.rows) > 1 else "p"
        heading = ["method", *self.datasets, _ALL, p, "tau", "verdict"]
        return [heading, *(self._line(row) for row in self.rows)]

    def csv(self) -> str:
        """One line per method and data set, unrounded, and one for all data sets."""
        text = io.StringIO()
        fields = (
            "method",
            "data",
            "difference",
            "low",
            "high",
            "p_value",
            "standard_error",
            "df",
            "n",
            "holm_p_value",
            "tau",
            "verdict",
        )
        writer = csv.DictWriter(text, fieldnames=fields, lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            for name, effect in row.by_dataset.items():
                writer.writerow({"method": row.label, "data": name, **effect.as_json()})
            pooled = {"holm_p_value": row.holm, "tau": row.pooled.tau, "verdict": row.verdict}
            writer.writerow({"method": row.label, "data": _ALL, **row.pooled.effect.as_json(), **pooled})
        return text.getvalue()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        yield Text(self.title)
        for sentence in self.sentences():
            yield Text(sentence, style="bold")
        for block in blocks(self.lines(), options.max_width):
            yield lines_rich(block)
        for line in self.caption():
            yield Text(line, style="dim")

    def chart(self, palette: Palette) -> Chart:
        """A forest plot: a line per data set, the pooled difference last."""
        names = (*self.datasets, _ALL)
        marks = [
            self._marks(row, name, place + offset(number, len(self.rows)), palette)
            for number, row in enumerate(self.rows)
            for place, name in enumerate(names)
            if name == _ALL or name in row.by_dataset
        ]
        better = "right" if self.metric.higher_is_better else "left"
        unit = self.metric.unit and f" in{self.metric.unit}"
        panel = Panel(
            x=Axis(label=f"difference to {self.baseline}{unit} ({better}: better)"),
            y=Axis(categories=names),
            marks=tuple(marks),
            rules=(Rule(along="y", at=0.0),),
        )
        return Chart(
            key="forest",
            title=self.title,
            caption="Mean difference on a new domain with its 95 % interval by data set; diamonds: over all data sets.",
            runs=self.runs,
            panels=(panel,),
            height=90 + len(names) * band_height(len(self.rows)),
        )

    def _needed(self, row: MethodAcross) -> str:
        return "" if row.needed is None else f"; about {about(row.needed)} data sets would decide it"

    def _line(self, row: MethodAcross) -> list[str]:
        by_dataset = (row.by_dataset.get(name) for name in self.datasets)
        return [
            row.label,
            *(ABSENT if effect is None else effect_text(effect, self.metric) for effect in by_dataset),
            effect_text(row.pooled.effect, self.metric),
            p_text(row.holm),
            self.metric.shown(row.pooled.tau),
            row.verdict or ABSENT,
        ]

    def _marks(self, row: MethodAcross, name: str, y: float, palette: Palette) -> Marks:
        pooled = name == _ALL
        effect = row.pooled.effect if pooled else row.by_dataset[name]
        interval = effect.interval()
        ends = (math.nan, math.nan) if interval is None else (interval.low, interval.high)
        units = "data sets" if pooled else "held-out domains"
        return Marks(
            name=row.label,
            x=(drawn(effect.difference, self.metric),),
            y=(y,),
            colour=palette.method(row.label),
            marker="D" if pooled else palette.marker(row.label),
            size=10.0 if pooled else 7.0,
            low=(drawn(ends[0], self.metric),),
            high=(drawn(ends[1], self.metric),),
            interval="x",
            legend=pooled,
            hover=(f"{row.label}, {name}: {effect_text(effect, self.metric)}\n{effect.n} {units}",),
        )


def across_datasets(comparisons: Sequence[Numbers]) -> AcrossDatasets | None:
    """The analysis over comparisons on different data sets; None with fewer than three of one metric and baseline."""
    groups: dict[tuple[str, str], list[Numbers]] = {}
    for numbers in comparisons:
        if numbers.baseline is not None:
            groups.setdefault((numbers.metric.label, numbers.baseline.method), []).append(numbers)
    group = max(groups.values(), key=len, default=[])
    if len(group) < MIN_DATASETS or group[0].baseline is None:
        return None
    named = dict(zip(_distinct([numbers.data for numbers in group]), group, strict=True))
    effects: dict[str, dict[str, Effect]] = {}
    for name, numbers in named.items():
        for row in numbers.rows:
            if row.against is not None and row.against.new_domain.error:
                effects.setdefault(row.label, {})[name] = row.against.new_domain
    pooled = {label: found for label, by in effects.items() if (found := random_effects(list(by.values()))) is not None}
    if not pooled:
        return None
    metric, margin = group[0].metric, group[0].margin
    corrected = holm([found.effect.p_value for found in pooled.values()])
    rows = []
    for (label, found), p in zip(pooled.items(), corrected, strict=True):
        verdict = decide(found.effect, margin=margin, p_value=p, higher_is_better=metric.higher_is_better)
        level = SIGNIFICANT / len(pooled)
        needed = domains_to_decide(found.effect, margin=margin, level=level) if verdict == "undecided" else None
        by_dataset = effects[label]
        rows.append(
            MethodAcross(label=label, by_dataset=by_dataset, pooled=found, holm=p, verdict=verdict, needed=needed)
        )
    used = tuple(name for name in named if any(name in row.by_dataset for row in rows))
    runs = sum(len(row.runs) for name in used for row in named[name].rows)
    return AcrossDatasets(metric=metric, baseline=group[0].baseline.label, datasets=used, rows=tuple(rows), runs=runs)


def _distinct(names: Sequence[str]) -> list[str]:
    """Names made distinct by numbers."""
    return [
        f"{name} ({names[:index].count(name) + 1})" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]
