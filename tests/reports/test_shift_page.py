"""A new site in words, in JSON, in figures and on its small page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_sites import a_site
from test_page import HOSTILE, Parsed, shown

from gated_domains.data.errors import DataError
from gated_domains.reports.charts.drawn import write_chart
from gated_domains.reports.figures.site_shift import charts
from gated_domains.reports.shift_page import shift_html, write_shift_page
from gated_domains.reports.shift_words import sentences, stands_for, whose
from gated_domains.runs.site_shift import BasisShare, BesideNearest, SiteShift

FIGURES = ["shift-distances", "shift-novelty", "shift-mixture", "shift-accuracy"]


def said(shift: SiteShift) -> str:
    return " ".join(sentences(shift))


# -- in words ----------------------------------------------------------------------------------------------------------


def test_the_answer_comes_first_with_the_scale_to_read_it_by() -> None:
    answer, scale, detectable, *_ = sentences(a_site())
    assert answer == (
        "new.csv is farther from the sources than any of them is from the others (rank 1 of 4; with 3 sources this "
        "cannot be significant). 14 % of its rows are outside what was seen, usually 3 %."
    )
    assert scale == (
        "With 40 rows of every site, it is 0.30 from all others together, a source 0.10 to 0.25. Nearest is south "
        "(0.21)."
    )
    assert detectable.startswith("A difference from all sources together is detectable (p = 0.001, 999 permutations")


def test_a_site_no_farther_than_sources_are_is_said_to_be_so() -> None:
    inside = replace(a_site().rank, rank=2, p_value=0.5)
    answer = sentences(a_site(rank=inside))[0]
    assert answer.startswith(
        "new.csv is no farther from the sources than they are from one another (rank 2 of 4), but of "
    )
    familiar = replace(a_site().novelty, unlike=0.04)
    beside = BesideNearest(upper=0.04, p_value=0.3, p_novelty=0.4)
    alike = a_site(rank=inside, novelty=familiar, beside_nearest=beside)
    assert sentences(alike)[0] == (
        "new.csv is like south; no farther from the sources than they are from one another (rank 2 of 4)."
    )
    assert "No shift was seen: expect the accuracy that it has on validation rows of its sources, 81.0 %" in said(alike)
    assert "look new" not in said(alike)
    for other in (
        replace(alike, groups=49),
        replace(alike, beside_nearest=replace(beside, upper=0.06)),
        replace(alike, beside_nearest=replace(beside, upper=None)),
        replace(alike, beside_nearest=replace(beside, p_value=0.05)),
        replace(alike, beside_nearest=replace(beside, p_novelty=0.05)),
    ):
        assert "No shift was seen" not in said(other)
        assert "is like" not in said(other)


def test_no_shift_is_seen_only_with_rows_enough_and_by_the_mean_and_the_novelty() -> None:
    usual = replace(a_site().novelty, unlike=0.04, auroc=0.51, p_value=0.4)
    same = a_site(rank=replace(a_site().rank, rank=2, p_value=0.5), novelty=usual, p_value=0.4)
    assert sentences(same)[0].endswith("(rank 2 of 4).")
    assert "No shift was seen" in said(same)
    for other in (
        replace(same, p_value=0.05),
        replace(same, novelty=replace(usual, auroc=0.7, p_value=0.01)),
        replace(same, groups=49),
        replace(same, compared_groups=49),
    ):
        assert "No shift was seen" not in said(other)
    assert sentences(replace(same, groups=12, kept_together=True))[0] == (
        "new.csv: 12 groups of rows are too few to say whether there is a shift (50 are needed)."
    )
    assert "49 rows of the sources are too few" in said(replace(same, compared_groups=49))


def test_groups_are_printed_and_without_those_of_the_sources_there_is_no_p_value() -> None:
    ranked = replace(a_site().rank, rank=1, sites=20, p_value=None, rows=12, groups=4)
    words = said(a_site(rank=ranked))
    assert "(rank 1 of 20; no p-value, as groups of rows (--keep-together) are known of some sites only)" in words
    assert "With 4 groups of rows and 3 rows of each of every site" in words


@pytest.mark.parametrize(
    ("rank", "sites", "words"),
    [
        (1, 20, "farther from the sources than any of them is from the others (rank 1 of 20, p = 0.05)."),
        (2, 40, "farther from the sources than 38 of 39 of them are from the others (rank 2 of 40, p = 0.05)."),
        (2, 20, "no farther from the sources than they are from one another (rank 2 of 20), but"),
    ],
)
def test_with_nineteen_sources_or_more_the_rank_is_a_test(rank: int, sites: int, words: str) -> None:
    found = replace(a_site().rank, rank=rank, sites=sites, p_value=rank / sites)
    assert words in sentences(a_site(rank=found))[0]


def test_rows_outside_lead_where_they_are_most_and_columns_are_named() -> None:
    lost = a_site(novelty=replace(a_site().novelty, unlike=0.97), far_columns=("age", "chol"))
    assert sentences(lost)[0] == (
        "new.csv is unlike all sources: 97 % of its rows are outside what was seen; check units and columns (age, "
        "chol)."
    )
    assert "Check the units of its columns (chol)." in sentences(a_site(far_columns=("chol",)))[0]


def test_no_difference_is_no_proof_where_rows_are_few() -> None:
    alike = a_site(p_value=0.4, distance=0.03)
    assert "No difference from all sources together is detectable (p = 0.4" in said(alike)
    assert "With so few only a large one could be." in said(replace(alike, rows=12, groups=12))
    assert "only a large one" not in said(alike)


def test_novelty_and_what_lies_outside_stand_beside_what_is_usual() -> None:
    words = said(a_site())
    assert "14 % of its 200 rows are unlike anything seen, and 3 % of the rows of the sources" in words
    assert "AUROC 0.71" in words
    assert "20 % of it lies outside of what the bases express, of a source 2 to 8 %." in words
    assert "About 10 % (4 to 15) of its rows look new and are alike" in words
    for part in (None, replace(a_site().new_part, is_there=False)):
        assert "look new" not in said(a_site(new_part=part))


def test_the_mixture_names_whose_the_bases_are() -> None:
    assert (
        "It draws 60 % (90 % interval 52 to 67) on basis 2, which stands mostly for south (71 %); 40 % (33 to 48) on "
        "basis 1, which all sources use alike." in said(a_site())
    )


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ((0.1, 0.71, 0.19), "mostly b (71 %)"),
        ((0.34, 0.33, 0.33), "all alike"),
        ((0.0, 0.0, 0.0), ""),
        ((0.02, 0.49, 0.49), "b (49 %) and c (49 %)"),
    ],
)
def test_whose_a_basis_is(shares: tuple[float, ...], words: str) -> None:
    basis = BasisShare(basis=1, share=0.5, low=0.4, high=0.6, of_sources=shares)
    assert whose(basis, ["a", "b", "c"]) == words


def test_of_two_sources_with_like_parts_none_is_named() -> None:
    basis = BasisShare(basis=1, share=0.5, low=0.4, high=0.6, of_sources=(0.5, 0.5))
    assert whose(basis, ["a", "b"]) == "all alike"
    assert whose(replace(basis, of_sources=(0.8, 0.2)), ["a", "b"]) == "mostly a (80 %)"


def test_of_a_site_that_no_basis_expresses_no_mixture_is_told() -> None:
    lost = a_site(outside=0.97)
    assert "what it draws on cannot be estimated" in said(lost)
    assert "It draws" not in said(lost)
    assert "shift-mixture" not in [chart.key for chart in charts(lost)]
    assert "shift-mixture" in [chart.key for chart in charts(a_site())]


def test_two_sources_that_stand_out_are_both_named_and_one_alone_says_nothing() -> None:
    basis = BasisShare(basis=1, share=0.5, low=0.4, high=0.6, of_sources=(0.45, 0.45, 0.05, 0.05))
    assert stands_for(basis, ["a", "b", "c", "d"]) == "which stands for a (45 %) and b (45 %)"
    assert stands_for(replace(basis, of_sources=(1.0,)), ["all"]) == ""


def test_the_accuracy_comes_with_its_interval_its_error_and_the_truth() -> None:
    assert sentences(a_site())[-1] == (
        "The model will probably be 74.0 % (61.0 to 87.0) accurate there. Left out of training in turn, its "
        "sources had 75.0 %. It has 81.0 % on validation rows of its sources. Estimates made in the same way for 3 "
        "sources left out of training were 4.1 points off on average. Its true accuracy there is 71.2 %."
    )


def test_without_a_point_estimate_the_reason_is_said_and_what_would_help() -> None:
    wide = replace(a_site().accuracy, value=None, low=0.3, high=1.0, reason="wide")
    words = said(a_site(accuracy=wide))
    assert (
        "The accuracy there cannot be estimated: it may be anything from 30.0 to 100.0 %, as estimates for "
        "sources left out of training were 4.1 points off on average. Left out of training in turn, its sources had "
        "75.0 %. It has 81.0 % on validation rows of its sources. Labels of"
    ) in words
    assert "probably" not in words
    lost = said(a_site(accuracy=wide, novelty=replace(a_site().novelty, unlike=0.9)))
    assert "cannot be estimated: 90 % of its rows are outside what was seen" in lost
    assert "Check units and columns of the file, then run shift again." in lost
    assert "look new" not in lost
    marks = {marks.name: marks for marks in charts(a_site(accuracy=wide))[3].panels[0].marks}
    assert marks["estimated"].x == pytest.approx((70, 70, 70))
    assert "without an estimate: wide" in charts(a_site(accuracy=wide))[3].caption


def test_where_nobody_measured_it_that_is_said_with_the_command() -> None:
    words = said(a_site(accuracy=None, no_accuracy="Nobody has measured it: add --calibrate.", true_accuracy=None))
    assert words.endswith("Nobody has measured it: add --calibrate.")
    assert "probably" not in words
    assert "accura" not in said(a_site(accuracy=None, true_accuracy=None))


def test_one_source_left_out_tells_no_error() -> None:
    assert "how far off it would be is not known" in said(
        a_site(accuracy=replace(a_site().accuracy, value=None, error=None))
    )


# -- in JSON -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"accuracy": None, "new_part": None, "true_accuracy": None, "sources": (), "rank": None}]
)
def test_json_comes_back_as_it_was(changes: dict[str, object]) -> None:
    shift = a_site(**changes)
    assert SiteShift.from_json(json.loads(json.dumps(shift.as_json(), allow_nan=False))) == shift


@pytest.mark.parametrize("change", [{"format": 9}, {"novelty": {}}, {"mixture": 3}, {"more": 1}])
def test_other_json_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(DataError, match="compute it again"):
        SiteShift.from_json({**a_site().as_json(), **change})


# -- figures and page --------------------------------------------------------------------------------------------------


def test_there_is_a_figure_of_everything_and_none_of_what_nobody_knows() -> None:
    assert [chart.key for chart in charts(a_site())] == FIGURES
    assert [chart.key for chart in charts(a_site(accuracy=None))] == FIGURES[:3]


def test_the_mixture_has_the_sites_interval_beside_every_source() -> None:
    marks = {marks.name: marks for marks in charts(a_site())[2].panels[0].marks}
    assert marks.keys() == {"new.csv", "north", "south", "west"}
    assert marks["new.csv"].x == pytest.approx((40, 60))
    assert marks["new.csv"].low == pytest.approx((33, 52))
    assert marks["west"].x == pytest.approx((50, 50))


def test_distances_hold_the_site_against_sources_among_themselves() -> None:
    marks = {marks.name: marks for marks in charts(a_site())[0].panels[0].marks}
    assert marks["new.csv"].x == (0.31, 0.41, 0.21, 0.38)
    assert marks["north"].x == (0.12, 0.2, 0.1)


def test_the_true_accuracy_is_drawn_where_it_is_known() -> None:
    true = charts(a_site())[3].panels[0].marks[1]
    assert true.x == pytest.approx((71.2, 75, 75, 75))
    assert charts(a_site(true_accuracy=None))[3].panels[0].marks[1].x == pytest.approx((75, 75, 75))


def test_captions_count_no_runs() -> None:
    assert not any("run" in chart.counted for chart in charts(a_site()))


def test_a_model_of_one_source_and_one_basis_is_drawn(tmp_path: Path) -> None:
    alone = replace(a_site().sources[0], name="all", to_others=None, mixture=(1.0,))
    basis = BasisShare(basis=1, share=1.0, low=1.0, high=1.0, of_sources=(1.0,))
    shift = a_site(sources=(alone,), between=((0.0,),), mixture=(basis,), distance=0.0, rank=None)
    assert "a source" not in sentences(shift)[1]
    for chart in charts(shift):
        write_chart(chart, tmp_path, kinds=("svg",))
    assert charts(shift)[0].panels[0].y.categories == ("all sources",)


def test_the_page_has_the_answer_every_figure_and_the_table(tmp_path: Path) -> None:
    path = write_shift_page(a_site(), tmp_path / "shift.html")
    found = Parsed(path.read_text("utf-8"))
    words = " ".join(" ".join(found.text).split())
    for sentence in sentences(a_site()):
        assert sentence in words
    assert [a["data-key"] for a in found.of("div") if a.get("class") == "chart"] == FIGURES
    assert {f"{key}-data" for key in FIGURES} <= found.data.keys()
    assert "mostly south (71 %)" in words
    assert "150 validation rows of its sources" in words
    assert "rows of 2 domains are taken for one site" in words
    assert list(tmp_path.iterdir()) == [path], "the page is complete in itself"


def test_nothing_on_it_points_outside() -> None:
    found = Parsed(shift_html(a_site()))
    for _, attributes in found.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            assert not re.match(r"(https?:)?//", attributes.get(name) or "")


def test_hostile_names_are_text() -> None:
    sources = tuple(replace(source, name=HOSTILE) for source in a_site().sources)
    html = shift_html(a_site(data=HOSTILE, model=HOSTILE, sources=sources, notes=(HOSTILE,)))
    assert "<script>alert" not in html
    found = Parsed(html)
    for figure in found.data.values():
        assert "<script>" not in json.dumps(shown(figure))


def test_a_place_that_is_none_for_a_page_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(DataError, match=r"name that ends in \.html"):
        write_shift_page(a_site(), tmp_path / "shift.pdf")
    with pytest.raises(DataError, match="is a folder"):
        write_shift_page(a_site(), tmp_path / "folder.html")


def test_it_is_written_without_torch() -> None:
    code = "import sys, gated_domains.reports.shift_page; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
