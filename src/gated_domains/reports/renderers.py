"""Tables in files: a comparison as Markdown, LaTeX (booktabs), CSV and JSON; any table given as lines of text.

CSV (a line a method, a line a run) and JSON are for machines: nothing in them is rounded.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gated_domains.data.errors import written_whole
from gated_domains.evaluation.statistics import Spread, spread
from gated_domains.reports.summary import PERCENTILE, MethodNumbers, Numbers
from gated_domains.reports.terminal_table import Column, columns, first_column

if TYPE_CHECKING:
    from rich.table import Table

Lines = list[list[str]]
_GAP = 2
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
_LATEX_MARKS = re.compile("|".join(map(re.escape, _WRITTEN)))
# A hyphen before a number that nothing stands right before is a sign; LaTeX would draw it short.
_MINUS = re.compile(r"(?<![^\s(/])-(?=\d)")
FORMAT = 2


def as_markdown(numbers: Numbers, *, title: str, verdict: str, caption: Sequence[str]) -> str:
    """The whole page."""
    methods, rest = first_column(numbers), columns(numbers)
    lines = [
        _markdown_row([escaped(methods.heading), *(escaped(column.heading) for column in rest)]),
        _markdown_row(["---", *("---:" for _ in rest)]),
        *(
            _markdown_row([_markdown_cell(column, row) for column in (methods, *rest)])
            for row in range(len(numbers.rows))
        ),
    ]
    said = "\n".join(f"- {escaped(line)}" for line in verdict.splitlines())
    how = "\n".join(f"- {escaped(line)}" for line in caption)
    return f"# {escaped(title)}\n\n{said}\n\n" + "\n".join(lines) + f"\n\nHow to read it:\n\n{how}\n"


# Inside a word an underscore is no emphasis, before a number < opens no tag: there a backslash is only hard to read.
_MARKDOWN_MARKS = re.compile(r"[\\|*`\[\]]|<(?=[A-Za-z/!?])|(?<![^\W_])_|_(?![^\W_])")


def escaped(text: str) -> str:
    """Text on one line that Markdown shows letter by letter, in a table too."""
    return _MARKDOWN_MARKS.sub(lambda found: "\\" + found[0], " ".join(text.split()))


def _markdown_cell(column: Column, row: int) -> str:
    text = escaped(column.cells[row])
    return f"**{text}**" if column.bold[row] else text


def _markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def blocks(lines: Lines, width: int) -> list[Lines]:
    """The table cut into as few tables as fit the width, each with the first column."""
    sizes = [max(_width(line[place]) for line in lines) for place in range(len(lines[0]))]
    cut: list[list[int]] = [[]]
    for place in range(1, len(sizes)):
        taken = sizes[0] + sum(sizes[other] + _GAP for other in cut[-1])
        if cut[-1] and taken + _GAP + sizes[place] > width:
            cut.append([])
        cut[-1].append(place)
    return [[[line[0], *(line[place] for place in chosen)] for line in lines] for chosen in cut]


def lines_markdown(lines: Lines) -> str:
    """For a page; a line break in a cell becomes a comma."""

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(escaped(cell.replace(":\n", ": ").replace("\n", ", ")) for cell in cells) + " |"

    heading, *rest = lines
    return "\n".join([row(heading), "|" + "---|" + "---:|" * (len(heading) - 1), *map(row, rest)])


def lines_rich(lines: Lines) -> Table:
    """For rich's ``Console.print``."""
    from rich.table import Table
    from rich.text import Text

    heading, *rest = lines
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, text in enumerate(heading):
        table.add_column(Text(text), justify="right" if place else "left", no_wrap=True, overflow="ellipsis")
    for line in rest:
        table.add_row(*map(Text, line))
    return table


def _width(text: str) -> int:
    from rich.cells import cell_len

    return max(cell_len(line) for line in text.split("\n"))


def write_texts(folder: str | os.PathLike[str], texts: Mapping[str, str]) -> list[Path]:
    """Write files by name, each whole or not at all; their paths."""
    for name, text in texts.items():
        with written_whole(Path(folder, name)) as draft:
            draft.write_text(text, encoding="utf-8", newline="")
    return [Path(folder, name) for name in texts]


