"""What a comparison says: in the terminal at every width, in Markdown, CSV and JSON, and in sentences."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_results import many, result, results
from rich.cells import cell_len
from rich.console import Console

from gated_domains.data.errors import DataError
from gated_domains.reports import Comparison, RunResult
from gated_domains.reports.captions import headline
from gated_domains.reports.renderers import escaped
from gated_domains.reports.terminal_table import blocks, count_text, p_text, shortened, time_text
from gated_domains.runs.result import Scores

NAN = math.nan
HOSPITALS = ["a", "b", "c", "d", "e"]
FIVE = {
    "erm": {name: [0.7, 0.7] for name in HOSPITALS} | {"b": [0.6, 0.6], "c": [0.8, 0.8], "d": [0.8, 0.8]},
    "gdu": {"a": [0.74, 0.76], "b": [0.63, 0.65], "c": [0.82, 0.84], "d": [0.81, 0.83], "e": [0.74, 0.76]},
}
SCORES = {
    "erm": {"mnist": [0.90, 0.92], "svhn": [0.60, 0.64]},
    "gdu": {"mnist": [0.93, 0.95], "svhn": [0.66, 0.69]},
}


def printed(comparison: Comparison, width: int = 200, *, styled: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=styled, color_system="standard" if styled else None
    )
    console.print(comparison.rich())
    return console.file.getvalue()  # type: ignore[attr-defined]


def markdown_cells(comparison: Comparison) -> list[list[str]]:
    lines = [line for line in comparison.markdown().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_table_holds_what_was_asked_for() -> None:
    heading, _, erm, gdu = markdown_cells(Comparison(results(FIVE)))
    against = ["on a new domain", "p", "on these domains", "verdict", "W/T/L"]
    assert heading == ["method", *HOSPITALS, "mean", "worst", *against, "time", "n", "parameters"]
    assert erm[6:] == ["72.0 ± 0.0", "60.0 ± 0.0", "–", "–", "–", "–", "–", "12 s", "2", "72.0k"]  # noqa: RUF001
    assert gdu[:3] == ["GDU", "75.0 ± 1.4", "64.0 ± 1.4"]
    assert gdu[6] == "**75.8 ± 1.4**"
    # Differences by domain: 5, 4, 3, 2 and 5 points; t with 4 degrees of freedom, then 5 residual ones.
    assert gdu[8:12] == ["+3.8 (+2.2 to +5.4)", "0.003", "+3.8 (+2.7 to +4.9)", "better"]
    assert gdu[12] == "5/0/0"


def test_errors_have_three_significant_digits() -> None:
    scores = {"erm": {"a": [12345.0, 12400.0]}, "gdu": {"a": [0.5, 0.52]}}
    _, _, erm, gdu = markdown_cells(Comparison(results(scores, metric="rmse")))
    assert erm[1] == "12400 ± 39"
    assert gdu[1] == "0.510 ± 0.014"


def test_one_seed_has_no_spread_and_the_caption_says_so() -> None:
    comparison = Comparison(results({"erm": {"a": [0.5]}, "gdu": {"a": [0.6]}}))
    _, _, erm, gdu = markdown_cells(comparison)
    assert erm[1] == "50.0"
    assert gdu[4:8] == ["–", "–", "+10.0", "–"]  # noqa: RUF001
    caption = " ".join(comparison.caption)
    assert "One seed (0)" in caption
    assert "one seed allows no interval" in caption
    assert "no statement, for want of at least 4 held-out domains" in caption


def test_missing_runs_are_dashes_and_the_caption_names_them() -> None:
    comparison = Comparison(results({**SCORES, "gdu": {"mnist": [0.93, NAN]}}))
    gdu = markdown_cells(comparison)[3]
    assert gdu[1:5] == ["93.0", "–", "–", "–"]  # noqa: RUF001
    assert gdu[-2] == "0-1"
    caption = " ".join(comparison.caption)
    assert "Some runs are missing: GDU lacks mnist (seed 1), svhn (seed 0), svhn (seed 1)." in caption


def test_a_full_table_says_nothing_of_missing_runs() -> None:
    assert "are missing" not in " ".join(Comparison(results(SCORES)).caption)


def test_the_caption_says_how_the_table_was_made() -> None:
    runs = results(FIVE, notes=("SYN is drawn anew",))
    caption = " ".join(Comparison(runs, machine="one pocket calculator").caption)
    for said in (
        "digits: accuracy in percent",
        "higher is better",
        "SYN is drawn anew.",
        "Protocol: leave one domain out.",
        "Model selection: source validation accuracy.",
        "Seeds: 0, 1",
        "± is one standard deviation over seeds",
        "On a new domain: difference to ERM and 95 % interval by the t-test over 5 domains.",
        "On these domains: the difference on these 5 domains alone; its interval reflects other seeds",
        "Practically equal: the 90 % interval on a new domain lies within ±0.5 points (--margin)",
        "measured on one pocket calculator.",
    ):
        assert said in caption


def test_notes_that_runs_share_are_said_once() -> None:
    runs = results(SCORES, notes=("said once",))
    assert " ".join(Comparison(runs).caption).count("said once") == 1


def test_notes_that_hold_for_some_runs_alone_say_for_which() -> None:
    runs = [
        result("erm", "a", notes=("for all", "3 rows left out")),
        result("gdu", "a", notes=("for all", "3 rows left out", "few bases")),
        result("erm", "b", notes=("for all",)),
        result("gdu", "b", notes=("for all", "odd")),
        result("gdu", "b", seed=1, notes=("for all", "few bases")),
    ]
    assert Comparison(runs).notes == [
        "for all",
        "with a held out: 3 rows left out",
        "GDU: few bases",
        "GDU, with b held out: odd",
    ]


def test_methods_that_used_domains_are_marked_and_the_mark_is_explained() -> None:
    runs = [*results(SCORES), *results({"coral": SCORES["gdu"]}, uses_domains=True)]
    comparison = Comparison(runs)
    assert [line[0] for line in markdown_cells(comparison)[2:]] == ["ERM", "GDU", "CORAL †"]
    assert "† used the domain labels" in " ".join(comparison.caption)
    assert "†" not in " ".join(Comparison(results(SCORES)).caption)


def test_the_caption_says_what_a_preset_is() -> None:
    comparison = Comparison([*results(FIVE), *results({"erm": FIVE["gdu"]}, label="recommended")])
    said = "recommended: erm[ema=0.995,fourier_mix=0.9,consistency=1]."
    assert said in comparison.caption
    assert said in " ".join(comparison.rich().caption)


def test_a_method_that_adapts_by_batch_is_marked_and_the_mark_explained():
    table = Comparison([*results(SCORES), *results({"arm-bn": SCORES["gdu"]}, batchwise=True)])
    assert any(
        line.startswith("§ predictions depend on the other rows of the held-out batch") for line in table.caption
    )
    assert not any("§" in line for line in Comparison(results(SCORES)).caption)


def test_without_a_baseline_there_is_no_difference_and_the_caption_says_why() -> None:
    comparison = Comparison(results(SCORES), baseline="coral")
    assert "verdict" not in markdown_cells(comparison)[0]
    assert "baseline was not run" in " ".join(comparison.caption)
    assert "nothing to compare" in comparison.verdict()


def test_frozen_parameters_are_told_from_trained_ones() -> None:
    runs = [result(parameters_trained=20_490, parameters_all=1_234_567)]
    assert markdown_cells(Comparison(runs))[2][-1] == "20.5k of 1.23M"


# --- the terminal ---


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize(("methods", "hold_outs"), [(1, 1), (3, 5), (3, 32), (12, 40)])
def test_nothing_is_cut_or_wider_than_the_terminal(width: int, methods: int, hold_outs: int) -> None:
    comparison = Comparison(many(methods, hold_outs, 2))
    text = printed(comparison, width)
    assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())
    cells = re.findall(r"\d+\.\d ± \d+\.\d", text)
    assert len(cells) == methods * (hold_outs + 2)  # every hold-out, mean and worst, whole
    assert len(re.findall(r"\d s\b", text)) == methods


@pytest.mark.parametrize(("methods", "hold_outs", "details"), [(3, 5, 4), (4, 32, 5)])
def test_at_every_width_a_block_fits_and_all_columns_are_there(methods: int, hold_outs: int, details: int) -> None:
    numbers = Comparison(many(methods, hold_outs, 2)).numbers
    for width in range(60, 240, 7):
        found = blocks(numbers, width)
        for block in found:
            widths = [max(cell_len(text) for text in (column.heading, *column.cells)) for column in block]
            assert sum(widths) + 2 * (len(widths) - 1) <= width
        shown = [column for block in found for column in block[1:]]
        whole = [column for column in shown if column.kind != "detail"]
        assert sum(len(column.cells) for column in whole) == methods * (hold_outs + 7)
        assert len(shown) - len(whole) <= details
    assert sum(column.kind == "detail" for block in blocks(numbers, 600) for column in block) == details


def test_the_answer_comes_first_and_the_caption_is_short_unless_explained() -> None:
    comparison = Comparison(many(3, 5, 2, name="h{}"))
    lines = printed(comparison, 500).splitlines()
    assert lines[0] == comparison.title
    assert lines[1] == comparison.headline()
    blank = [place for place, line in enumerate(lines) if not line.strip()]
    assert len(lines[blank[-1] + 1 :]) <= 5
    console = Console(file=io.StringIO(), width=400)
    console.print(comparison.rich(explain=True))
    explained = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(line in explained for line in comparison.caption)


@pytest.mark.parametrize("width", [80, 120])
def test_answer_both_differences_and_verdict_fit_one_screen(width: int) -> None:
    text = printed(Comparison(many(3, 4, 5, name="hospital{}")), width)
    assert len(text.splitlines()) <= 30
    for heading in ("on a new domain", "on these domains", "verdict"):
        assert heading in text


def test_the_differences_and_the_verdict_stand_in_one_block() -> None:
    runs = [replace(run, by_group={"a": 0.5}, score_by=("user",)) for run in many(17, 6, 2, name="h{}")]
    found = [[column.heading for column in block] for block in blocks(Comparison(runs).numbers, 100)]
    wanted = ["on a new domain", "p (Holm)", "on these domains", "verdict"]
    assert any([name for name in block if name in wanted] == wanted for block in found)


def test_where_it_fits_it_is_one_table_and_else_several() -> None:
    comparison = Comparison(many(3, 5, 2, name="h{}"))
    assert printed(comparison, 220).count("\nmethod  ") == 1
    assert printed(comparison, 100).count("\nmethod  ") == 2


def test_many_hold_outs_stand_below_each_other() -> None:
    lines = printed(Comparison(many(3, 32, 2)), 80).splitlines()
    assert sum(line.startswith("hospital of somewhere ") for line in lines) == 32


def test_the_best_mean_alone_is_bold_and_a_row_that_is_worse_is_grey() -> None:
    worse = {"worse": {name: [score - 0.1 for score in found] for name, found in FIVE["gdu"].items()}}
    comparison = Comparison(results({**FIVE, **worse}))
    text = printed(comparison, 250, styled=True)
    assert "\x1b[1m75.8 ± 1.4\x1b[0m" in text
    assert "\x1b[1m72.0 ± 0.0\x1b[0m" not in text
    assert "\x1b[2mWORSE" in text
    assert "\x1b[2mGDU" not in text
    assert "Bold: the best mean. Grey: worse than the baseline." in comparison.caption
    assert r"\textcolor{gray}{WORSE}" in comparison.latex()
    assert "xcolor" in comparison.latex()


def test_brackets_in_names_are_no_markup() -> None:
    comparison = Comparison(results({"erm": {"[red]a[/red]": [0.5]}}))
    assert "[red]a[/red]" in printed(comparison)


def test_long_names_lose_their_middle_and_stay_apart() -> None:
    names = ["short", "a_rather_long_hospital_name_1", "a_rather_long_hospital_name_2", "x" * 30, "x" * 31, "医院" * 12]
    found = shortened(names, 14)
    assert found[0] == "short"
    assert found[1].endswith("_1")
    assert found[2].endswith("_2")
    assert len(set(found)) == len(names)
    assert all(cell_len(name) <= 14 for name in found)


# --- for pages and machines ---


def test_markdown_survives_any_name() -> None:
    scores = {
        "erm": {"a|b": [0.5, 0.6], "two\nlines": [0.5, 0.7]},
        "gdu": {"a|b": [0.5, 0.6], "two\nlines": [0.6, 0.9]},
    }
    lines = markdown_cells(Comparison(results(scores)))
    assert lines[0][1:3] == [r"a\|b", "two lines"]
    assert {len(line) for line in lines} == {len(lines[0])}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("*x*", r"\*x\*"),
        ("_a_", r"\_a\_"),
        ("my_data", "my_data"),
        ("<b>", r"\<b>"),
        ("p <0.001", "p <0.001"),
        ("a\\|", "a\\\\\\|"),
        ("[l](u)", r"\[l\](u)"),
    ],
)
def test_markdown_shows_letters_as_they_are(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_csv_has_a_line_a_method_and_survives_commas() -> None:
    name = 'a, "b"\nand c'
    runs = results({"erm": {name: [0.5, 0.6]}, "gdu": {name: [0.7, 0.9]}})
    erm, gdu = csv.DictReader(io.StringIO(Comparison(runs).csv()))
    assert gdu["method"] == "gdu"
    assert float(gdu[f"held out: {name}"]) == pytest.approx(0.8)
    assert float(gdu["mean_std"]) == pytest.approx(math.sqrt(0.02))
    assert float(gdu["these_domains_difference"]) == pytest.approx(0.25)
    assert gdu["these_domains_n"] == "2"
    assert (gdu["new_domain_low"], gdu["verdict"]) == ("", "")  # one domain says nothing about another
    assert erm["these_domains_difference"] == erm["holm_p_value"] == ""


def test_a_domain_may_be_called_like_a_column() -> None:
    runs = results({"erm": {"mean": [0.5], "worst": [0.7], "n": [0.6]}})
    (line,) = csv.DictReader(io.StringIO(Comparison(runs).csv()))
    assert float(line["mean"]) == pytest.approx(0.6)
    assert [float(line[f"held out: {name}"]) for name in ("mean", "worst", "n")] == [0.5, 0.7, 0.6]


def test_runs_csv_has_a_line_a_run_with_every_domain() -> None:
    runs = [result("erm", "a+b", test={"a": 0.2, "b": 0.4}), result("gdu", "a+b", test={"a": 0.4, "b": 0.6})]
    erm, gdu = csv.DictReader(io.StringIO(Comparison(runs).runs_csv()))
    assert (erm["run"], gdu["run"]) == ("erm-a+b-0", "gdu-a+b-0")
    assert float(erm["score"]) == pytest.approx(0.3)
    assert json.loads(gdu["by_domain"]) == {"a": 0.4, "b": 0.6}


def test_json_holds_everything_unrounded() -> None:
    comparison = Comparison(results({**SCORES, "gdu": {"mnist": [1 / 3, NAN]}}), machine="m")
    stored = json.loads(comparison.json())
    erm, gdu = stored["methods"]
    assert gdu["hold_outs"]["mnist"] == {"mean": 1 / 3, "std": None, "n": 1}
    assert gdu["mean"] is None
    assert erm["mean_by_seed"] == {"0": 0.75, "1": pytest.approx(0.78)}
    assert [run["seed"] for run in erm["runs"]] == [0, 1, 0, 1]
    assert (stored["baseline"], stored["machine"], stored["hold_outs"]) == ("erm", "m", ["mnist", "svhn"])
    assert stored["caption"] == comparison.caption


def test_five_files_are_written_and_nothing_else(tmp_path: Path) -> None:
    comparison = Comparison(results(SCORES))
    paths = comparison.write(tmp_path / "new")
    assert [path.name for path in paths] == ["table.md", "table.tex", "table.csv", "runs.csv", "table.json"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in paths)
    texts = (
        comparison.markdown(),
        comparison.latex(),
        comparison.csv(),
        comparison.runs_csv(),
        comparison.json(),
    )
    assert tuple(path.read_bytes().decode() for path in paths) == texts


# --- sentences ---


def two(erm: list[float], gdu: list[float], **others) -> list[RunResult]:
    hold_outs = [f"h{place}" for place in range(len(erm))]
    scores = {
        name: {hold_out: [score] for hold_out, score in zip(hold_outs, found, strict=True)}
        for name, found in (("erm", erm), ("gdu", gdu))
    }
    return results(scores, **others)


def verdict(erm: list[float], gdu: list[float], **others) -> str:
    return Comparison(two(erm, gdu, **others)).verdict()


def test_an_undecided_difference_says_how_many_domains_would_decide_it() -> None:
    assert re.fullmatch(
        r"GDU 70\.3, ERM 70\.0: \+0\.3 points on a new domain \(95 % interval -\d\.\d to \+\d\.\d, p 0\.\d+\): "
        r"undecided; about \d+ domains would decide it\.",
        verdict([0.7, 0.6, 0.8, 0.7, 0.7], [0.71, 0.59, 0.82, 0.692, 0.705]),
    )


def test_a_small_difference_is_practically_equal_within_the_margin() -> None:
    erm, gdu = [0.7, 0.6, 0.8, 0.7, 0.7], [0.701, 0.602, 0.801, 0.699, 0.701]
    assert verdict(erm, gdu).endswith("practically equal.")
    # No margin is known for an error in units of the target.
    assert "practically equal" not in verdict(erm, gdu, metric="rmse")
    assert Comparison(two(erm, gdu, metric="rmse"), margin=0.005).verdict().endswith("practically equal.")
    assert "undecided" in Comparison(two(erm, gdu), margin=0.01).verdict()


@pytest.mark.parametrize("margin", [0.0, -1.0, math.nan, math.inf])
def test_a_margin_that_is_no_positive_number_is_refused(margin: float) -> None:
    with pytest.raises(DataError, match="the margin must be a number above 0"):
        Comparison(two([0.7], [0.7]), margin=margin)


def test_better_and_worse_are_called_so() -> None:
    low, high = [0.7, 0.6, 0.8, 0.7, 0.5], [0.8, 0.71, 0.91, 0.79, 0.6]
    assert verdict(low, high).endswith("): better.")
    assert verdict(high, low).endswith("): worse.")
    assert verdict(low, high, metric="rmse").endswith("): worse.")
    assert verdict(high, low, metric="rmse").endswith("): better.")


def test_three_domains_are_too_few_for_a_verdict_whatever_their_p() -> None:
    assert verdict([0.7, 0.6, 0.8], [0.8, 0.71, 0.91]) == (
        "GDU 80.7, ERM 70.0: +10.7 points on these 3 domains. No verdict on a new domain: that needs at least 4 "
        "held-out domains, and there are 3."
    )


def test_a_method_that_shares_fewer_domains_is_judged_by_those() -> None:
    scores = {**FIVE, "late": {name: FIVE["gdu"][name] for name in "abc"}}
    comparison = Comparison(results(scores))
    assert (
        "on these 3 domains. No verdict on a new domain: that needs at least 4 held-out domains, and there are 3."
        in (comparison.verdict())
    )
    more = Comparison(results({**scores, **{f"m{place}": FIVE["gdu"] for place in range(3)}}))
    assert "No verdict, for want of 4 shared domains: LATE." in more.verdict()
    assert "t-test over up to 5 domains" in " ".join(comparison.caption)


def test_the_number_of_domains_to_decide_takes_the_number_of_methods_into_account() -> None:
    gaps = {"h0": 0.05, "h1": -0.01, "h2": 0.03, "h3": 0.0, "h4": 0.01}
    erm, gdu = {name: [0.7] for name in gaps}, {name: [0.7 + gap] for name, gap in gaps.items()}
    needed = []
    for count in (1, 4, 16):
        scores = {"erm": erm, **{f"m{place}": gdu for place in range(count)}}
        against = Comparison(results(scores), margin=0.01).numbers.rows[1].against
        assert against is not None
        needed.append(against.domains_needed)
    assert needed == sorted(set(needed))  # more methods, more domains


def test_unequal_folds_say_that_differences_and_means_weigh_differently() -> None:
    folds = {"fold 1": ["a", "b"], "fold 2": ["c"], "fold 3": ["d"], "fold 4": ["e"]}
    runs = [
        result(method, fold, 0, held_out=tuple(names), test=dict.fromkeys(names, 0.5 + shift))
        for method, shift in (("erm", 0.0), ("gdu", 0.1))
        for fold, names in folds.items()
    ]
    assert "Differences weigh every fold equally, means every domain." in " ".join(Comparison(runs).caption)


def test_very_many_domains_scored_as_folds_are_called_folds() -> None:
    comparison = Comparison(many(2, 5, 2, name="fold {}"))
    assert "t-test over 5 folds" in printed(comparison)


def test_the_caption_says_where_every_seed_has_its_own_split() -> None:
    own = [replace(run, split_seed=run.seed) for run in results(FIVE)]
    assert "Every seed draws its own train/validation split." in " ".join(Comparison(own).caption)
    same = [replace(run, split_seed=0) for run in results(FIVE)]
    assert "its own train/validation split" not in " ".join(Comparison(same).caption)


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_short_caption_has_at_most_five_lines_and_ends_with_where_to_read_more(seeds: int) -> None:
    runs = [replace(run, oracle=True, uses_domains=True, batchwise=True) for run in many(3, 5, seeds)]
    caption = Comparison(runs).rich().caption
    assert len(caption) <= 5
    assert caption[-1].endswith("--explain, or the report.")
    assert any("ORACLE" in line for line in caption)
    if seeds == 1:
        assert not any("interval over seeds" in line for line in caption)


def test_more_seeds_do_not_replace_domains() -> None:
    """Ten seeds on the same five domains are as undecided as one: the unit is the domain."""
    gaps = {"h0": 0.05, "h1": -0.01, "h2": 0.03, "h3": 0.0, "h4": 0.02}
    one = {"erm": {name: [0.7] for name in gaps}, "gdu": {name: [0.7 + gap] for name, gap in gaps.items()}}
    ten = {method: {name: found * 10 for name, found in by.items()} for method, by in one.items()}
    assert Comparison(results(one)).verdict() == Comparison(results(ten)).verdict()
    assert "undecided" in Comparison(results(ten)).verdict()


def test_domains_held_out_together_are_named() -> None:
    scores = {"erm": {"fold 1": [0.5]}, "gdu": {"fold 1": [0.6]}}
    found = [replace(run, held_out=("a", "b"), test={"a": 0.5, "b": 0.6}) for run in results(scores)]
    assert "fold 1 holds out a, b." in Comparison(found).caption


def test_what_allows_no_test_is_not_tested() -> None:
    assert "No verdict on a new domain" in verdict([0.5], [0.6])
    assert verdict([0.5] * 4, [0.5] * 4).endswith("p 1.00): practically equal.")
    same = verdict([0.5, 0.6, 0.7, 0.8], [0.6, 0.7, 0.8, 0.9])
    assert same.endswith("(the same on every domain, so there is no test): undecided.")


def test_the_sentence_is_of_the_pairs_that_both_have() -> None:
    scores = {"erm": {"a": [0.5], "b": [0.9]}, "gdu": {"a": [0.6], "b": [NAN]}}
    assert Comparison(results(scores)).verdict().startswith("GDU 60.0, ERM 50.0: +10.0 points on the held-out")


def test_of_many_methods_the_best_is_told_and_the_rest_grouped() -> None:
    base = [0.7, 0.6, 0.8, 0.7, 0.7]
    changes = {"erm": 0.0, "up": 0.1, "down": -0.1, "same": 0.0, "far": 0.2}
    scores = {
        name: {f"h{place}": [score + change + 0.01 * (place % 2) * (name != "erm")] for place, score in enumerate(base)}
        for name, change in changes.items()
    }
    assert Comparison(results(scores)).verdict().splitlines()[1:] == [
        "Better on a new domain, compared with ERM: UP, FAR.",
        "Worse on a new domain, compared with ERM: DOWN.",
        "Undecided on a new domain, compared with ERM: SAME (16).",
        "In brackets: about how many domains would decide it.",
    ]
    assert Comparison(results(scores)).verdict().startswith("FAR 90.4, ERM 70.0: +20.4 points on a new domain")


def test_the_headline_says_what_scored_higher_and_what_the_tests_carry() -> None:
    base = [0.7, 0.6, 0.8, 0.7, 0.7]

    def said(count: int = 5, **changes: float) -> str:
        scores = {
            name: {
                f"h{place}": [score + change + 0.02 * ((place % 2) - 0.4) * (name != "erm")]
                for place, score in enumerate(base[:count])
            }
            for name, change in {"erm": 0.0, **changes}.items()
        }
        return headline(Comparison(results(scores)).numbers)

    assert re.fullmatch(
        r"On these 5 domains, compared with ERM \(70\.0\): FAR \(\+20\.0\), UP \(\+10\.0\) "
        r"did better \(one seed\)\. "
        r"FAR is better than ERM \(70\.0\): \+20\.0 points on a new domain \(.*, Holm p <0\.001\)\. Also better: UP\.",
        said(up=0.1, far=0.2),
    )
    assert said(same=0.0, down=-0.1) == (
        "On these 5 domains, compared with ERM (70.0): SAME (0.0) made no difference; "
        "DOWN (-10.0) did worse (one seed). "
        "No method is shown to be better than ERM (70.0) on a new domain. Worse: DOWN. Undecided: SAME."
    )
    assert said(same=0.0, other=0.001).endswith(
        " On a new domain no method is shown to be better than ERM (70.0): all are undecided."
    )
    errors = {"erm": {"a": [2.0], "b": [3.0]}, "up": {"a": [1.0], "b": [2.0]}, "down": {"a": [4.0], "b": [5.0]}}
    lower = {name: {f"{hold}{n}": seeds for hold, seeds in of.items() for n in (1, 2)} for name, of in errors.items()}
    assert headline(Comparison(results(lower, metric="rmse")).numbers).startswith(
        "On these 4 domains, compared with ERM (2.50): UP (-1.00) did better; DOWN (+2.00) did worse "
    )
    assert said(3, up=0.1, far=0.2).startswith("No verdict on how any method compares with ERM")
    assert said(up=0.1).startswith("UP 80.0, ERM 70.0: +10.0 points on a new domain")
    assert headline(Comparison([result("gdu", score=0.5)]).numbers) == (
        "GDU scores 50.0 on held-out domains; there is no baseline to compare it with."
    )


def test_with_two_seeds_the_headline_begins_with_what_helped_and_what_did_not() -> None:
    base = [0.7, 0.6, 0.8, 0.7, 0.7]
    changes = {"erm": 0.0, "up": 0.1, "same": 0.0, "down": -0.1}
    scores = {
        name: {f"h{place}": [score + change, score + change + 0.01 * (name != "erm") * (-1) ** place]
               for place, score in enumerate(base)}
        for name, change in changes.items()
    }  # fmt: skip
    assert headline(Comparison(results(scores)).numbers).startswith(
        "On these 5 domains, compared with ERM (70.0): UP (+10.1) helped; SAME (+0.1) made no significant difference; "
        "DOWN (-9.9) hurt (95 % intervals over seeds, not corrected for the number of methods). "
        "UP is better than ERM (70.0)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.34, "0.3 s"), (12.3, "12 s"), (99.7, "1.7 min"), (3600, "60.0 min"), (7200, "2.0 h")]
)
def test_times_are_for_people(seconds: float, text: str) -> None:
    assert time_text(float(seconds)) == text


def test_counts_are_for_people() -> None:
    assert [count_text(count) for count in (842.0, 999.7, 72_042.0, 1_234_567.0, 2e9)] == [
        "842",
        "1.00k",
        "72.0k",
        "1.23M",
        "2.00G",
    ]


def test_small_p_values_are_bounds() -> None:
    found = [p_text(p) for p in (0.57, 0.0496, 0.0004, None)]
    assert found == ["0.57", "0.050", "<0.001", "–"]  # noqa: RUF001


# --- several methods ---


def apart(**gains: float) -> dict[str, dict[str, list[float]]]:
    """ERM and rivals that are better by so much, and a little more or less by hold-out."""
    base = [0.7, 0.6, 0.8, 0.7, 0.65, 0.75]
    wobble = [0.01, -0.01, 0.012, -0.008, 0.009, -0.011]
    return {
        name: {f"h{place}": [score + gain + (gain != 0) * wobble[place]] for place, score in enumerate(base)}
        for name, gain in {"erm": 0.0, **gains}.items()
    }


def test_p_is_corrected_for_the_number_of_methods_and_the_caption_says_for_how_many() -> None:
    gains = {f"m{place}": 0.013 for place in range(6)}
    alone, among = Comparison(results(apart(m0=0.013))), Comparison(results(apart(**gains)))
    first, many_first = (comparison.numbers.rows[1].against for comparison in (alone, among))
    assert first is not None
    assert many_first is not None
    assert first.holm == first.new_domain.p_value == many_first.new_domain.p_value
    assert many_first.holm == pytest.approx(6 * first.holm)
    assert "p (Holm)" in markdown_cells(among)[0]
    assert "p" in markdown_cells(alone)[0]
    assert "corrected by Holm's procedure for 6 methods" in " ".join(among.caption)
    assert "Holm" not in " ".join(alone.caption)


def test_the_verdict_is_by_the_corrected_p() -> None:
    gains = {f"m{place}": 0.013 for place in range(6)}
    assert Comparison(results(apart(m0=0.013))).verdict().endswith(": better.")
    text = Comparison(results(apart(**gains))).verdict()
    assert re.search(r"Holm p 0\.\d+\): undecided; about \d+ domains would decide it\.", text)
    assert "Undecided on a new domain, compared with ERM: M0 (9), M1 (9), M2 (9), M3 (9), M4 (9), M5 (9)." in text


def test_wins_follow_the_direction_of_the_metric() -> None:
    found = [
        markdown_cells(Comparison(results(apart(up=0.05), metric=metric)))[3][13] for metric in ("accuracy", "rmse")
    ]
    assert found == ["6/0/0", "0/0/6"]


def test_csv_and_json_have_every_test_corrected_and_not() -> None:
    comparison = Comparison(results(apart(one=0.013, two=0.05)))
    lines = list(csv.DictReader(io.StringIO(comparison.csv())))
    stored = json.loads(comparison.json())
    assert stored["tested"] == 2
    for line, method, row in zip(lines, stored["methods"], comparison.numbers.rows, strict=True):
        if row.against is None:
            assert line["holm_p_value"] == line["wins"] == line["new_domain_low"] == ""
            assert method["difference"] is None
            continue
        interval = row.against.new_domain.interval()
        assert interval is not None
        assert line["verdict"] == method["difference"]["verdict"] == row.against.verdict
        expected = {
            "difference": row.against.new_domain.difference,
            "low": interval.low,
            "high": interval.high,
            "p_value": row.against.new_domain.p_value,
        }
        assert {name: float(line[f"new_domain_{name}"]) for name in expected} == pytest.approx(expected)
        assert {name: method["difference"]["new_domain"][name] for name in expected} == pytest.approx(expected)
        assert float(line["holm_p_value"]) == method["difference"]["new_domain"]["holm_p_value"] == row.against.holm
        assert float(line["sign_flip_p_value"]) == pytest.approx(row.against.sign_flip)
        assert (line["wins"], method["difference"]["wins"]) == ("6", 6)


def test_seventeen_methods_and_six_hold_outs_fit_a_hundred_columns_in_two_blocks() -> None:
    comparison = Comparison(many(17, 6, 5, name="domain{}"))
    text = printed(comparison, 100)
    assert text.count("\nmethod  ") == 2  # the scores, then the differences
    assert all(cell_len(line.rstrip()) <= 100 for line in text.splitlines())
    assert len(re.findall(r"\d+\.\d ± \d+\.\d", text)) == 17 * 8


# --- the oracle ---


def test_the_oracle_is_marked_in_every_form() -> None:
    comparison = Comparison(results(SCORES, oracle=True, selection="ORACLE, by the held-out domain itself: accuracy"))
    assert comparison.title.endswith(", selected by ORACLE")
    assert "‡ ORACLE: selected by the score on the held-out domain itself" in " ".join(comparison.caption)
    assert [line[0] for line in markdown_cells(comparison)[2:]] == ["ERM ‡", "GDU ‡"]
    text = printed(comparison)
    assert "selected by ORACLE" in text.splitlines()[0]
    assert "GDU ‡" in text
    assert [line["oracle"] for line in csv.DictReader(io.StringIO(comparison.csv()))] == ["True", "True"]
    assert {line["oracle"] for line in csv.DictReader(io.StringIO(comparison.runs_csv()))} == {"True"}
    stored = json.loads(comparison.json())
    assert stored["oracle"] is True
    assert stored["methods"][0]["oracle"] is True


def test_without_an_oracle_nothing_is_marked() -> None:
    comparison = Comparison(results(SCORES))
    for text in (comparison.title, comparison.markdown(), printed(comparison)):
        assert "‡" not in text
        assert "ORACLE" not in text
    assert json.loads(comparison.json())["oracle"] is False


def test_calibrated_probabilities_are_said_to_be_so() -> None:
    runs = [replace(run, temperature=1.0 + place / 4) for place, run in enumerate(results(SCORES))]
    said = "Probabilities are calibrated: at temperatures of 1.00 to 2.75, fitted on validation rows of the sources."
    assert said in Comparison(runs).caption
    assert "calibrated" not in " ".join(Comparison(results(SCORES)).caption)


# --- groups, and other metrics ---


def test_groups_have_two_columns_where_they_were_scored() -> None:
    runs = [
        replace(
            run, by_group={str(place): run.test[run.hold_out] - place / 100 for place in range(11)}, score_by=("user",)
        )
        for run in results(SCORES)
    ]
    comparison = Comparison(runs)
    heading, _, erm, _ = markdown_cells(comparison)
    assert heading[3:8] == ["mean", "worst", "worst group", "10th pct.", "on a new domain"]
    # Of seed 0, svhn has groups from 0.50 to 0.60, mnist from 0.80 to 0.90: a tenth of 22 lies below 0.521.
    assert erm[5:7] == ["52.0 ± 2.8", "54.1 ± 2.8"]
    assert "Groups: by user, 22 of them over all held-out domains." in " ".join(comparison.caption)
    (line, _) = csv.DictReader(io.StringIO(comparison.csv()))
    assert float(line["worst_group"]) == pytest.approx(0.52)
    assert float(line["group_percentile_10"]) == pytest.approx(0.541)


def test_one_grid_may_be_shown_under_any_metric_it_was_scored_by() -> None:
    kept = {
        "validation": {"auroc": Scores({"usps": 0.99}, 0.99)},
        "test": {"auroc": Scores({"mnist": 0.8}, 0.8)},
    }
    runs = [result("erm", all_metrics=kept), result("gdu", all_metrics=kept)]
    comparison = Comparison(runs, metric="auroc")
    assert comparison.title == "digits: AUROC on held-out domains"
    assert markdown_cells(comparison)[2][1] == "80.0"
    assert "Model selection: source validation accuracy." in " ".join(comparison.caption)
    assert Comparison(runs, metric="accuracy").numbers == Comparison(runs).numbers
    with pytest.raises(DataError, match="erm-mnist-0 has no macro F1; metrics it was scored by: auroc"):
        Comparison(runs, metric="f1")
    with pytest.raises(DataError, match="did you mean 'auroc'"):
        Comparison(runs, metric="aurok")


def test_held_out_domains_without_a_score_are_named_and_take_no_part() -> None:
    kept = {
        "validation": {"auroc": Scores({"usps": 0.99}, 0.99)},
        "test": {"auroc": Scores({"mnist": 0.8}, 0.8)},
    }
    bare = {"validation": kept["validation"], "test": {}}
    runs = [result("erm", all_metrics=kept), result("erm", "svhn", all_metrics=bare)]
    comparison = Comparison(runs, metric="auroc")
    assert comparison.numbers.hold_outs == ("mnist",)
    assert "Without AUROC, and not part of any number here: svhn, whose rows share one target." in comparison.caption
    with pytest.raises(DataError, match="the rows of svhn each share one target; choose another metric"):
        Comparison(runs[1:], metric="auroc")
