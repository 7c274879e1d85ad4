"""The table of Digits-5: published numbers, agreement with them, differences, contrasts, and what is written."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from made_digits import digits_numbers
from rich.cells import cell_len
from rich.console import Console
from scipy import stats

from gated_domains.evaluation.statistics import Effect
from gated_domains.reports.digits_numbers import DigitsNumbers
from gated_domains.reports.digits_picture import draw_digits
from gated_domains.reports.digits_table import DigitsTable
from gated_domains.reports.digits_words import difference, points
from gated_domains.reports.published_digits import CONTRASTS, REFERENCES, ROWS, TABLE, TARGETS
from gated_domains.reports.terminal_table import ABSENT, p_text

FOUR = ("mnist", "svhn", "usps", "syn")
TWO = {
    "erm": {"mnist": [0.97, 0.99], "svhn": [0.70, 0.71], "usps": [0.80, 0.82], "syn": [0.85, 0.85]},
    "ft_mmd": {"mnist": [0.98, 0.99], "svhn": [0.70, 0.73], "usps": [0.84, 0.85], "syn": [0.86, 0.88]},
    "gdu": {"mnist": [0.985, 0.995], "svhn": [0.90, 0.90], "usps": [0.90, 0.93], "syn": [0.90, 0.90]},
    "erm_linear": {"mnist": [0.98, 0.985], "svhn": [0.90, 0.89], "usps": [0.88, 0.89], "syn": [0.90, 0.90]},
    "linear_tanh": {"mnist": [0.975, 0.985], "svhn": [0.7, 0.72], "usps": [0.83, 0.84], "syn": [0.87, 0.85]},
}
"""Two runs of five rows on four targets."""


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
    assert heading[:6] == ["method", "MNIST", "SVHN", "USPS", "SYN", "mean"]
    assert erm[0] == "ERM (tanh)"
    assert erm[1].startswith("98.00 (1.41) / 97.98 (0.34)")
    assert tuned[3].startswith("84.50 (0.71) / 96.54 (0.27)")
    assert erm[5].startswith("83.62 (0.88) / 86.37")  # of the four targets that are here


def test_ours_has_no_published_number_beside_it() -> None:
    _, gdu = DigitsTable(digits_numbers(TWO)).block("ours")
    assert gdu[1] == "99.00 (0.71)"


def around(mean: float, std: float, n: int) -> list[float]:
    """n accuracies with this mean and standard deviation in percent."""
    steps = np.arange(n) - (n - 1) / 2
    return ((mean + std * steps / steps.std(ddof=1)) / 100).tolist()


def welch(difference: float, parts: list[tuple[float, int]]) -> tuple[float, float, float]:
    """The two-sided p-value and the 90 % interval of a difference, from squared errors and degrees of freedom."""
    variance = sum(part for part, _ in parts)
    df = variance**2 / sum(part**2 / freedom for part, freedom in parts)
    reach = stats.t.ppf(0.95, df) * math.sqrt(variance)
    p_value = 2 * stats.t.sf(abs(difference) / math.sqrt(variance), df)
    return p_value, difference - reach, difference + reach


@pytest.mark.parametrize("off", [-3.0, -0.9, -0.2, 0.0, 0.5, 0.8, 1.2, 4.0])
@pytest.mark.parametrize("std", [0.1, 0.6, 2.0])
def test_the_level_of_erm_reproduces_where_it_is_equivalent_by_two_welch_tests(off: float, std: float) -> None:
    # ERM on MNIST: 97.98 (0.34) over ten runs.
    numbers = digits_numbers({"erm": {"mnist": around(97.98 - abs(off), std, 6)}})
    p_value, low, high = welch(-abs(off), [(std**2 / 6, 5), (0.34**2 / 10, 9)])
    expected = "reproduces" if low > -1 and high < 1 else "differs" if p_value < 0.05 else "undecided"
    assert numbers.agreement("erm", "mnist") == expected


def test_the_margin_is_two_points_where_the_papers_spread_is_large() -> None:
    # MNIST-M: ERM 63.00 (3.20), ensemble 62.87 (1.50).
    close = {"erm": {"mnistm": around(63.0, 0.1, 40)}, "erm_ensemble": {"mnistm": around(62.87, 0.1, 40)}}
    numbers = digits_numbers(close)
    assert numbers.agreement("erm", "mnistm") == "reproduces"  # its standard error alone is 1.01
    assert numbers.paper("erm", "mnistm").margin == 2
    assert numbers.paper("erm_ensemble", "mnistm").margin == 1


def test_the_level_alone_does_not_reproduce_without_the_gain_over_erm() -> None:
    # The paper gains 0.77 on MNIST with FT cosine; here the level is met, and ERM is as good.
    level, erm = around(98.75, 0.05, 10), around(98.75, 0.05, 10)
    numbers = digits_numbers({"erm": {"mnist": erm}, "ft_cosine": {"mnist": level}})
    assert numbers.agreement("ft_cosine", "mnist") == "reproduces"  # 0.77 less is within a point
    usps = digits_numbers({"erm": {"usps": around(96.43, 0.05, 10)}, "ft_cosine": {"usps": around(96.43, 0.05, 10)}})
    assert usps.agreement("ft_cosine", "usps") == "differs"  # the paper gains 2.73 on USPS


def test_fewer_than_five_runs_leave_it_undecided() -> None:
    assert digits_numbers({"erm": {"mnist": around(97.98, 0.1, 4)}}).agreement("erm", "mnist") == "undecided"
    assert digits_numbers({"erm": {"mnist": around(97.98, 0.1, 5)}}).agreement("erm", "mnist") == "reproduces"
    without_erm = digits_numbers({"ft_cosine": {"mnist": around(98.75, 0.1, 5)}})
    assert without_erm.agreement("ft_cosine", "mnist") == "undecided"


def test_marks_and_caption_count_what_reproduces() -> None:
    scores = {"erm": {"mnist": around(97.98, 0.1, 5), "usps": around(80.0, 0.5, 5), "syn": [0.8362, 0.84]}}
    table = DigitsTable(digits_numbers(scores))
    assert [cell[-1] for cell in table.block("paper")[1][1:4]] == ["≈", "≠", "?"]
    assert any("3 cells: 1 reproduces, 1 differs, 1 undecided." in line for line in table.caption)


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
    keys = [(target, seed) for target in FOUR for seed in (0, 1)]

    def by_hand(row: str, reference: str) -> float:
        return sum(TWO[row][target][seed] - TWO[reference][target][seed] for target, seed in keys) / 8

    assert numbers.against["ft_mmd"].new_domain.difference == pytest.approx(by_hand("ft_mmd", "erm"))
    assert numbers.against["gdu"].new_domain.difference == pytest.approx(by_hand("gdu", "erm_linear"))
    assert numbers.against["linear_tanh"].new_domain.difference == pytest.approx(by_hand("linear_tanh", "erm_linear"))


def test_p_is_corrected_over_the_rows_of_one_reference() -> None:
    numbers = digits_numbers(TWO)
    assert (
        numbers.against["ft_mmd"].holm == numbers.against["ft_mmd"].new_domain.p_value
    )  # the only one against ERM (tanh)
    gdu, linear = (numbers.against[row] for row in ("gdu", "linear_tanh"))
    assert gdu.new_domain.p_value is not None
    assert linear.new_domain.p_value is not None
    smaller = min((gdu, linear), key=lambda one: one.new_domain.p_value or 0)
    assert smaller.holm == pytest.approx(2 * (smaller.new_domain.p_value or 0))


def test_without_its_reference_a_row_stands_alone() -> None:
    assert digits_numbers({"gdu": TWO["gdu"]}).against == {}


def test_a_contrast_is_one_sentence_from_the_numbers() -> None:
    table = DigitsTable(digits_numbers(TWO))
    assert [contrast.letter for contrast in table.numbers.contrasts] == ["a", "d"]
    found = table.numbers.contrasts[0]
    assert table.contrasts[0] == (
        f"(a) GDU 92.62 against ERM 91.56. On a new domain: {difference(found.found.new_domain)} points, "
        f"p {p_text(found.found.holm)} corrected for 2 contrasts: undecided "
        f"(about {found.found.domains_needed} domains would decide it). "
        f"On these 4 targets: {difference(found.found.these_domains)} points."
    )
    alone = DigitsTable(digits_numbers({row: TWO[row] for row in ("gdu", "erm_linear")})).numbers.contrasts[0]
    assert alone.found.holm == alone.found.new_domain.p_value
    stored = json.loads(table.json())["contrasts"]
    assert [one["found"]["verdict"] for one in stored] == [one.found.verdict for one in table.numbers.contrasts]
    assert stored[0]["found"]["new_domain"]["holm_p_value"] == found.found.holm


def test_fewer_than_four_targets_give_no_verdict() -> None:
    numbers = digits_numbers({"gdu": {"mnist": [0.9, 0.7]}, "erm_linear": {"mnist": [0.8, 0.65]}})
    (line,) = DigitsTable(numbers).contrasts
    assert line.startswith("(a) GDU 80.00 against ERM 72.50. On this 1 target: +7.50 (")
    assert line.endswith("; no verdict on a new domain with fewer than 4 targets.")


def test_runs_that_only_one_row_has_do_not_count_in_a_contrast() -> None:
    numbers = digits_numbers({"gdu": {"mnist": [0.9, 0.5]}, "erm_linear": {"mnist": [0.8]}})
    (contrast,) = numbers.contrasts
    assert (contrast.found.these_domains.n, contrast.first_mean, contrast.second_mean) == (1, 0.9, 0.8)


def test_differences_have_signs_and_zero_has_none() -> None:
    assert (points(0.015), points(-0.0001), points(0.00001)) == ("+1.50", "-0.01", "0.00")
    assert difference(None) == ABSENT
    assert difference(Effect(0.25, None, 0.0, 1)) == "+25.00"


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


def test_the_caption_counts_what_reached_the_last_epoch() -> None:
    scores = {"erm": {"mnist": [0.9797, 0.9799], "usps": [0.80, 0.81]}}
    lines = DigitsTable(digits_numbers(scores, run={"stopped": "all epochs"})).caption
    assert any(line.startswith("4 of 4 trainings of the paper's rows reached the last epoch") for line in lines)


def test_notes_of_runs_are_said_once() -> None:
    lines = DigitsTable(digits_numbers(TWO, run={"notes": ("SYN is rendered from fonts",)})).caption
    assert lines.count("SYN is rendered from fonts.") == 1


def test_machines_get_a_line_a_run_and_everything_unrounded(tmp_path: Path) -> None:
    table = DigitsTable(digits_numbers(TWO))
    names = [path.name for path in table.write(tmp_path)]
    assert names == ["table.md", "table.tex", "table.csv", "table.json"]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    assert len(lines) == 40
    assert {name: lines[0][name] for name in ("settings", "stopped", "machine")} == {
        "settings": "",
        "stopped": "early",
        "machine": "",
    }
    numbers = ("row", "target", "seed", "accuracy", "validation", "epochs", "best_epoch", "seconds", "run")
    assert {name: lines[0][name] for name in numbers} == {
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
    assert stored["rows"]["erm"]["cells"]["mnist"]["agreement"] == "undecided"
    assert stored["rows"]["gdu"]["against"]["new_domain"]["n"] == 4
    assert stored["contrasts"][0]["found"]["new_domain"]["difference"] == pytest.approx(0.010625)
    assert stored["sentences"] == table.contrasts


def test_the_page_has_a_table_a_block_and_every_row_as_many_cells() -> None:
    page = DigitsTable(digits_numbers(TWO)).markdown()
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == [
        "## The paper's settings, to the letter",
        "## Our settings",
        "## Controls",
        "## Contrasts",
        "## How to read it",
    ]
    assert {line.count("|") for line in page.splitlines() if line.startswith("|")} == {12}


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
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["mean", *FOUR]
    mnist = figure.axes[1]
    crosses = [found.get_offsets().tolist() for found in mnist.collections if len(found.get_offsets()) == 2][-1]
    assert crosses == [[97.98, 0.0], [98.74, 1.0]]
    low, high = figure.axes[3].get_xlim()
    assert low < 80
    assert high > 96.54
    (path,) = draw_digits(numbers, tmp_path / "dots.png", title="Digits-5")
    assert path.stat().st_size > 10_000