def as_latex(numbers: Numbers, title: str, caption: Sequence[str]) -> str:
    """A comparison as one table: the columns of Markdown without details, the best bold, worse rows grey, notes."""
    chosen = [first_column(numbers), *(column for column in columns(numbers) if column.kind != "detail")]
    rows = [[_latex_cell(column, row, grey=line.worse) for column in chosen] for row, line in enumerate(numbers.rows)]
    heading = [latex_escaped(column.heading) for column in chosen]
    spelled = [column.about for column in columns(numbers) if column.kind == "detail"]
    notes = [line for line in caption if line not in spelled]
    colour = "\n% needs \\usepackage{xcolor}" * any(row.worse for row in numbers.rows)
    return latex_page([_latex_table(heading, rows, title=title, notes=notes)], needs=colour)


def lines_latex(lines: Lines, *, title: str = "", notes: Sequence[str] = ()) -> str:
    """A table given as lines, its heading first. A line break in a heading makes it two rows; in a cell, a comma."""
    heading, *rest = lines
    cells = [[latex_escaped(cell.replace(":\n", ": ").replace("\n", ", ")) for cell in line] for line in rest]
    return _latex_table([_stacked(text) for text in heading], cells, title=title, notes=notes)


def latex_page(parts: Sequence[str], *, needs: str = "") -> str:
    """Tables in one file, with the packages they need at its top."""
    scripts = any(ord(letter) > _LAST_LATIN for part in parts for letter in part)
    return "\n\n".join([PREAMBLE + needs + SCRIPTS * scripts, *parts]) + "\n"


