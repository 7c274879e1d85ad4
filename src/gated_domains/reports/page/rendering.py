"""From chapters to HTML: figures as plotly takes them, everything else escaped by the template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

import gated_domains
from gated_domains.reports.charts import Chart
from gated_domains.reports.charts.drawn import KINDS, file_name
from gated_domains.reports.charts.on_page import plotly_figure
from gated_domains.reports.page.assets import asset, packed_plotly
from gated_domains.reports.page.chapters import Section, Words
from gated_domains.runs.collection import Broken

_MOST_BROKEN = 200
_MOST_BUTTONS = 24


@dataclass(frozen=True)
class Item:
    """A figure as the template takes it."""

    chart: Chart
    key: str
    json: Markup
    height: int
    domain: str | None
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Files:
    """The folder beside the page, and the kinds of figures that are written there."""

    folder: str
    kinds: Sequence[str] = KINDS

    def links(self, chart: Chart) -> tuple[tuple[str, str], ...]:
        """The files of a figure, and where they lie seen from the page."""
        start = f"./{quote(self.folder)}/{file_name(chart.key)}"  # of a folder called a#b or javascript: too
        return tuple((kind.upper(), f"{start}.{kind}") for kind in (*self.kinds, "csv"))


def render(
    chapters: Sequence[Mapping[str, Any]],
    *,
    title: str,
    footer: str,
    heading: str | None = None,
    hold_outs: Sequence[str] = (),
    broken: Sequence[Broken] = (),
) -> str:
    """The page of these chapters, each as ``chapter_of`` gives it."""
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(asset("page.html.j2"))
    return template.render(
        title=title,
        heading=heading,
        version=gated_domains.__version__,
        css=Markup(asset("page.css")),
        js=Markup(asset("page.js")),
        plotly=Markup(packed_plotly()),
        chapters=chapters,
        domains=hold_outs,
        most_buttons=_MOST_BUTTONS,
        broken=broken[:_MOST_BROKEN],
        broken_words=_broken_words(len(broken)),
        footer=f"Made by gated-domains {gated_domains.__version__} {footer} "
        "The page is complete in itself: nothing is fetched.",
    )


def chapter_of(
    key: str,
    *,
    title: str,
    answer: str,
    details: Sequence[str],
    asked: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    files: Files | None,
    oracle: bool = False,
) -> dict[str, Any]:
    """A chapter as the template takes it."""
    return {
        "key": key,
        "title": title,
        "oracle": oracle,
        "answer": answer,
        "details": details,
        "asked": asked,
        "sections": [
            {
                "key": section.key,
                "title": section.title,
                "words": section.words,
                "domains": _all_of_domains(section),
                "items": [_item(item, files) for item in section.items],
            }
            for section in sections
        ],
    }


def _item(item: Chart | Words, files: Files | None) -> Words | Item:
    if isinstance(item, Words):
        return item
    figure = plotly_figure(item)
    text = json.dumps(figure, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    # Inside a script element nothing may look like its end, whatever a domain is called.
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    safe = safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    links = () if files is None else files.links(item)
    height = int(figure["layout"].get("height", item.height))
    return Item(chart=item, key=item.key, json=Markup(safe), height=height, domain=_domain_of(item), files=links)


def _domain_of(item: Chart | Words) -> str | None:
    """The hold-out that all of a figure is of; None where it is of several."""
    if isinstance(item, Words):
        return item.domain
    found = {panel.domain for panel in item.panels}
    return found.pop() if len(found) == 1 else None


def _all_of_domains(section: Section) -> list[str]:
    """The hold-outs that a section is of; none where something in it is of all."""
    found = [_domain_of(item) for item in section.items]
    return [] if None in found else [name for name in dict.fromkeys(found) if name is not None]


def _broken_words(count: int) -> str:
    shown = min(count, _MOST_BROKEN)
    more = f"; the first {shown} are named" if shown < count else ""
    return f"{count:,} folder{'s' * (count != 1)} or file{'s' * (count != 1)} took no part{more}."
