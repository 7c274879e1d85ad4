"""A comparison in Python: printed, in a notebook, as text in several forms, as a data frame, and as a page."""

from __future__ import annotations

import csv
import html
import io
import json
import math
import re
import sys
from pathlib import Path

import pytest
from made_folders import gathered
from made_results import many, result, results
from rich.console import Console

from gated_domains.data.errors import DataError
from gated_domains.reports import Comparison

DOMAINS = ["a", "b", "c", "d", "e"]
ERM = {"a": [0.70, 0.70], "b": [0.60, 0.60], "c": [0.80, 0.80], "d": [0.80, 0.80], "e": [0.70, 0.70]}
FIVE = {
    "erm": ERM,
    "gdu": {"a": [0.74, 0.76], "b": [0.63, 0.65], "c": [0.82, 0.84], "d": [0.81, 0.83], "e": [0.74, 0.76]},
    "coral": {"a": [0.67, 0.67], "b": [0.58, 0.58], "c": [0.76, 0.76], "d": [0.78, 0.78], "e": [0.67, 0.67]},
    "irm": {"a": [0.70, 0.70], "b": [0.60, 0.60], "c": [0.801, 0.801], "d": [0.80, 0.80], "e": [0.699, 0.699]},
    "lisa": {"a": [0.60, 0.60], "b": [0.75, 0.75], "c": [0.70, 0.70], "d": [0.90, 0.90], "e": [0.72, 0.72]},
}


@pytest.fixture
def comparison() -> Comparison:
    return Comparison(results(FIVE), machine="2 CPU cores")


