"""Putting the page together, and writing it with its figures and tables beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from gated_domains.data.errors import DataError, listing, written_whole
from gated_domains.reports.across import across_datasets
from gated_domains.reports.charts import Chart
from gated_domains.reports.charts.drawn import KINDS, write_chart
from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.figures import comparison_charts
from gated_domains.reports.page.chapters import Chapter, Section, Words, chapters
from gated_domains.reports.page.gated import gated_sections
from gated_domains.reports.page.rendering import Files, chapter_of, render
from gated_domains.reports.page.table_html import lines_html, table_html
from gated_domains.reports.renderers import write_texts
from gated_domains.reports.summary import Numbers
from gated_domains.runs.collection import RunCollection

MOST_BYTES = 6_000_000
_PICTURE_BYTES = 2_000_000  # of all maps together
_SECTIONS = {
    "scores": ("Scores", ("scores", "differences", "worst_mean", "in_out")),
    "training": ("Training", ("curves",)),
    "mistakes": ("Calibration and mistakes", ("reliability", "confusion")),
    "cost": ("Cost", ("cost",)),
}
"""Of every comparison, with the names of their figures; those on gates and bases come after."""
Say = Callable[[str], None]


class Page:
    """The page of some runs: chapters of sections of figures and tables."""

    def __init__(
        self,
        gathered: RunCollection,
        *,
        baseline: str = "erm",
        title: str | None = None,
        margin: float | None = None,
        machine: str | None = None,
    ) -> None:
        self.gathered, self.heading = gathered, title
        self.chapters = chapters(gathered, baseline=baseline, margin=margin, machine=machine)
        self.title = title or f"{listing([chapter.comparison.numbers.data for chapter in self.chapters], 3)}: report"
        rows = [(row.method, row.label) for chapter in self.chapters for row in chapter.comparison.numbers.rows]
        self.palette = Palette(rows, self._domains())
        for chapter in self.chapters:
            chapter.sections.extend(self._sections(chapter))
        # The same data with another network is not another data set: the first comparison on it counts.
        by_rows: dict[str, Numbers] = {}
        for chapter in self.chapters:
            by_rows.setdefault(chapter.rows_of(gathered), chapter.comparison.numbers)
        self.across = across_datasets(list(by_rows.values()))

    @property
    def charts(self) -> list[Chart]:
        """Every figure, by a key of its own."""
        forest = [] if self.across is None else [self.across.chart(self.palette)]
        return forest + [
            item
            for chapter in self.chapters
            for section in chapter.sections
            for item in section.items
            if isinstance(item, Chart)
        ]

    def html(self, files: Files | None = None) -> str:
        """The page; figures are linked where ``files`` says that they lie."""
        return render(
            [*self._across(files), *(self._for_template(chapter, files) for chapter in self.chapters)],
            title=self.title,
            heading=self.heading,
            footer=f"from {sum(len(chapter.results) for chapter in self.chapters)} run folders.",
            hold_outs=self._hold_outs(),
            broken=self.gathered.broken,
        )

    def write(
        self, path: str | os.PathLike[str], *, kinds: Sequence[str] = KINDS, say: Say = lambda line: None
    ) -> list[Path]:
        """Write the page, and beside it a folder with every figure and table; the paths, the page first."""
        path = Path(path)
        folder = path.with_name(f"{path.stem}_files")
        written = []
        for chapter in self.chapters:
            written += chapter.comparison.write(folder if len(self.chapters) == 1 else folder / chapter.key)
        if self.across is not None:
            written += write_texts(folder, {"across.csv": self.across.csv()})
        say("the page")
        files = Files(folder.name, kinds)
        html = self.html(files)
        if len(html.encode()) > MOST_BYTES:
            html = self._smaller().html(files)
        with written_whole(path) as draft:
            draft.write_text(html, encoding="utf-8", errors="replace", newline="")
        charts = self.charts
        for number, chart in enumerate(charts, 1):
            say(f"figure {number} of {len(charts)}: {chart.title}")
            written += write_chart(chart, folder, kinds=kinds)
        return [path, *written]

    def _sections(self, chapter: Chapter) -> list[Section]:
        comparison = chapter.comparison
        table = table_html(
            comparison.numbers, f"{chapter.key}-table-all", palette=self.palette, caption=comparison.caption
        )
        found = [Section(key="table", title="Table", items=(Words(html=table),))]
        charts = comparison_charts(comparison.numbers, self.gathered, self.palette)
        for key, (title, names) in _SECTIONS.items():
            if items := tuple(charts[name] for name in names if name in charts):
                found.append(Section(key=key, title=title, items=items))
        found += gated_sections(
            chapter, self.gathered, self.palette, picture_bytes=_PICTURE_BYTES // len(self.chapters)
        )
        return [replace(section, items=tuple(map(self._keyed(chapter), section.items))) for section in found]

    def _keyed(self, chapter: Chapter) -> Callable[[Chart | Words], Chart | Words]:
        """Figures by keys that name a file, and no two alike."""
        taken: set[str] = set()

        def keyed(item: Chart | Words) -> Chart | Words:
            if isinstance(item, Words):
                return item
            plain = re.sub(r"[^A-Za-z0-9]+", "-", item.key).strip("-").lower()[:60] or "figure"
            key = next(key for key in _numbered(plain) if key not in taken)
            taken.add(key)
            return replace(item, key=key if len(self.chapters) == 1 else f"{chapter.key}-{key}")

        return keyed

    def _for_template(self, chapter: Chapter, files: Files | None) -> dict[str, Any]:
        return chapter_of(
            chapter.key,
            title=chapter.comparison.title,
            answer=chapter.comparison.headline(),
            details=chapter.comparison.details(),
            asked=chapter.asked(self.gathered),
            sections=chapter.sections,
            files=files,
            oracle=chapter.comparison.numbers.oracle,
        )

    def _across(self, files: Files | None) -> list[dict[str, Any]]:
        """The chapter over all data sets, before the others; none with fewer than three data sets."""
        if self.across is None:
            return []
        table = Words(html=lines_html(self.across.lines(), caption=self.across.caption()))
        section = Section(key="forest", title="All data sets", items=(self.across.chart(self.palette), table))
        answer, *details = self.across.sentences()
        return [
            chapter_of(
                "across", title=self.across.title, answer=answer, details=details, asked=(), sections=[section],
                files=files,
            )
        ]  # fmt: skip

    def _smaller(self) -> Page:
        """The same without the pictures behind points, which are most of a large page."""
        for chapter in self.chapters:
            chapter.sections[:] = [
                replace(section, items=tuple(_without_pictures(item) for item in section.items))
                for section in chapter.sections
            ]
        return self

    def _hold_outs(self) -> list[str]:
        return list(dict.fromkeys(name for chapter in self.chapters for name in chapter.comparison.numbers.hold_outs))

    def _domains(self) -> Iterable[str]:
        for chapter in self.chapters:
            for run in chapter.results:
                yield from run.domain_names or (*run.sources, *run.held_out)
        yield from self._hold_outs()


def write_page(
    gathered: RunCollection,
    path: str | os.PathLike[str],
    *,
    baseline: str = "erm",
    title: str | None = None,
    margin: float | None = None,
    machine: str | None = None,
    kinds: Sequence[str] = KINDS,
    say: Say = lambda line: None,
) -> list[Path]:
    """The page of these runs, and its figures and tables in ``NAME_files`` beside it; all paths, the page first."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise DataError(f"{path}: the report is a page; give a name that ends in .html")
    say(f"{len(gathered.results):,} runs")
    page = Page(gathered, baseline=baseline, title=title, margin=margin, machine=machine)
    return page.write(path, kinds=kinds, say=say)


def _numbered(key: str) -> Iterator[str]:
    """``gates``, ``gates-2``, ``gates-3``, and so on."""
    yield key
    for number in count(2):
        yield f"{key}-{number}"


def _without_pictures(item: Chart | Words) -> Chart | Words:
    return item if isinstance(item, Words) else replace(item, sprite="")


def write_charts(
    charts: Sequence[Chart],
    path: str | os.PathLike[str],
    *,
    title: str,
    asked: Sequence[tuple[str, str]] = (),
    files: Files | None = None,
) -> Path:
    """A page of figures that are of no comparison, a section each."""
    sections = [Section(key=f"of-{chart.key}", title=chart.title, items=(chart,)) for chart in charts]
    chapter = chapter_of("c1", title=title, answer="", details=(), asked=asked, sections=sections, files=files)
    runs = sum(chart.runs for chart in charts)
    with written_whole(Path(path)) as draft:
        html = render([chapter], title=title, footer=f"from {runs} runs.")
        draft.write_text(html, encoding="utf-8", errors="replace", newline="")
    return Path(path)
