"""The sections on gates and bases: one gated run of each hold-out, plain GDU before others."""

from __future__ import annotations

from collections.abc import Iterator

from gated_domains.data.errors import DataError
from gated_domains.data.npz import array_headers
from gated_domains.reports.charts import Chart
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures import gdu_gates, gdu_map, gdu_measures, gdu_mmd
from gated_domains.reports.page.cards_html import cards_html
from gated_domains.reports.page.chapters import Chapter, Section, Words
from gated_domains.runs.collection import RunCollection
from gated_domains.runs.folder import PREDICTIONS
from gated_domains.runs.insight import INSIGHT
from gated_domains.runs.result import RunResult

_MOST_SHOWN = 8  # hold-outs
_PLAIN = "gdu"


def gated_sections(chapter: Chapter, gathered: RunCollection, palette: Palette, *, picture_bytes: int) -> list[Section]:
    """Gates, and bases; none where no run has gates. Pictures of all maps share ``picture_bytes``."""
    shown = shown_runs(chapter, gathered)
    if not shown:
        return []
    sections = [Section(key="gates", title="Gates", items=tuple(_gates(chapter, shown, gathered, palette)))]
    insights = {run.hold_out: found for run in shown if (found := gathered.insight(run)) is not None}
    items: list[Chart | Words] = []
    for run in shown:
        if (insight := insights.get(run.hold_out)) is None:
            continue
        share = picture_bytes // len(insights)
        items.append(gdu_map.chart(run, insight, palette=palette, most_bytes=share))
        cards = cards_html(run, insight, chapter.comparison.numbers.metric, palette=palette)
        items.append(Words(html=cards, domain=run.hold_out))
        items.append(gdu_mmd.chart(run, insight))
    if items:
        sections.append(
            Section(
                key="bases",
                title="Bases",
                items=tuple(items),
                words="What the learned bases stand for: where they lie among the samples, which samples are nearest, "
                "whose weight they carry, and what dropping one costs.",
            )
        )
    return [section for section in sections if section.items]


def shown_runs(chapter: Chapter, gathered: RunCollection) -> list[RunResult]:
    """Of each hold-out the gated run that is shown: one with an insight, of plain GDU, of the first seed."""
    found: list[RunResult] = []
    for hold_out in chapter.comparison.numbers.hold_outs:
        runs = [run for run in chapter.results if run.hold_out == hold_out]
        runs.sort(key=lambda run: (not (gathered.folder(run) / INSIGHT).exists(), run.method != _PLAIN, run.seed))
        tried: set[tuple[str, str]] = set()
        for run in runs:  # the runs of one row have gates, or have none
            if (run.method, run.label) in tried:
                continue
            tried.add((run.method, run.label))
            if _has_gates(run, gathered):
                found.append(run)
                break
        if len(found) == _MOST_SHOWN:
            break
    return found


def _gates(chapter: Chapter, shown: list[RunResult], gathered: RunCollection, palette: Palette) -> Iterator[Chart]:
    for run in shown:
        arrays = gathered.predictions(run, "beta", "domains", "coverage")
        if arrays is not None and (gates := gdu_gates.chart(run, arrays, palette=palette)) is not None:
            yield gates
    row = (shown[0].method, shown[0].label)
    same = [run for run in chapter.results if (run.method, run.label) == row]
    if (measures := gdu_measures.chart(same, gathered, palette=palette)) is not None:
        yield measures


def _has_gates(run: RunResult, gathered: RunCollection) -> bool:
    path = gathered.folder(run) / PREDICTIONS
    if (gathered.folder(run) / INSIGHT).exists():
        return True
    try:
        return path.exists() and "beta" in array_headers(path)
    except DataError as error:
        gathered.note(path, str(error))
        return False
