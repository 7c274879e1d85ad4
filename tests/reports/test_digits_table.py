"""The table of Digits-5: published numbers, agreement with them, differences, contrasts, and what is written."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest
from made_digits import digits_numbers
from rich.cells import cell_len
from rich.console import Console

from gated_domains.evaluation.statistics import paired
from gated_domains.reports.columns import ABSENT
from gated_domains.reports.digits_numbers import DigitsNumbers
from gated_domains.reports.digits_picture import draw_digits
from gated_domains.reports.digits_table import DigitsTable
from gated_domains.reports.digits_words import difference, points
from gated_domains.reports.published_digits import CONTRASTS, REFERENCES, ROWS, TABLE, TARGETS

TWO = {
    "erm": {"mnist": [0.97, 0.99], "usps": [0.80, 0.82]},
    "ft_mmd": {"mnist": [0.98, 0.99], "usps": [0.84, 0.85]},
    "gdu": {"mnist": [0.985, 0.995], "usps": [0.90, 0.93]},
    "erm_linear": {"mnist": [0.98, 0.985], "usps": [0.88, 0.89]},
    "linear_tanh": {"mnist": [0.975, 0.985], "usps": [0.83, 0.84]},
}


def test_the_published_table_is_whole() -> None:
    assert list(TABLE) == [row for row, about in ROWS.items() if about.block == "paper"]
    assert all(list(values) == list(TARGETS) for values in TABLE.values())
    assert (TABLE["erm"]["mnistm"].mean, TABLE["erm"]["mnistm"].std) == (63.0, 3.2)
    assert str(TABLE["e2e_projection"]["syn"]) == "86.04 (1.27)"
    means = {row: round(sum(value.mean for value in values.values()) / 5, 2) for row, values in TABLE.items()}
    assert means["erm"] == 81.7
    assert max(means, key=lambda row: means[row]) == "ft_cosine"


def test_references_and_contrasts_are_of_rows() -> None:
    assert {REFERENCES[row.block] for row in ROWS.values()} <= set(ROWS)
    assert all({first, second} <= set(ROWS) for _, first, second in CONTRASTS)


def test_a_cell_holds_ours_and_the_papers() -> None:
    heading, erm, tuned = DigitsTable(digits_numbers(TWO)).block("paper")
    assert heading[:4] == ["method", "MNIST", "USPS", "mean"]
    assert erm[0] == "ERM (tanh)"
    assert erm[1].startswith("98.00 (1.41) / 97.98 (0.34)")
    assert tuned[2].startswith("84.50 (0.71) / 96.54 (0.27)")
    assert erm[3].startswith("89.50 (1.41) / 95.84")  # of the two targets that are here


def test_ours_has_no_published_number_beside_it() -> None:
    _, gdu = DigitsTable(digits_numbers(TWO)).block("ours")
    assert gdu[1] == "99.00 (0.71)"


def test_a_cell_reproduces_within_two_standard_errors_of_the_difference() -> None:
    # ERM on MNIST-M: 63.00 (3.20) of ten runs; ours of two runs with a standard deviation of 2 points.
    error = math.sqrt(3.2**2 / 10 + 2.0**2 / 2)
    half = 2.0 / math.sqrt(2) / 100  # two runs this far from their mean have that deviation

    def told(mean: float) -> str:
        return digits_numbers({"erm": {"mnistm": [mean / 100 - half, mean / 100 + half]}}).agreement("erm", "mnistm")

    assert told(63 + 1.99 * error) == told(63 - 1.99 * error) == "same"
    assert told(63 + 2.01 * error) == "higher"
    assert told(63 - 2.01 * error) == "lower"


def test_agreement_of_the_mean_takes_the_errors_of_all_targets() -> None:
    values, names = TABLE["erm"], ("mnist", "usps")
    mean = sum(values[name].mean for name in names) / 2
    error = math.hypot(*(values[name].std / math.sqrt(10) for name in names)) / 2
    for factor, expected in ((1.9, "same"), (2.1, "higher")):
        score = (mean + factor * error) / 100  # the same in both seeds: no error of our own
        numbers = digits_numbers({"erm": {name: [score, score] for name in names}})
        assert numbers.agreement("erm", None) == expected


def test_one_run_has_no_spread_and_no_verdict() -> None:
    table = DigitsTable(digits_numbers({"erm": {"mnist": [0.98]}}))
    assert table.numbers.agreement("erm", "mnist") == ""
    assert table.block("paper")[1][1] == "98.00 / 97.98 (0.34)"
    assert any("no cell has two runs" in line for line in table.caption)


def test_marks_say_which_way_a_number_lies() -> None:
    scores = {"erm": {"mnist": [0.9797, 0.9799], "usps": [0.80, 0.81], "syn": [0.99, 0.98]}}
    line = DigitsTable(digits_numbers(scores)).block("paper")[1]
    assert [cell[-1] for cell in line[1:4]] == ["≈", "↓", "↑"]


def test_a_mean_takes_the_seeds_that_have_every_target() -> None:
    numbers = digits_numbers({"erm": {"mnist": [0.9, 0.7], "usps": [0.8]}})
    found = numbers.mean("erm")
    assert found is not None
    assert (round(found.mean, 6), found.n) == (0.85, 1)
    assert numbers.mean("erm") is not None
    assert DigitsTable(numbers).block("paper")[1][4] == "1-2"


def test_rows_are_set_against_the_erm_that_was_trained_like_them() -> None:
    numbers = digits_numbers(TWO)
    assert set(numbers.against) == {"ft_mmd", "gdu", "linear_tanh"}
    keys = [(target, seed) for target in ("mnist", "usps") for seed in (0, 1)]

    def by_hand(row: str, reference: str) -> float:
        return sum(TWO[row][target][seed] - TWO[reference][target][seed] for target, seed in keys) / 4

    assert numbers.against["ft_mmd"].pair.difference == pytest.approx(by_hand("ft_mmd", "erm"))
    assert numbers.against["gdu"].pair.difference == pytest.approx(by_hand("gdu", "erm_linear"))
    assert numbers.against["linear_tanh"].pair.difference == pytest.approx(by_hand("linear_tanh", "erm_linear"))


def test_p_is_corrected_over_the_rows_of_one_reference() -> None:
    numbers = digits_numbers(TWO)
    assert numbers.against["ft_mmd"].holm == numbers.against["ft_mmd"].pair.p_value  # the only one against ERM (tanh)
    gdu, linear = (numbers.against[row] for row in ("gdu", "linear_tanh"))
    assert gdu.pair.p_value is not None
    assert linear.pair.p_value is not None
    smaller = min((gdu, linear), key=lambda one: one.pair.p_value or 0)
    assert smaller.holm == pytest.approx(2 * (smaller.pair.p_value or 0))


def test_without_its_reference_a_row_stands_alone() -> None:
    assert digits_numbers({"gdu": TWO["gdu"]}).against == {}


def test_a_contrast_is_one_sentence_from_the_numbers() -> None:
    table = DigitsTable(digits_numbers(TWO))
    assert [contrast.letter for contrast in table.numbers.contrasts] == ["a", "d"]
    first, _ = table.contrasts
    pair = paired(table.numbers.scores["gdu"], table.numbers.scores["erm_linear"])
    assert pair is not None
    assert pair.low is not None
    assert first.startswith("(a) GDU 95.25 against ERM 93.38: +1.88 points, 95 % interval ")
    assert f"{points(pair.low)} to " in first
    assert "over 4 pairs (target, seed; 4 won, 0 tied, 0 lost), p 0." in first
    assert "corrected for 2 contrasts" in first
    assert "redrawn" not in first  # two targets are too few


def test_of_three_targets_a_contrast_has_the_interval_under_redrawn_targets() -> None:
    scores = {"gdu": [0.9, 0.8, 0.7], "erm_linear": [0.88, 0.79, 0.66]}
    numbers = digits_numbers(
        {row: {name: [score] for name, score in zip(TARGETS, found, strict=False)} for row, found in scores.items()}
    )
    (line,) = DigitsTable(numbers).contrasts
    redrawn = numbers.contrasts[0].found.bootstrap
    assert redrawn is not None
    assert line.endswith(f"; with targets redrawn {points(redrawn.low)} to {points(redrawn.high)}.")


def test_pairs_that_only_one_row_has_do_not_count_in_a_contrast() -> None:
    numbers = digits_numbers({"gdu": {"mnist": [0.9, 0.5]}, "erm_linear": {"mnist": [0.8]}})
    (contrast,) = numbers.contrasts
    assert (contrast.found.pair.n, contrast.first_mean, contrast.second_mean) == (1, 0.9, 0.8)
    assert "in one pair, which allows no test" in DigitsTable(numbers).contrasts[0]


def test_equal_differences_allow_no_test() -> None:
    scores = {"gdu": {"mnist": [0.75, 0.5]}, "erm_linear": {"mnist": [0.5, 0.25]}}
    (line,) = DigitsTable(digits_numbers(scores)).contrasts
    assert line == "(a) GDU 62.50 against ERM 37.50: +25.00 points, the same in each of 2 pairs, which allows no test."


def test_differences_have_signs_and_zero_has_none() -> None:
    assert (points(0.015), points(-0.0001), points(0.00001)) == ("+1.50", "-0.01", "0.00")
    assert difference(None) == ABSENT
    assert difference(paired({0: 0.5}, {0: 0.25})) == "+25.00"


def test_missing_runs_say_why_once() -> None:
    why = {("erm", "usps"): "it fell over", ("ft_mmd", "usps"): "it fell over"}
    scores = {"erm": {"mnist": [0.9], "usps": []}, "ft_mmd": {"mnist": [0.9], "usps": [0.8]}}
    table = DigitsTable(digits_numbers(scores, why=why))
    _, erm, tuned = table.block("paper")
    assert erm[2] == "n/a [1] / 93.70 (1.74)"
    assert tuned[2].startswith("80.00 [1] /")
    assert table.caption.count("[1] it fell over.") == 1


def test_a_table_without_any_run_is_a_table_all_the_same(tmp_path: Path) -> None:
    numbers = digits_numbers({"erm": {"mnist": []}, "gdu": {"mnist": []}}, why={("erm", "mnist"): "no data"})
    table = DigitsTable(numbers)
    assert table.block("paper")[1][1] == "n/a [1] / 97.98 (0.34)"
    assert table.block("ours")[1][1:4] == [ABSENT, ABSENT, "0"]
    assert len(table.write(tmp_path)) == 4
    assert draw_digits(numbers, tmp_path / "dots.png", title="nothing") == []


def test_off_the_papers_size_its_numbers_are_not_shown() -> None:
    table = DigitsTable(digits_numbers(TWO, published=False, about="QUICK: it says nothing."))
    assert table.title.endswith("QUICK")
    assert not any("/" in cell for line in table.block("paper") for cell in line)
    assert table.caption[0] == "QUICK: it says nothing."
    assert not any("reproduces" in line for line in table.caption)


def test_the_caption_counts_what_reproduces_and_what_reached_the_last_epoch() -> None:
    scores = {"erm": {"mnist": [0.9797, 0.9799], "usps": [0.80, 0.81]}}
    lines = DigitsTable(digits_numbers(scores, run={"stopped": "all epochs"})).caption
    assert any("1 of 2 cells do" in line for line in lines)
    assert any(line.startswith("4 of 4 trainings of the paper's rows went to the last epoch") for line in lines)


def test_notes_of_runs_are_said_once() -> None:
    lines = DigitsTable(digits_numbers(TWO, run={"notes": ("SYN is rendered from fonts",)})).caption
    assert lines.count("SYN is rendered from fonts.") == 1


def test_machines_get_a_line_a_run_and_everything_unrounded(tmp_path: Path) -> None:
    table = DigitsTable(digits_numbers(TWO))
    names = [path.name for path in table.write(tmp_path)]
    assert names == ["table.md", "table.tex", "table.csv", "table.json"]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    assert len(lines) == 20
    assert lines[0] == {
        "row": "erm",
        "target": "mnist",
        "seed": "0",
        "accuracy": "0.97",
        "validation": "0.97",
        "epochs": "8",
        "best_epoch": "7",
        "seconds": "12.5",
        "run": "erm-mnist-0",
    }
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"]["erm"]["cells"]["mnist"]["mean"] == pytest.approx(0.98)
    assert stored["rows"]["erm"]["cells"]["mnist"]["agreement"] == "same"
    assert stored["rows"]["gdu"]["against"]["pair"]["n"] == 4
    assert stored["contrasts"][0]["found"]["pair"]["difference"] == pytest.approx(0.01875)
    assert stored["sentences"] == table.contrasts


def test_the_page_has_a_table_a_block_and_every_row_as_many_cells() -> None:
    page = DigitsTable(digits_numbers(TWO)).markdown()
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == [
        "## The paper's settings, to the letter",
        "## Our recommended settings",
        "## Controls",
        "## Contrasts",
        "## How to read it",
    ]
    assert {line.count("|") for line in page.splitlines() if line.startswith("|")} == {9}


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_terminal_table_fits_the_width(width: int) -> None:
    numbers: DigitsNumbers = digits_numbers(TWO)
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(DigitsTable(numbers))
    text = console.export_text()
    assert all(cell_len(line) <= width for line in text.splitlines())
    for row in numbers.rows:
        assert ROWS[row].label in text


def test_the_picture_has_a_panel_a_target_and_crosses_of_the_paper(tmp_path: Path) -> None:
    from gated_domains.reports.digits_picture import digits_figure

    numbers = digits_numbers(TWO)
    assert numbers.comparison is not None
    figure = digits_figure(numbers, numbers.comparison, title="Digits-5")
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["mean", "mnist", "usps"]
    mnist = figure.axes[1]
    crosses = [found.get_offsets().tolist() for found in mnist.collections if len(found.get_offsets()) == 2][-1]
    assert crosses == [[97.98, 0.0], [98.74, 1.0]]
    low, high = figure.axes[2].get_xlim()
    assert low < 80
    assert high > 96.54
    (path,) = draw_digits(numbers, tmp_path / "dots.png", title="Digits-5")
    assert path.stat().st_size > 10_000
