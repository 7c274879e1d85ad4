"""Tables in LaTeX hold the numbers of Markdown's, set every letter as it is, and are whole: braces, rows and rules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_digits import digits_numbers
from made_reproductions import cell, reproduction
from made_results import many, result, results

from gated_domains.reports.digits_table import DigitsTable
from gated_domains.reports.published_table import PublishedTable
from gated_domains.reports.renderers import latex_escaped, latex_page, lines_latex
from gated_domains.reports.table import Comparison

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = r"a&b_50% $x$ #1 {\input{/etc/passwd}} ~^ <script> | -- †"
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)")


def golden() -> Comparison:
    """Three methods on four hold-outs, one of them with an awkward name; one method used domain labels."""
    scores = {
        "erm": {"mnist": [0.61, 0.63, 0.60], "street_50%": [0.51, 0.50, 0.55], "a": [0.4, 0.4, 0.42], "b": [0.5] * 3},
        "gdu": {"mnist": [0.71, 0.70, 0.73], "street_50%": [0.58, 0.61, 0.60], "a": [0.5, 0.5, 0.46], "b": [0.56] * 3},
        "coral": {"mnist": [0.5, 0.5, 0.54], "street_50%": [0.37, 0.42, 0.39], "a": [0.3, 0.31, 0.32], "b": [0.4] * 3},
    }
    told = {"coral": {"uses_domains": True, "notes": ("its penalty & its weight are those of {WILDS}",)}}
    found = [one for name, by in scores.items() for one in results({name: by}, seconds=12.5, **told.get(name, {}))]
    return Comparison(found, machine="2 CPU cores (some CPU)")


@pytest.mark.parametrize("name", ["table.tex", "table.md"])
def test_the_table_is_the_one_that_was_looked_at(name: str, tmp_path: Path):
    golden().write(tmp_path)
    made = (tmp_path / name).read_text("utf-8")
    if os.environ.get("REWRITE_GOLDEN"):  # then look at what changed
        (GOLDEN / name).write_text(made, "utf-8")
    assert made == (GOLDEN / name).read_text("utf-8")


def assert_whole(text: str) -> None:
    """Braces and environments close in order, rows of a table have as many cells, dollars come in pairs."""
    assert "LuaLaTeX" in text or all(ord(letter) < 0x180 for letter in text)
    text = re.sub(r"(?m)(?<!\\)%.*$", "", text)
    open_environments = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            open_environments.append(name)
        else:
            assert open_environments.pop() == name
    assert not open_environments
    bare = _COMMAND.sub("", text)
    assert bare.count("$") % 2 == 0
    assert not set("#_^~") & set(bare)
    depth = 0
    for letter in bare:
        depth += (letter == "{") - (letter == "}")
        assert depth >= 0
    assert depth == 0
    for inside in re.findall(r"\\toprule\n(.*?)\\bottomrule", text, re.DOTALL):
        rows = [line for line in inside.splitlines() if line.endswith(r"\\")]
        assert len({_COMMAND.sub("", row).count("&") for row in rows}) == 1
        assert len(rows) > 1


def test_braces_rows_and_rules_are_whole():
    assert_whole(golden().latex())
    assert_whole(Comparison(many(4, 12, 3)).latex())
    assert_whole(Comparison([result()]).latex())


def test_hostile_names_are_set_letter_by_letter():
    found = [result("erm", HOSTILE, 0, 0.5, label=HOSTILE, notes=(HOSTILE,)), result("gdu", HOSTILE, 0, 0.6)]
    text = Comparison(found).latex()
    assert_whole(text)
    assert r"\input{" not in text.replace(r"\textbackslash{}input\{", "")
    assert r"a\&b\_50\% \$x\$ \#1 \{\textbackslash{}input\{/etc/passwd\}\} \textasciitilde{}\textasciicircum{}" in text
    assert r"$<$script$>$ $|$ -{}-{} \dag{}" in text


@given(st.text())
def test_any_text_leaves_the_table_whole(name: str):
    text = lines_latex([["method", name], [name, name], ["a", "b"]], title=name, notes=[name])
    assert_whole(latex_page([text]))
    assert "\n\n" not in latex_escaped(name)


def test_the_best_is_bold_as_in_markdown_and_a_row_that_is_worse_grey():
    lines = golden().latex().splitlines()
    markdown = golden().markdown().splitlines()
    for name in ("ERM", "GDU", "CORAL"):
        (ours,) = [
            line for line in lines if re.match(rf"(\\textcolor{{gray}}{{)?{name}", line) and line.endswith(r"\\")
        ]
        assert (r"\textcolor{gray}" in ours) == (name == "CORAL")
        (theirs,) = [line for line in markdown if line.startswith(f"| {name}")]
        assert (r"\textbf" in ours) == ("**" in theirs)
    assert sum(r"\textbf" in line for line in lines) == 1


def test_details_are_left_to_markdown_and_their_notes_with_them():
    text = golden().latex()
    assert "W/T/L" in golden().markdown()
    assert "W/T/L" not in text
    assert r"\dag{} used the domain labels" in text
    assert "its penalty \\& its weight" in text


def test_a_negative_number_has_a_minus_and_a_range_a_hyphen():
    assert latex_escaped("-0.8 to +1.4 (-3)") == "$-$0.8 to +1.4 ($-$3)"
    assert latex_escaped("folds 2-10, ResNet-18") == "folds 2-10, ResNet-18"
    assert latex_escaped("71.2 ± 0.4 \u2013 §") == r"71.2 $\pm$ 0.4 -- \S{}"


def test_a_row_that_begins_with_a_bracket_is_no_argument_of_the_one_before():
    text = lines_latex([["method", "a"], ["[1]", "2"], ["*", "3"]])
    assert "\n{[1]} & 2" in text
    assert "\n{*} & 3" in text


def test_a_wide_table_is_set_smaller():
    assert "\\small\n" not in Comparison([result()]).latex()
    assert "\\small\n" in Comparison(many(1, 5, 2)).latex()
    assert r"\footnotesize" + "\n" + r"\setlength" in golden().latex()


def test_other_scripts_say_what_sets_them():
    assert "LuaLaTeX" in latex_page([lines_latex([["method"], ["北"]])])
    assert "LuaLaTeX" not in latex_page([lines_latex([["method"], ["Zürich"]])])


def test_the_tables_of_digits_and_wilds_come_as_latex_too(tmp_path: Path):
    numbers = digits_numbers(
        {"erm": {"mnist": [0.97, 0.96], "svhn": [0.6, 0.7]}, "erm_linear": {"mnist": [0.9, 0.8], "svhn": [0.5, 0.4]}},
        published=True,
    )
    found = reproduction({("erm", "camelyon17"): cell(0.7, 0.72), ("irm", "camelyon17"): cell(why="no & no_room")})
    for place, table in ((tmp_path / "digits", DigitsTable(numbers)), (tmp_path / "wilds", PublishedTable(found))):
        assert place / "table.tex" in table.write(place)
        text = (place / "table.tex").read_text("utf-8")
        assert_whole(text)
        assert r"\toprule" in text
    assert text.count(r"\begin{table}") >= 1
    assert "no \\& no\\_room" in text
    assert (tmp_path / "digits" / "table.tex").read_text("utf-8").count(r"\begin{table}") == 2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_pdflatex_sets_it(tmp_path: Path):
    found = [result("erm", HOSTILE, 0, 0.5, label=HOSTILE, notes=(HOSTILE,)), result("gdu", HOSTILE, 0, 0.6)]
    body = golden().latex() + Comparison(found).latex() + Comparison(many(3, 12, 2)).latex()
    page = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n" + body + "\\end{document}\n"
    (tmp_path / "page.tex").write_text(page, "utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "page.pdf").stat().st_size > 1000
