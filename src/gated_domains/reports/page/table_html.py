"""The table of a comparison as HTML: sortable, hold-outs that the filter hides, best and tied for best marked."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup, escape

from gated_domains.reports.charts.palette import Palette
from gated_domains.reports.columns import Column, columns, first_column
from gated_domains.reports.numbers import MethodNumbers, Numbers


def table_html(numbers: Numbers, key: str, *, palette: Palette, caption: list[str]) -> Markup:
    """The table in a box that scrolls sideways, a button for its details, and how to read it."""
    methods, rest = first_column(numbers), columns(numbers)
    heading = Markup("").join([_heading(methods, row_heading=True), *(_heading(column) for column in rest)])
    top = _best(numbers)
    lines = Markup("").join(_line(numbers, row, methods, rest, palette, top) for row in range(len(numbers.rows)))
    more = any(column.kind == "detail" for column in rest)
    button = Markup('<button type="button" data-more="{0}" aria-pressed="false">all columns</button>').format(key)
    notes = Markup("").join(Markup("<li>{0}</li>").format(line) for line in caption)
    return Markup(
        '<div class="wide"><table class="fewer" id="{key}"><thead><tr>{heading}</tr></thead><tbody>{lines}</tbody>'
        '</table></div><p>{button}</p><details class="notes"><summary>How to read it: {count} notes</summary>'
        "<ul>{notes}</ul></details>"
    ).format(key=key, heading=heading, lines=lines, button=button if more else "", count=len(caption), notes=notes)


def _best(numbers: Numbers) -> int | None:
    """The row whose mean is best."""
    means = {place: row.mean.mean for place, row in enumerate(numbers.rows) if row.mean is not None}
    return max(means, key=lambda place: numbers.metric.as_gain(means[place]), default=None)


def _heading(column: Column, *, row_heading: bool = False) -> Markup:
    return Markup('<th scope="col" class="sortable{kind}" tabindex="0"{domain}{about}>{text}</th>').format(
        kind="" if row_heading else f" {column.kind}",
        domain=_domain(column),
        about=Markup(' title="{0}"').format(column.about) if column.about else "",
        text=column.heading,
    )


def _line(numbers: Numbers, row: int, methods: Column, rest: list[Column], palette: Palette, top: int | None) -> Markup:
    swatch = Markup('<span class="swatch" style="background:{0}"></span>').format(
        palette.method(numbers.rows[row].label)
    )
    cells = Markup("").join(
        Markup("<td class='{0}'{1}{2}>{3}</td>").format(
            _class(column, row, top), _domain(column), _value(column, numbers.rows[row]), column.cells[row]
        )
        for column in rest
    )
    return Markup('<tr><th scope="row" title="{0}">{1}{2}</th>{3}</tr>').format(
        methods.cells[row], swatch, methods.cells[row], cells
    )


def _class(column: Column, row: int, top: int | None) -> str:
    mark = ("best" if row == top else "tied") if column.bold[row] else ""
    return f"{column.kind} {mark}".strip()


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
