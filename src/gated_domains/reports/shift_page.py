"""A small page of a new site: the answer in a sentence, then its figures. Complete in itself, as the large one is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from gated_domains.data.errors import DataError, written_whole
from gated_domains.reports.charts import Chart
from gated_domains.reports.figures import site_shift as figures
from gated_domains.reports.page.chapters import Section, Words
from gated_domains.reports.page.rendering import chapter_of, render
from gated_domains.reports.shift_words import percent, sentences, whose
from gated_domains.runs.site_shift import SiteShift

_SECTIONS = {
    "shift-distances": "Distance",
    "shift-novelty": "Novelty",
    "shift-mixture": "Mixture",
    "shift-accuracy": "Accuracy",
}


def check_page(path: str | os.PathLike[str]) -> None:
    """Refuse what is no place for a page; asked before the work, not after it."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise DataError(f"--out {path}: it is a page; give a name that ends in .html, or --no-page")
    if path.is_dir():
        raise DataError(f"--out {path} is a folder; name a page in it: {path / 'shift.html'}")


def write_shift_page(shift: SiteShift, path: str | os.PathLike[str]) -> Path:
    """Write the page, whole or not at all."""
    check_page(path)
    with written_whole(Path(path)) as draft:
        draft.write_text(shift_html(shift), encoding="utf-8", errors="replace", newline="")
    return Path(path)


def shift_html(shift: SiteShift) -> str:
    """The page of a new site."""
    answer, *rest = sentences(shift)
    title = f"{shift.data} beside the sources of training"
    chapter = chapter_of(
        "c1",
        title=title,
        answer=answer,
        details=rest,
        asked=_asked(shift),
        sections=[_section(chart, shift) for chart in figures.charts(shift)],
        files=None,
    )
    return render([chapter], title=title, footer=f"from {shift.model}.")


def _section(chart: Chart, shift: SiteShift) -> Section:
    items: tuple[Chart | Words, ...] = (chart,)
    if chart.key == "shift-mixture":
        items = (chart, Words(html=_table(shift)))
    return Section(key=chart.key.removeprefix("shift-"), title=_SECTIONS[chart.key], items=items)


def _asked(shift: SiteShift) -> list[tuple[str, str]]:
    rows = f"{shift.rows:,} rows" + (f" of {shift.all_rows:,}" if shift.rows < shift.all_rows else "")
    found = [
        ("model", f"{shift.label}, {shift.model}"),
        ("new site", f"{shift.data}, {rows}"),
        ("compared with", f"{shift.compared_rows:,} {shift.compared}"),
    ]
    return [*found, *(("note", note) for note in shift.notes)]


def _table(shift: SiteShift) -> Markup:
    names = [source.name for source in shift.sources]
    heads = ["basis", "the site", f"{percent(shift.level)} interval", *names, "stands for"]
    rows = [
        [
            str(basis.basis),
            percent(basis.share),
            f"{100 * basis.low:.0f} to {percent(basis.high)}",
            *(percent(source.mixture[place]) for source in shift.sources),
            whose(basis, names),
        ]
        for place, basis in enumerate(shift.mixture)
    ]
    return Markup('<div class="wide"><table class="text"><thead>{}</thead><tbody>{}</tbody></table></div>').format(
        _row(heads, "th"), Markup("").join(_row(row, "td") for row in rows)
    )


def _row(cells: Sequence[str], tag: str) -> Markup:
    opening, closing = Markup(f"<{tag}>"), Markup(f"</{tag}>")
    return Markup("<tr>") + Markup("").join(opening + escape(cell) + closing for cell in cells) + Markup("</tr>")