def text_of(page: str) -> str:
    """What a browser shows of a piece of HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


# -- printed -----------------------------------------------------------------------------------------------------------


def test_printed_it_is_what_the_command_line_shows_a_hundred_columns_wide(comparison: Comparison) -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(comparison.rich())
    assert str(comparison) == console.file.getvalue().rstrip()  # type: ignore[attr-defined]
    assert comparison.headline().split(".")[0] in " ".join(str(comparison).split())
    assert comparison.title in str(comparison)
    for label in ("ERM", "GDU", "CORAL", "IRM", "LISA"):
        assert re.search(rf"^{label} ", str(comparison), re.MULTILINE)


def test_printed_it_has_neither_colours_nor_long_lines() -> None:
    text = str(Comparison(many(6, 12, 3)))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert text == text.strip("\n")


def test_in_a_notebook_it_shows_the_same_text(comparison: Comparison) -> None:
    shown = comparison._repr_html_()
    assert shown.startswith("<pre ")
    lines = [line.rstrip() for line in text_of(shown).splitlines()]
    assert "\n".join(lines).rstrip() == "\n".join(line.rstrip() for line in str(comparison).splitlines())


def test_in_a_notebook_labels_are_text_and_never_tags() -> None:
    hostile = [result("erm", name, label="<b>ERM</b> [red]") for name in DOMAINS]
    shown = Comparison(hostile)._repr_html_()
    assert "<b>ERM" not in shown
    assert "<b>ERM</b> [red]" in text_of(shown)


# -- as text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "json"])
def test_a_table_of_a_form_is_the_text_that_is_written(comparison: Comparison, form: str, tmp_path: Path) -> None:
    suffix = {"markdown": ".md", "latex": ".tex"}.get(form, f".{form}")
    (written,) = [path for path in comparison.write(tmp_path) if path.name == f"table{suffix}"]
    assert comparison.table(form).rstrip() == written.read_text(encoding="utf-8").rstrip()


def test_a_table_is_markdown_unless_another_form_is_asked_for(comparison: Comparison) -> None:
    assert comparison.table() == comparison.table("markdown")
    assert comparison.table().startswith("# digits: accuracy on held-out domains")


@pytest.mark.parametrize(
    ("form", "meant"), [("markdwon", "markdown"), ("Latex", "latex"), ("csvs", "csv"), ("jsn", "json")]
)
def test_an_unknown_form_is_refused_with_the_nearest(comparison: Comparison, form: str, meant: str) -> None:
    with pytest.raises(DataError, match=f"there is no table form {form!r}; did you mean {meant!r}"):
        comparison.table(form)


# -- as a data frame ---------------------------------------------------------------------------------------------------


def test_the_frame_is_the_csv_cell_by_cell(comparison: Comparison) -> None:
    pytest.importorskip("pandas")
    frame = comparison.to_frame()
    heading, *rows = csv.reader(io.StringIO(comparison.csv()))
    assert list(frame.columns) == heading
    assert len(frame) == len(rows) == 5
    for number, row in enumerate(rows):
        for name, cell in zip(heading, row, strict=True):
            found = frame[name][number]
            if cell == "":
                assert math.isnan(found), name
            elif isinstance(found, str) or found in (True, False):
                assert str(found) == cell or float(cell) == found, name
            else:
                assert float(cell) == found, name
    assert frame.set_index("label")["mean"]["GDU"] == pytest.approx(0.758)


def test_without_pandas_the_frame_is_refused_with_the_cure(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DataError, match=r"pip install pandas, or use table\('csv'\)"):
        comparison.to_frame()


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_every_method_but_the_baseline_has_a_verdict(comparison: Comparison) -> None:
    assert comparison.verdicts == {
        "GDU": "better",
        "CORAL": "worse",
        "IRM": "practically equal",
        "LISA": "undecided",
    }


def test_the_verdicts_are_those_of_the_table(comparison: Comparison) -> None:
    rows = csv.DictReader(io.StringIO(comparison.csv()))
    assert {row["label"]: row["verdict"] for row in rows if row["verdict"]} == comparison.verdicts


def test_a_verdict_on_too_few_domains_is_none() -> None:
    few = {method: {name: scores[name] for name in "ab"} for method, scores in FIVE.items()}
    assert set(Comparison(results(few)).verdicts.values()) == {"no verdict"}


def test_the_same_scores_the_other_way_round_are_worse() -> None:
    two = {method: FIVE[method] for method in ("gdu", "erm")}
    assert Comparison(results(two), baseline="gdu").verdicts == {"ERM": "worse"}


def test_without_the_baseline_there_are_no_verdicts() -> None:
    assert Comparison(results({"gdu": FIVE["gdu"]})).verdicts == {}


def test_of_methods_that_are_better_the_best_is_to_be_taken(comparison: Comparison) -> None:
    assert comparison.choice.label == "GDU"
    best = {name: [score + 0.05 for score in scores] for name, scores in FIVE["gdu"].items()}
    assert Comparison(results({**FIVE, "best": best})).choice.label == "BEST"
    errors = {method: {name: [1 - score for score in of[name]] for name in DOMAINS} for method, of in FIVE.items()}
    assert Comparison(results(errors, metric="rmse", higher_is_better=False)).choice.label == "GDU"


def test_where_none_is_better_the_baseline_is_to_be_taken_and_without_one_the_first() -> None:
    lucky = {"gdu": {"a": [0.9]}, "erm": {"a": [0.5]}}  # no verdict
    assert Comparison(results(lucky)).choice.label == "ERM"
    assert Comparison(results({"gdu": {"a": [0.5]}, "cgd": {"a": [0.9]}})).choice.label == "GDU"


# -- as a page ---------------------------------------------------------------------------------------------------------


def test_a_report_of_results_alone_is_refused(comparison: Comparison, tmp_path: Path) -> None:
    assert comparison.runs is None
    with pytest.raises(DataError, match="made of results alone, without the folders of their runs"):
        comparison.save_report(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_report_is_the_page_with_its_figures_after_gated_runs_were_examined(tmp_path: Path) -> None:
    found = gathered(tmp_path / "runs")
    heard: list[str] = []
    comparison = Comparison(
        found.results,
        runs=[(found.folder(one), one) for one in found.results],
        add_insights=lambda say: (say("examining"), ("a note",))[1],
        machine="2 CPU cores (made up)",
        margin=2.0,
    )
    page, *others = comparison.save_report(tmp_path / "page.html", say=heard.append)
    assert page == tmp_path / "page.html"
    shown = text_of(page.read_text(encoding="utf-8"))
    assert "2 CPU cores (made up)" in shown
    by_name = {path.name: path for path in others}
    assert by_name.keys() >= {"scores.svg", "scores.csv", "table.json"}
    assert json.loads(by_name["table.json"].read_text(encoding="utf-8"))["margin"] == pytest.approx(0.02)
    assert heard[0] == "examining"
    assert len(heard) > 1
    assert comparison.insight_notes == ("a note",)
