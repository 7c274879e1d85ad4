"""A reproduced table: ours beside the paper's, why cells are empty, in every form."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from made_reproductions import cell, reproduction
from rich.cells import cell_len
from rich.console import Console

from gated_domains.reports.published_table import PublishedTable
from gated_domains.reports.renderers import blocks
from gated_domains.reports.reproduced import Reproduction, score

CELLS = {
    ("erm", "camelyon17"): cell(0.70, 0.72),
    ("irm", "camelyon17"): cell(0.64),
    ("erm", "civilcomments"): cell(0.55, 0.57, average=0.92),
    ("irm", "civilcomments"): cell(asked=5, why="no published settings"),
    ("erm", "poverty"): cell(0.451, 0.449, metric="pearson", average=0.78, inside=(0.6, 0.8)),
}


def printed(found: Reproduction, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(PublishedTable(found))
    return console.file.getvalue()  # type: ignore[attr-defined]


def lines_of(found: Reproduction) -> dict[str, list[str]]:
    heading, *rest = PublishedTable(found).main()
    return {line[0]: line[1:] for line in [["", *heading[1:]], *rest]}


def test_a_cell_is_our_mean_and_spread_and_the_papers() -> None:
    found = lines_of(reproduction(CELLS))
    assert found["ERM"] == ["71.0 (1.4) / 70.3 (6.4)", "56.0 (1.4) / 56.0 (3.6)", "0.45 (0.00) / 0.45 (0.06)"]


def test_the_metric_stands_in_the_heading() -> None:
    heading = lines_of(reproduction(CELLS))[""]
    assert heading == ["Camelyon17\naccuracy", "CivilComments\nworst-group accuracy", "PovertyMap\nworst-U/R Pearson r"]


def test_one_run_has_no_spread() -> None:
    assert lines_of(reproduction(CELLS))["IRM †"][0] == "64.0 / 64.2 (8.1)"


def test_an_empty_cell_says_why_and_what_was_not_asked_for_is_a_dash() -> None:
    table = PublishedTable(reproduction(CELLS))
    irm = next(line for line in table.main() if line[0].startswith("IRM"))
    assert irm[2].startswith("n/a [1] / ")
    assert irm[3].startswith("– / ")  # noqa: RUF001
    assert "[1] no published settings." in table.caption


def test_fewer_runs_than_asked_for_keep_their_mean_and_say_why() -> None:
    found = reproduction({("erm", "camelyon17"): cell(0.7, 0.7, asked=3, why="its loss became nan")})
    table = PublishedTable(found)
    assert table.main()[1][1] == "70.0 (0.0) [1] / 70.3 (6.4)"
    assert "[1] its loss became nan." in table.caption
    assert "Camelyon17 3 of the official 10 seeds" in " ".join(table.caption)


def test_the_same_reason_is_said_once() -> None:
    cells = {("irm", name): cell(why="no published settings") for name in ("camelyon17", "civilcomments")}
    table = PublishedTable(reproduction(cells))
    assert [cell.split(" / ")[0] for cell in table.main()[1][1:]] == ["n/a [1]", "n/a [1]"]
    assert sum("no published settings" in line for line in table.caption) == 1


def test_a_slip_is_marked_put_right_and_explained() -> None:
    table = PublishedTable(reproduction(CELLS))
    assert "64.2 (8.1)a, right: 66.3 (2.1)" in table.main()[2][2]
    assert any(line.startswith("a: repeats the number of Camelyon17") for line in table.caption)
    assert not any(line.startswith("d: ") for line in table.caption)  # no such number is in this table


def test_the_leak_of_poverty_is_marked() -> None:
    table = PublishedTable(reproduction({("ft_cosine", "poverty"): cell(0.4, metric="pearson")}))
    assert table.main()[1][1] == "0.40 / 0.62 (0.13)d"
    assert any("never a target" in line for line in table.caption)


def test_the_heading_of_molpcba_carries_its_slip() -> None:
    table = PublishedTable(reproduction({("erm", "ogb-molpcba"): cell(0.27)}))
    assert table.main()[0][1] == "OGB-MolPCBA\naverage precision e"
    assert any(line.startswith("e: ") for line in table.caption)


def test_methods_that_adapt_by_batch_or_know_domains_are_marked() -> None:
    cells = {(row, "camelyon17"): cell(0.7) for row in ("erm", "irm", "arm_bn")}
    table = PublishedTable(reproduction(cells))
    assert [line[0] for line in table.main()[1:]] == ["ERM", "IRM †", "ARM-BN † §"]
    caption = " ".join(table.caption)
    assert "uses the test batch, which WILDS reports apart" in caption
    assert "† was told the domains" in caption
    alone = " ".join(PublishedTable(reproduction({("erm", "camelyon17"): cell(0.7)})).caption)
    assert "§" not in alone
    assert "†" not in alone


def test_the_second_set_up_has_no_published_numbers() -> None:
    table = PublishedTable(reproduction({("erm", "camelyon17-digits"): cell(0.7)}))
    assert table.main()[1][1] == "70.0"
    assert "which of its two set-ups" in " ".join(table.caption)


def test_miniatures_are_called_so_loudly() -> None:
    table = PublishedTable(reproduction(CELLS, miniature=True))
    assert "MINIATURES" in table.title
    assert table.caption[0].startswith("MINIATURES: made-up data and shrunk networks")
    assert "nothing about the benchmark" in table.caption[0]
    assert not any("MINIATURES" in line for line in PublishedTable(reproduction(CELLS)).caption)


def test_worst_case_stands_beside_average_case_and_inside_beside_outside() -> None:
    details = PublishedTable(reproduction(CELLS)).details("poverty")
    inside = "in distribution:\n"
    assert details[0] == [
        "method",
        "worst-U/R Pearson r",
        "Pearson r",
        inside + "worst-U/R Pearson r",
        inside + "Pearson r",
    ]
    assert details[1] == ["ERM", "0.45 (0.00) / 0.45 (0.06)", "0.78 (0.00) / 0.78 (0.04)", "0.60 (0.00)", "0.80 (0.00)"]


def test_accuracy_stands_beside_macro_f1() -> None:
    metrics = {"test": {"accuracy": {"overall": 0.7}}, "id_test": {"accuracy": {"overall": 0.75}}}
    one = cell(0.3, metric="f1", inside=(0.47, 0.47), all_metrics=metrics)
    details = PublishedTable(reproduction({("erm", "iwildcam"): one})).details("iwildcam")
    assert dict(zip(details[0][1:], details[1][1:], strict=True)) == {
        "macro F1": "30.0 / 31.0 (1.3)f",
        "accuracy": "70.0 / 71.5 (2.6)",
        "in distribution:\nmacro F1": "47.0 / 47.1 (1.5)",
        "in distribution:\naccuracy": "75.0 / 75.7 (0.4)",
    }


def test_a_data_set_with_one_kind_of_score_has_no_table_of_its_own() -> None:
    table = PublishedTable(reproduction(CELLS))
    assert len(table.details("camelyon17")) == 1
    assert "## Camelyon17" not in table.markdown()
    assert "## PovertyMap: all scores" in table.markdown()
    assert "in distribution: Pearson r |" in table.markdown()


def test_in_distribution_scores_come_from_the_test_part_before_the_validation_part() -> None:
    stored = {"test": None, "also": {"id_val": {"by_domain": {"id_val": 0.1}, "overall": 0.2}}}
    assert score(stored, "inside") == 0.1
    assert score(stored, "inside_average") == 0.2
    stored["also"]["id_test"] = {"by_domain": {"id_test": 0.3}, "overall": 0.4}
    assert score(stored, "inside") == 0.3
    assert score(stored, "test") is None
    assert score({}, "inside_beside", beside="accuracy") is None


@pytest.mark.parametrize("width", [60, 100, 160])
def test_the_terminal_shows_every_cell_at_every_width(width: int) -> None:
    shown = printed(reproduction(CELLS), width)
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    for text in ("71.0 (1.4) / 70.3 (6.4)", "56.0 (1.4) / 56.0 (3.6)", "0.45 (0.00) / 0.45 (0.06)", "n/a [1]"):
        assert text in shown


def test_the_main_table_comes_last_before_the_caption() -> None:
    shown = printed(reproduction(CELLS))
    places = [shown.index(text) for text in ("PovertyMap: all scores", "WILDS: ours / the paper's", "Each cell:")]
    assert places == sorted(places)


def test_blocks_keep_the_first_column_and_lose_no_other() -> None:
    lines = [["method", *(f"column {n}" for n in range(7))], ["ERM", *(f"{n} / {n}" for n in range(7))]]
    cut = blocks(lines, 40)
    assert len(cut) > 1
    assert all(block[0][0] == "method" for block in cut)
    assert [name for block in cut for name in block[0][1:]] == lines[0][1:]


def test_the_page_is_a_markdown_table() -> None:
    page = PublishedTable(reproduction(CELLS)).markdown()
    rows = [line for line in page.splitlines() if line.startswith("| ERM")]
    assert rows[0] == "| ERM | 71.0 (1.4) / 70.3 (6.4) | 56.0 (1.4) / 56.0 (3.6) | 0.45 (0.00) / 0.45 (0.06) |"
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in page.splitlines()[2:6]}
    assert widths == {5}


def test_csv_has_a_line_a_score_unrounded(tmp_path: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(PublishedTable(reproduction(CELLS)).csv())))
    erm = next(line for line in lines if (line["row"], line["dataset"]) == ("erm", "camelyon17"))
    assert float(erm["mean"]) == pytest.approx(0.71)
    assert (erm["n"], erm["asked"], erm["published_mean"], erm["kind"]) == ("2", "2", "70.3", "test")
    irm = next(line for line in lines if (line["row"], line["dataset"]) == ("irm", "civilcomments"))
    assert (irm["mean"], irm["why"], irm["published_slip"], irm["right_mean"]) == (
        "",
        "no published settings",
        "a",
        "66.3",
    )
    kinds = [line["kind"] for line in lines if line["dataset"] == "poverty"]
    assert kinds == ["test", "average", "inside", "inside_average"]


def test_all_is_written_and_json_has_every_run(tmp_path: Path) -> None:
    written = PublishedTable(reproduction(CELLS)).write(tmp_path)
    assert [path.name for path in written] == ["table.md", "table.tex", "table.csv", "table.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in written)
    stored = json.loads((tmp_path / "table.json").read_text())
    assert len(stored["runs"]) == 7
    assert stored["runs"][0]["row"] == "erm"
    assert stored["columns"]["poverty"]["title"] == "PovertyMap"
    assert stored["caption"][-1] == "Made on 2 CPU cores (some CPU)."
