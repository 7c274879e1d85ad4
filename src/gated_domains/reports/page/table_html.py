"""The table of a comparison as HTML: sortable, hold-outs that the filter hides, the best marked, worse rows grey."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.renderers import Lines
from gated_domains.reports.summary import MethodNumbers, Numbers
from gated_domains.reports.terminal_table import Column, columns, first_column

_ORDER = ("summary", "against", "hold-out", "cost", "detail")


def table_html(numbers: Numbers, key: str, *, palette: Palette, caption: list[str]) -> Markup:
    """The table in a box that scrolls sideways, a button for its details, and how to read it."""
    methods = first_column(numbers)
    # What counts stands where nobody has to scroll: many hold-outs are wider than a screen.
    rest = sorted(columns(numbers), key=lambda column: _ORDER.index(column.kind))
    heading = Markup("").join([_heading(methods, row_heading=True), *(_heading(column) for column in rest)])
    lines = Markup("").join(_line(numbers, row, methods, rest, palette) for row in range(len(numbers.rows)))
    more = any(column.kind == "detail" for column in rest)
    button = Markup('<button type="button" data-more="{0}" aria-pressed="false">all columns</button>').format(key)
    notes = Markup("").join(Markup("<li>{0}</li>").format(line) for line in caption)
    return Markup(
        '<div class="wide"><table class="fewer" id="{key}"><thead><tr>{heading}</tr></thead><tbody>{lines}</tbody>'
        '</table></div><p>{button}</p><details class="notes"><summary>How to read it: {count} notes</summary>'
        "<ul>{notes}</ul></details>"
    ).format(key=key, heading=heading, lines=lines, button=button if more else "", count=len(caption), notes=notes)


def lines_html(lines: Lines, *, caption: Sequence[str]) -> Markup:
    """A table given as lines of text, its heading first, in a box that scrolls sideways."""
    heading, *rest = lines
    head = Markup("").join(Markup('<th scope="col">{0}</th>').format(text) for text in heading)
    rows = Markup("").join(
        Markup('<tr><th scope="row">{0}</th>{1}</tr>').format(
            line[0], Markup("").join(Markup("<td>{0}</td>").format(cell) for cell in line[1:])
        )
        for line in rest
    )
    notes = Markup("").join(Markup("<li>{0}</li>").format(line) for line in caption)
    return Markup(
        '<div class="wide"><table><thead><tr>{0}</tr></thead><tbody>{1}</tbody></table></div><ul>{2}</ul>'
    ).format(head, rows, notes)


def _heading(column: Column, *, row_heading: bool = False) -> Markup:
    return Markup('<th scope="col" class="sortable{kind}" tabindex="0"{domain}{about}>{text}</th>').format(
        kind="" if row_heading else f" {column.kind}",
        domain=_domain(column),
        about=Markup(' title="{0}"').format(column.about) if column.about else "",
        text=column.heading,
    )


def _line(numbers: Numbers, row: int, methods: Column, rest: list[Column], palette: Palette) -> Markup:
    swatch = Markup('<span class="swatch" style="background:{0}"></span>').format(
        palette.method(numbers.rows[row].label)
    )
    cells = Markup("").join(
        Markup("<td class='{0}'{1}{2}>{3}</td>").format(
            f"{column.kind}{' best' * column.bold[row]}",
            _domain(column),
            _value(column, numbers.rows[row]),
            column.cells[row],
        )
        for column in rest
    )
    return Markup('<tr{0}><th scope="row" title="{1}">{2}{1}</th>{3}</tr>').format(
        Markup(' class="worse"') if numbers.rows[row].worse else "", methods.cells[row], swatch, cells
    )


def _value(column: Column, row: MethodNumbers) -> Markup:
    """What a column is sorted by, where its text has units: ``45 s``, ``3.4 min``, ``72.0k``."""
    value = _IN_UNITS[column.heading](row) if column.heading in _IN_UNITS and column.kind != "hold-out" else None
    return Markup("") if value is None else Markup(' data-value="{0}"').format(f"{value:.6g}")


def _parameters(row: MethodNumbers) -> float:
    return sum(run.parameters_trained for run in row.runs) / len(row.runs)


_IN_UNITS: dict[str, Callable[[MethodNumbers], float]] = {"time": lambda row: row.seconds, "parameters": _parameters}


def _domain(column: Column) -> Markup:
    if column.kind != "hold-out":
        return Markup("")
    return Markup(' data-domain="{0}"').format(escape(column.heading))