def latex_escaped(text: str) -> str:
    """Text on one line that LaTeX sets letter by letter."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    plain = _MINUS.sub("\u2212", " ".join(shown.split()))
    return _LATEX_MARKS.sub(lambda found: _WRITTEN[found[0]], plain)


def _latex_cell(column: Column, row: int, *, grey: bool) -> str:
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


def _latex_table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, title: str, notes: Sequence[str]) -> str:
    lines = [
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{latex_escaped(title)}}}"] if title else []),
        *_sized(len(heading)),
        rf"\begin{{tabular}}{{l{'r' * (len(heading) - 1)}}}",
        r"\toprule",
        _latex_row(heading),
        r"\midrule",
        *map(_latex_row, rows),
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


def _latex_row(cells: Sequence[str]) -> str:
    # Braces: a cell that begins with a bracket would be taken for the argument of the row before.
    first, *rest = cells
    return " & ".join([f"{{{first}}}" if first.startswith(("[", "*")) else first, *rest]) + r" \\"


def methods_csv(numbers: Numbers) -> str:
    """One line per method: mean and standard deviation by hold-out, mean, worst, differences to the baseline, cost.

    Scores are as measured: an accuracy is a share, not percent. What is not known is empty.
    """
    return _csv([_method_line(row, numbers) for row in numbers.rows])


def _method_line(row: MethodNumbers, numbers: Numbers) -> dict[str, Any]:
    line: dict[str, Any] = {"method": row.method, "label": row.label, "uses_domains": row.uses_domains}
    line["oracle"] = row.oracle
    # The prefix keeps a domain called "worst" apart from the column of that name.
    for hold_out in numbers.hold_outs:
        cell = row.cells.get(hold_out)
        line |= _spread_fields(f"held out: {hold_out}", cell) | {f"held out: {hold_out}, n": cell.n if cell else 0}
    line |= _spread_fields("mean", row.mean) | _spread_fields("worst", row.worst)
    if numbers.score_by:
        line |= _spread_fields("worst_group", row.worst_group)
        line |= _spread_fields(f"group_percentile_{PERCENTILE}", row.percentile)
    line["n"] = len(row.mean_by_seed)
    return line | _tests(row) | {"best": row.best} | _cost(row)


def _tests(row: MethodNumbers) -> dict[str, Any]:
    """The differences to the baseline, on a new domain and on these domains; empty where there are none."""
    line: dict[str, Any] = {}
    for name in ("new_domain", "these_domains"):
        effect = None if row.against is None else getattr(row.against, name)
        stored = dict.fromkeys(("difference", "low", "high", "p_value", "n")) if effect is None else effect.as_json()
        line |= {f"{name}_{field}": stored[field] for field in ("difference", "low", "high", "p_value", "n")}
    found = row.against
    return line | {
        "holm_p_value": None if found is None else found.holm,
        "sign_flip_p_value": None if found is None else found.sign_flip,
        "wins": None if found is None else found.record.wins,
        "ties": None if found is None else found.record.ties,
        "losses": None if found is None else found.record.losses,
        "verdict": None if found is None else found.verdict,
        "domains_needed": None if found is None else found.domains_needed,
    }


def _spread_fields(name: str, value: Spread | None) -> dict[str, float | None]:
    separator = ", " if name.startswith("held out") else "_"
    return {name: None if value is None else value.mean, f"{name}{separator}std": None if value is None else value.std}


def _cost(row: MethodNumbers) -> dict[str, float]:
    return {
        "seconds": row.seconds,
        "parameters_trained": round(spread(run.parameters_trained for run in row.runs).mean),
        "parameters_all": round(spread(run.parameters_all for run in row.runs).mean),
    }


def runs_csv(numbers: Numbers) -> str:
    """One line a run: its score (the mean over its held-out domains), the score of each as JSON, how it went."""
    lines = [
        {
            "run": run.run,
            "method": run.method,
            "label": run.label,
            "hold_out": run.hold_out,
            "seed": run.seed,
            "score": spread(run.test.values()).mean,
            "worst": numbers.metric.worst_of(run.test.values()),
            "by_domain": json.dumps(dict(run.test), ensure_ascii=False),
            "oracle": run.oracle,
            "temperature": run.temperature,
            "validation": run.validation_overall,
            "best_epoch": run.best_epoch,
            "epochs": run.epochs,
            "stopped": run.stopped,
            "seconds": run.seconds,
            "parameters_trained": run.parameters_trained,
            "parameters_all": run.parameters_all,
        }
        for row in numbers.rows
        for run in row.runs
    ]
    return _csv(lines)


def as_json(
    numbers: Numbers, *, verdict: str, caption: Sequence[str], notes: Sequence[str], machine: str | None
) -> str:
    """Everything, as JSON text."""
    stored = {
        "format": FORMAT,
        "data": numbers.data,
        "metric": numbers.metric.name,
        "higher_is_better": numbers.metric.higher_is_better,
        "protocol": numbers.protocol,
        "selection": numbers.selection,
        "oracle": numbers.oracle,
        "score_by": list(numbers.score_by),
        "unscored": list(numbers.unscored),
        "tested": numbers.tested,
        "margin": numbers.margin,
        "unit": numbers.unit,
        "baseline": numbers.baseline.method if numbers.baseline else None,
        "hold_outs": list(numbers.hold_outs),
        "seeds": list(numbers.seeds),
        "machine": machine,
        "methods": [_method(row) for row in numbers.rows],
        "verdict": verdict.splitlines(),
        "caption": list(caption),
        "notes": list(notes),
    }
    return json.dumps(stored, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _method(row: MethodNumbers) -> dict[str, Any]:
    return {
        "method": row.method,
        "label": row.label,
        "uses_domains": row.uses_domains,
        "oracle": row.oracle,
        "hold_outs": {hold_out: asdict(cell) for hold_out, cell in row.cells.items()},
        "mean": None if row.mean is None else asdict(row.mean),
        "worst": None if row.worst is None else asdict(row.worst),
        "worst_group": None if row.worst_group is None else asdict(row.worst_group),
        f"group_percentile_{PERCENTILE}": None if row.percentile is None else asdict(row.percentile),
        "mean_by_seed": {str(seed): value for seed, value in row.mean_by_seed.items()},
        "worst_by_seed": {str(seed): value for seed, value in row.worst_by_seed.items()},
        "difference": None if row.against is None else row.against.as_json(),
        "best": row.best,
        **_cost(row),
        "runs": [run.to_json() for run in row.runs],
    }


def _csv(lines: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
