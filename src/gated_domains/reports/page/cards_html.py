"""Cards: what each basis stands for, with its nearest training samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from gated_domains.evaluation.metrics import Metric
from gated_domains.reports.card_words import card_line
from gated_domains.reports.charts.palette import CLASS_COLOURS, Palette
from gated_domains.reports.sprites import picture_uri, strip
from gated_domains.runs.insight import Insight
from gated_domains.runs.result import RunResult

_MOST_SHARES = 12
_MOST_COLUMNS = 6


def cards_html(result: RunResult, insight: Insight, metric: Metric, *, palette: Palette) -> Markup:
    """A heading, and a card a basis, those with most weight first."""
    order = np.argsort(-insight.mass, kind="stable").tolist()
    cards = Markup("").join(_card(insight, basis, metric, palette) for basis in order)
    return Markup('<h3>{0}, {1} held out</h3><div class="cards">{2}</div>').format(result.label, result.hold_out, cards)


def _card(insight: Insight, basis: int, metric: Metric, palette: Palette) -> Markup:
    domains = insight.domain_names.tolist()
    shares = _shares("domains", insight.domain_share[basis], domains, [palette.domain(name) for name in domains])
    if insight.class_share.size:
        colours = [CLASS_COLOURS[place % len(CLASS_COLOURS)] for place in range(len(insight.class_names))]
        shares += _shares("classes", insight.class_share[basis], insight.class_names.tolist(), colours)
    return Markup(
        '<div class="card"><h4><span>basis {number}</span><span class="quiet">weight {mass}</span></h4>'
        "<p>{line}</p>{nearest}{shares}</div>"
    ).format(
        number=basis + 1,
        mass=f"{float(insight.mass[basis]):.3f}",
        line=card_line(insight, basis, metric).partition(": ")[2],
        nearest=_nearest(insight, basis),
        shares=shares,
    )


def _shares(what: str, shares: NDArray[np.float32], names: Sequence[str], colours: Sequence[str]) -> Markup:
    """A bar of parts, the largest named below it."""
    largest = np.argsort(-shares, kind="stable")[:_MOST_SHARES]
    parts = Markup("").join(
        Markup('<i style="width:{0}%;background:{1}" title="{2}: {3} %"></i>').format(
            f"{100 * shares[place]:.2f}", colours[place], names[place], f"{100 * shares[place]:.0f}"
        )
        for place in largest.tolist()
        if shares[place] > 0
    )
    named = Markup("").join(
        Markup('<span><i style="background:{0}"></i>{1} {2} %</span>').format(
            colours[place], names[place], f"{100 * shares[place]:.0f}"
        )
        for place in largest[:4].tolist()
        if shares[place] >= 0.005
    )
    return Markup('<div class="shares" aria-label="share of {0}">{1}</div><div class="legend">{2}</div>').format(
        what, parts, named
    )


def _nearest(insight: Insight, basis: int) -> Markup:
    """The nearest samples, as their kind is looked at: pictures, lines of text, rows of a table."""
    if insight.nearest_pictures.size:
        uri = picture_uri(strip(insight.nearest_pictures[basis]))
        said = ", ".join(_domain(insight, place) for place in insight.nearest_domains[basis].tolist())
        return Markup('<img class="strip" src="{0}" alt="nearest training samples, of {1}" title="{1}">').format(
            uri, said
        )
    if insight.nearest_values.size:
        return _rows(insight, basis)
    if insight.nearest_texts.size:
        lines = Markup("").join(Markup("<li>{0}</li>").format(text) for text in insight.nearest_texts[basis].tolist())
        return Markup("<ol>{0}</ol>").format(lines)
    return Markup("")


def _domain(insight: Insight, place: int) -> str:
    return str(insight.domain_names[place]) if place >= 0 else "another source"


def _rows(insight: Insight, basis: int) -> Markup:
    columns = insight.nearest_columns.tolist()[:_MOST_COLUMNS]
    heading = Markup("").join(Markup("<th>{0}</th>").format(name) for name in columns)
    lines = Markup("").join(
        Markup("<tr>{0}</tr>").format(
            Markup("").join(Markup("<td>{0}</td>").format(value) for value in row[: len(columns)].tolist())
        )
        for row in insight.nearest_values[basis]
    )
    return Markup('<div class="wide"><table><thead><tr>{0}</tr></thead><tbody>{1}</tbody></table></div>').format(
        heading, lines
    )
