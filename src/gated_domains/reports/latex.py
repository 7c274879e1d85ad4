"""Tables as LaTeX, for a paper: rules of booktabs, nothing else beyond plain LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gated_domains.reports.columns import Column, columns, first_column
from gated_domains.reports.lines import Lines
from gated_domains.reports.numbers import Numbers

_WIDE, _WIDER = 6, 9  # columns
PREAMBLE = "% needs \\usepackage{booktabs}"
SCRIPTS = "\n% names in other scripts than Latin: set it with XeLaTeX or LuaLaTeX"
_LAST_LATIN = 0x17F
_WRITTEN = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<=": r"$\leq$",
    ">=": r"$\geq$",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "\u2013": "--",
    "\u2014": "---",
    "\u2212": "$-$",
    "±": r"$\pm$",
    "\u00d7": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "§": r"\S{}",
    "…": r"\ldots{}",
    "→": r"$\to$",
    "β": r"$\beta$",
    "κ": r"$\kappa$",
    "λ": r"$\lambda$",
    "\u03c3": r"$\sigma$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "--": "-{}-{}",  # two hyphens would become a dash
}
_MEANS_SOMETHING = re.compile("|".join(map(re.escape, _WRITTEN)))
# A hyphen before a number that nothing stands right before is a sign; LaTeX would draw it short.
_MINUS = re.compile(r"(?<![^\s(/])-(?=\d)")


def as_latex(numbers: Numbers, title: str, caption: Sequence[str]) -> str:
    """A comparison as one table: the columns of Markdown without details, the best bold, worse rows grey, notes."""
    chosen = [first_column(numbers), *(column for column in columns(numbers) if column.kind != "detail")]
    rows = [[_cell(column, row, grey=line.worse) for column in chosen] for row, line in enumerate(numbers.rows)]
    heading = [latex_escaped(column.heading) for column in chosen]
    spelled = [column.about for column in columns(numbers) if column.kind == "detail"]
    notes = [line for line in caption if line not in spelled]
    colour = "\n% needs \\usepackage{xcolor}" * any(row.worse for row in numbers.rows)
    return latex_page([_table(heading, rows, title=title, notes=notes)], needs=colour)


def lines_latex(lines: Lines, *, title: str = "", notes: Sequence[str] = ()) -> str:
    """A table given as lines, its heading first. A line break in a heading makes it two rows; in a cell, a comma."""
    heading, *rest = lines
    cells = [[latex_escaped(cell.replace(":\n", ": ").replace("\n", ", ")) for cell in line] for line in rest]
    return _table([_stacked(text) for text in heading], cells, title=title, notes=notes)


def latex_page(parts: Sequence[str], *, needs: str = "") -> str:
    """Tables in one file, with the packages they need at its top."""
    scripts = any(ord(letter) > _LAST_LATIN for part in parts for letter in part)
    return "\n\n".join([PREAMBLE + needs + SCRIPTS * scripts, *parts]) + "\n"


def latex_escaped(text: str) -> str:
    """Text on one line that LaTeX sets letter by letter."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    plain = _MINUS.sub("\u2212", " ".join(shown.split()))
    return _MEANS_SOMETHING.sub(lambda found: _WRITTEN[found[0]], plain)


def _cell(column: Column, row: int, *, grey: bool) -> str:
    text = latex_escaped(column.cells[row])
    if grey:
        return rf"\textcolor{{gray}}{{{text}}}"
    # \boldmath: what stands between dollars is bold as well.
    return rf"\textbf{{\boldmath {text}}}" if column.bold[row] else text


def _stacked(heading: str) -> str:
    """A heading of several lines as a table of its own."""
    lines = [latex_escaped(line) for line in heading.split("\n")]
    if len(lines) == 1:
        return lines[0]
    return r"\begin{tabular}[b]{@{}r@{}}" + r" \\ ".join(lines) + r"\end{tabular}"


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, title: str, notes: Sequence[str]) -> str:
    lines = [
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{latex_escaped(title)}}}"] if title else []),
        *_sized(len(heading)),
        rf"\begin{{tabular}}{{l{'r' * (len(heading) - 1)}}}",
        r"\toprule",
        _row(heading),
        r"\midrule",
        *map(_row, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if notes:
        lines += ["", r"\smallskip", r"\parbox{\linewidth}{\footnotesize"]
        lines += [rf"{latex_escaped(note)}\par" for note in notes]
        lines += ["}"]
    return "\n".join([*lines, r"\end{table}"])


def _sized(columns: int) -> list[str]:
    """Smaller letters and gaps where a table is wide."""
    if columns <= _WIDE:
        return []
    return [r"\small" if columns <= _WIDER else r"\footnotesize", r"\setlength{\tabcolsep}{3pt}"]


def _row(cells: Sequence[str]) -> str:
    # Braces: a cell that begins with a bracket would be taken for the argument of the row before.
    first, *rest = cells
    return " & ".join([f"{{{first}}}" if first.startswith(("[", "*")) else first, *rest]) + r" \\"
