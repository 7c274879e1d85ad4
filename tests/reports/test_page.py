"""The page as text: what it says, what is escaped, what is left out; how it behaves is tested in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_folders import a_run, folder_of_runs
from made_insights import an_insight
from made_results import many, result, results

from gated_domains.data.errors import DataError
from gated_domains.reports.captions import headline
from gated_domains.reports.page import Files, Page, write_charts, write_page
from gated_domains.reports.page.page import MOST_BYTES
from gated_domains.reports.sprites import sprite_of
from gated_domains.reports.table import Comparison
from gated_domains.runs.collection import gather
from gated_domains.runs.insight import Insight
from gated_domains.runs.result import RunResult

HOSTILE = "<script>alert('x')</script>\"&"


class Parsed(HTMLParser):
    """Every element with its attributes, and the figures' data."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.data: dict[str, Any] = {}
        self.text: list[str] = []
        self._reading: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.elements.append((tag, found))
        self._reading = found.get("id") if found.get("type") == "application/json" else None

    def handle_data(self, data: str) -> None:
        if self._reading is not None:
            self.data[self._reading] = json.loads(data)
            self._reading = None
        else:
            self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def shown(figure: Any) -> Any:
    """What plotly shows of a figure: not what it keeps for others."""
    if isinstance(figure, dict):
        return {name: shown(value) for name, value in figure.items() if name not in ("meta", "legendgroup")}
    return [shown(value) for value in figure] if isinstance(figure, list) else figure


def page_of(root: Path, **options: Any) -> Parsed:
    return Parsed(Page(gather([root]), **options).html(Files("report_files")))


def test_the_page_has_the_answer_the_question_the_table_and_every_section(tmp_path: Path) -> None:
    found = page_of(folder_of_runs(tmp_path))
    said = " ".join(" ".join(found.text).split())
    comparison = Comparison(gather([tmp_path]).results)
    assert headline(comparison.numbers) in said
    assert "leave one domain out" in said
    assert "source validation accuracy" in said
    sections = [attributes["data-section"] for attributes in found.of("section")]
    assert sections[:5] == ["table", "scores", "training", "mistakes", "cost"]


def test_every_figure_has_its_data_a_caption_with_the_run_count_and_links_to_its_files(tmp_path: Path) -> None:
    found = page_of(folder_of_runs(tmp_path))
    charts = [attributes for attributes in found.of("div") if attributes.get("class") == "chart"]
    assert charts
    for chart in charts:
        assert {"data", "layout"} <= found.data[chart["data-figure"]].keys()
    said = " ".join(found.text)
    assert len(re.findall(r"\b[\d,]+ runs?\.", said)) >= len(charts)
    hrefs = {attributes.get("href") for attributes in found.of("a")}
    assert {f"./report_files/{chart['data-key']}.svg" for chart in charts} <= hrefs


def test_nothing_on_the_page_points_outside_of_it(tmp_path: Path) -> None:
    found = page_of(folder_of_runs(tmp_path))
    for _, attributes in found.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            value = attributes.get(name) or ""
            assert not re.match(r"(https?:)?//", value), f"{name}={value[:60]}"
    assert "default-src 'none'" in next(a["content"] or "" for a in found.of("meta") if a.get("http-equiv"))


def test_hostile_names_are_text_everywhere(tmp_path: Path) -> None:
    scores = {"gdu": {HOSTILE: [0.7, 0.8], "b": [0.5, 0.6]}, "erm": {HOSTILE: [0.6, 0.7], "b": [0.5, 0.5]}}
    folder_of_runs(tmp_path, results(scores, label=HOSTILE, data=HOSTILE), class_names=(HOSTILE, "b", "c"))
    (tmp_path / "<img src=x onerror=alert(1)>").mkdir()
    (tmp_path / "<img src=x onerror=alert(1)>" / "run.json").write_text("{}", encoding="utf-8")
    html = Page(gather([tmp_path]), title=HOSTILE).html()
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    found = Parsed(html)
    own = {"application/json", "text/plain", None}
    assert all(attributes.get("type") in own for attributes in found.of("script"))
    assert len([a for a in found.of("script") if a.get("type") is None]) == 1
    for figure in found.data.values():
        assert "<script>" not in json.dumps(shown(figure)), "plotly takes some tags in texts for markup"
    assert HOSTILE in {attributes.get("data-choose") for attributes in found.of("button")}


def test_the_filter_names_every_hold_out_and_the_table_hides_by_it(tmp_path: Path) -> None:
    found = page_of(folder_of_runs(tmp_path))
    chosen = [a["data-choose"] for a in found.of("button") if "data-choose" in a]
    assert chosen == ["", "mnist", "street", "usps"]
    assert {a["data-domain"] for a in found.of("td") if "data-domain" in a} == {"mnist", "street", "usps"}
    domains = {trace.get("meta", {}).get("domain") for trace in found.data["scores-data"]["data"]}
    assert domains >= {"mnist", "street", "usps"}


def test_very_many_hold_outs_are_chosen_from_a_list(tmp_path: Path) -> None:
    found = page_of(folder_of_runs(tmp_path, many(2, 30, 1), rows=4))
    assert [a["id"] for a in found.of("select")] == ["choose-domain"]
    assert len(found.of("option")) == 31


def test_runs_on_two_data_sets_are_two_chapters(tmp_path: Path) -> None:
    folder_of_runs(tmp_path / "a")
    folder_of_runs(tmp_path / "b", results({"erm": {"x": [0.5]}, "gdu": {"x": [0.6]}}, data="hearts"))
    found = page_of(tmp_path)
    assert [a["id"] for a in found.of("article")] == ["c1", "c2"]
    assert {"#c1", "#c2"} <= {a.get("href") for a in found.of("a")}, "the bar leads to chapters where there are several"
    keys = [a["data-key"] for a in found.of("div") if a.get("class") == "chart"]
    assert len(set(keys)) == len(keys)


def test_one_method_with_two_settings_stands_twice_named_by_what_differs(tmp_path: Path) -> None:
    for epochs in (2, 9):
        for method in ("erm", "gdu"):
            folder = a_run(tmp_path / f"{method}{epochs}", result(method, run=f"{method}-{epochs}", score=epochs / 10))
            recipe = {"method": {"name": method}, "seed": 0, "training": {"epochs": epochs, "rate": 0.1}}
            (folder / "run.json").write_text(json.dumps({"format": 1, "recipe": recipe}), encoding="utf-8")
    page = Page(gather([tmp_path]))
    labels = {row.label for row in page.chapters[0].comparison.numbers.rows}
    assert labels == {"ERM (epochs 2)", "ERM (epochs 9)", "GDU (epochs 2)", "GDU (epochs 9)"}


def _with_recipe(folder: Path, run: RunResult, *, split_seed: int, epochs: int = 2) -> None:
    a_run(folder, run)
    recipe = {
        "method": {"name": run.method},
        "seed": run.seed,
        "split_seed": split_seed,
        "training": {"epochs": epochs},
    }
    (folder / "run.json").write_text(json.dumps({"format": 1, "recipe": recipe}), encoding="utf-8")


def test_splits_drawn_by_the_seed_do_not_divide_a_row(tmp_path: Path) -> None:
    for epochs in (2, 9):
        for run in many(2, 4, 3):
            name = f"{epochs}-{run.run}"
            _with_recipe(tmp_path / name, replace(run, run=name), split_seed=run.seed, epochs=epochs)
    (chapter,) = Page(gather([tmp_path])).chapters
    assert sorted(row.label for row in chapter.comparison.numbers.rows) == [
        "ERM (epochs 2)", "ERM (epochs 9)", "METHOD1 (epochs 2)", "METHOD1 (epochs 9)",
    ]  # fmt: skip
    assert all(len(row.mean_by_seed) == 3 for row in chapter.comparison.numbers.rows)


def test_of_two_splits_of_one_seed_the_one_drawn_by_the_seed_is_shown(tmp_path: Path) -> None:
    for run in many(2, 4, 2):
        for split_seed in {0, run.seed}:
            name = f"{split_seed}-{run.run}"
            _with_recipe(tmp_path / name, replace(run, run=name), split_seed=split_seed)
    gathered = gather([tmp_path])
    (chapter,) = Page(gathered).chapters
    assert sorted(row.label for row in chapter.comparison.numbers.rows) == ["ERM", "METHOD1"]
    assert {run.run.split("-")[0] for run in chapter.results if run.seed == 1} == {"1"}
    assert len(gathered.broken) == 8
    assert "in its train/validation split alone" in gathered.broken[0].why


def test_a_copy_of_a_run_is_left_out_and_said(tmp_path: Path) -> None:
    folder_of_runs(tmp_path / "a")
    folder_of_runs(tmp_path / "b")
    gathered = gather([tmp_path])
    page = Page(gathered)
    assert len(page.chapters[0].results) == 12
    assert len(gathered.broken) == 12
    assert "which is shown" in gathered.broken[0].why


def test_broken_folders_are_listed_and_stop_nothing(tmp_path: Path) -> None:
    folder_of_runs(tmp_path)
    (tmp_path / "0000" / "result.json").write_text("{", encoding="utf-8")
    (tmp_path / "0001" / "metrics.jsonl").write_bytes(b"\xff\xfe")
    (tmp_path / "0002" / "predictions.npz").write_bytes(b"no archive")
    found = page_of(tmp_path)
    assert "broken" in [a.get("data-section") for a in found.of("section")]
    said = " ".join(found.text)
    for name in ("0000", "0001", "0002"):
        assert str(tmp_path / name) in said


def test_nothing_to_report_is_refused_with_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "run.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="1 folders are unfinished or damaged"):
        Page(gather([tmp_path]))
    a_run(tmp_path / "kept", result(test={}, hold_out="none", held_out=()))
    with pytest.raises(DataError, match="no finished run with a domain held out"):
        Page(gather([tmp_path]))


def test_the_page_its_figures_and_tables_are_written_side_by_side(tmp_path: Path) -> None:
    written = write_page(gather([folder_of_runs(tmp_path / "runs")]), tmp_path / "out.html", kinds=("svg",))
    assert written[0] == tmp_path / "out.html"
    names = {path.name for path in (tmp_path / "out_files").iterdir()}
    assert {"table.md", "table.csv", "table.tex", "table.json", "runs.csv", "scores.svg", "scores.csv"} <= names
    assert written[0].stat().st_size < MOST_BYTES
    assert all(path.exists() for path in written)


def test_a_page_that_is_no_page_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"report\.pdf.*\.html"):
        write_page(gather([folder_of_runs(tmp_path / "runs")]), tmp_path / "report.pdf")
    assert not (tmp_path / "report_files").exists()


def test_an_oracle_is_shouted(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, results({"erm": {"a": [0.5]}, "gdu": {"a": [0.6]}}, oracle=True))
    assert "ORACLE" in " ".join(page_of(tmp_path).text)


def test_the_best_mean_is_marked_and_a_row_that_is_worse_is_grey(tmp_path: Path) -> None:
    names = "abcde"
    scores = {
        "erm": {name: [0.5, 0.6] for name in names},
        "gdu": {name: [0.51, 0.59 + place / 100] for place, name in enumerate(names)},
        "bad": {name: [0.4, 0.5 + place / 100] for place, name in enumerate(names)},
    }
    found = page_of(folder_of_runs(tmp_path, results(scores)))
    classes = [a.get("class") or "" for a in found.of("td")]
    assert [name for name in classes if "best" in name] == ["summary best"]
    assert [a.get("class") for a in found.of("tr") if a.get("class")] == ["worse"]


def test_three_data_sets_are_analysed_together_with_a_forest_plot(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    gains = {"heart": 0.04, "digits": 0.03, "lungs": 0.05}
    for data, gain in gains.items():
        runs = [
            result(method, hold_out, seed, 0.6 + (method == "gdu") * gain + 0.01 * chance.normal(), data=data)
            for method in ("erm", "gdu")
            for hold_out in "abcde"
            for seed in range(2)
        ]
        folder_of_runs(tmp_path / data, runs)
    page = Page(gather([tmp_path]))
    assert page.across is not None
    (row,) = page.across.rows
    chapters = [chapter.comparison.numbers.rows[1].against for chapter in page.chapters]
    assert list(row.by_dataset.values()) == [found.new_domain for found in chapters if found is not None]
    assert (row.pooled.effect.n, row.verdict) == (3, "better")
    assert row.pooled.effect.difference == pytest.approx(0.04, abs=0.01)
    written = page.write(tmp_path / "report.html", kinds=())
    assert {"across.csv", "forest.csv"} <= {path.name for path in written}
    html = (tmp_path / "report.html").read_text()
    assert page.across.sentences()[0] in html
    assert html.index("3 data sets together") < html.index("heart: accuracy")


def test_two_data_sets_are_not_analysed_together(tmp_path: Path) -> None:
    for data in ("heart", "lungs"):
        folder_of_runs(tmp_path / data, many(2, 5, 2))
    assert Page(gather([tmp_path])).across is None


def test_gates_of_a_run_show_the_means_of_its_predictions(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    beta, domains = chance.dirichlet(np.ones(4), 60).astype(np.float32), np.arange(60) % 3
    arrays = {
        "part": np.repeat([0, 1], 30), "targets": np.zeros(60, int), "domains": domains,
        "output": np.tile([0.5, 0.5], (60, 1)), "beta": beta, "coverage": np.linspace(0, 1, 60),
    }  # fmt: skip
    run = result("gdu", "far", domain_names=("near", "far", "mid"), sources=("near", "mid"))
    a_run(tmp_path / "one", run, arrays=arrays)
    (chart,) = [chart for chart in Page(gather([tmp_path])).charts if chart.key == "gates-far"]
    heat = chart.panels[0].heat
    assert heat is not None
    assert heat.rows == ("near", "mid", "far"), "the unseen domain stands last"
    assert heat.bold_rows == ("far",)
    np.testing.assert_allclose(heat.values[2], beta[domains == 1].mean(0), rtol=1e-6)
    assert chart.panels[1].marks[2].x[0] == pytest.approx(np.linspace(0, 1, 60)[domains == 1].mean())


@pytest.mark.parametrize("kind", ["images", "texts", "table"])
def test_a_card_a_basis_shows_its_nearest_samples_as_their_kind_is_looked_at(tmp_path: Path, kind: str) -> None:
    folder = a_run(tmp_path / "one", result("gdu", "far", domain_names=("near", "mid", "far")))
    an_insight(kind=kind).write(folder)
    found = page_of(tmp_path)
    assert len([a for a in found.of("div") if a.get("class") == "card"]) == 4
    said = " ".join(found.text)
    strips = [a for a in found.of("img") if a.get("class") == "strip"]
    assert len(strips) == (4 if kind == "images" else 0)
    assert ("<i>sample</i>" in said) == (kind == "texts"), "as text, not as markup"
    assert ("<q>7</q>" in said) == (kind == "table")


def test_a_map_has_every_sampled_row_and_every_vector_of_a_basis(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "one", result("gdu", "far", domain_names=("near", "mid", "far")))
    insight = an_insight(rows=90)
    insight.write(folder)
    charts = {chart.key: chart for chart in Page(gather([tmp_path])).charts}
    marks = charts["map-far"].panels[0].marks
    assert [mark.name for mark in marks] == ["near", "mid", "far (unseen)", "bases"]
    np.testing.assert_allclose(marks[2].x, insight.map_rows[insight.domains == 2, 0], atol=1e-3)
    assert len(marks[3].x) == len(insight.map_bases)
    tiles = [tile for mark in marks for tile in mark.tile]
    assert sorted(tile for tile in tiles if tile >= 0) == list(range(90)), "a picture each, no two the same"
    np.testing.assert_allclose(charts["mmd-far"].panels[0].heat.values, insight.mmd)


def test_an_insight_comes_back_as_it_was_written_and_another_format_is_refused(tmp_path: Path) -> None:
    insight = an_insight()
    insight.write(tmp_path)
    again = Insight.read(tmp_path)
    assert again is not None
    for name, value in vars(insight).items():
        np.testing.assert_array_equal(getattr(again, name), value)
    arrays = dict(np.load(tmp_path / "insight.npz"))
    np.savez(tmp_path / "insight.npz", **{**arrays, "format": np.array(99)})
    with pytest.raises(DataError, match="format 99"):
        Insight.read(tmp_path)
    assert Insight.read(tmp_path / "nowhere") is None


def test_pictures_that_do_not_fit_are_fewer_of_every_domain_alike() -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (300, 20, 20, 3)).astype(np.uint8)
    domains = np.arange(300) % 3
    whole = sprite_of(pictures, domains, most_bytes=10**7)
    assert (whole.tiles >= 0).all()
    fewer = sprite_of(pictures, domains, most_bytes=len(whole.uri) // 2)
    assert 0 < len(fewer.uri) <= len(whole.uri) // 2
    kept = np.bincount(domains[fewer.tiles >= 0])
    assert kept.max() - kept.min() <= 1
    assert sprite_of(pictures, domains, most_bytes=100).uri == ""


def test_a_page_too_large_goes_without_the_pictures_behind_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = a_run(tmp_path / "one", result("gdu", "far", domain_names=("near", "mid", "far")))
    an_insight().write(folder)
    whole = write_page(gather([folder]), tmp_path / "whole.html", kinds=())[0]
    monkeypatch.setattr("gated_domains.reports.page.page.MOST_BYTES", whole.stat().st_size - 1)
    smaller = write_page(gather([folder]), tmp_path / "smaller.html", kinds=())[0]
    assert smaller.stat().st_size < whole.stat().st_size
    assert "data-sprite=" in whole.read_text("utf-8")
    assert "data-sprite=" not in smaller.read_text("utf-8")


def test_figures_of_no_comparison_make_a_page_too(tmp_path: Path) -> None:
    charts = Page(gather([folder_of_runs(tmp_path / "runs")])).charts[:2]
    path = write_charts(charts, tmp_path / "some.html", title=HOSTILE, asked=[("how", HOSTILE)], files=Files("."))
    found = Parsed(path.read_text("utf-8"))
    assert set(found.data) == {f"{chart.key}-data" for chart in charts}
    assert "<script>alert" not in path.read_text("utf-8")


def run_with(folder: Path, recipe: dict[str, Any], run: RunResult, *, fingerprint: str = "same") -> None:
    """A run folder whose recipe says this."""
    a_run(folder, run)
    about = {"format": 1, "recipe": recipe, "data": {"name": "digits", "fingerprint": fingerprint}}
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")


def test_runs_on_other_rows_or_another_network_are_another_chapter(tmp_path: Path) -> None:
    run_with(tmp_path / "a", {"body": "small"}, result("erm", run="a"))
    run_with(tmp_path / "b", {"body": "small"}, result("erm", run="b"), fingerprint="a tenth of the rows")
    run_with(tmp_path / "c", {"body": "resnet50"}, result("erm", run="c"))
    gathered = gather([tmp_path])
    assert len(Page(gathered).chapters) == 3
    assert not gathered.broken


def test_many_settings_never_make_one_run_the_copy_of_another(tmp_path: Path) -> None:
    for number in range(8):
        settings = {f"setting{place}": (number >> (place % 3)) & 1 if place > 3 else 0 for place in range(7)}
        settings |= {"setting0": number // 4, "setting1": number // 4, "setting2": number // 4, "setting3": number // 4}
        run_with(tmp_path / str(number), {"training": settings}, result("gdu", run=str(number), score=0.1 * number))
    gathered = gather([tmp_path])
    page = Page(gathered)
    assert len(page.chapters[0].comparison.numbers.rows) == 8
    assert not gathered.broken


def test_a_row_whose_cells_were_set_differently_says_so(tmp_path: Path) -> None:
    for hold_out, rate in (("a", 0.1), ("b", 0.9)):
        run_with(tmp_path / hold_out, {"training": {"rate": rate}, "hold_out": hold_out}, result("gdu", hold_out))
    assert "The runs of GDU differ in rate." in Page(gather([tmp_path])).chapters[0].comparison.caption


def test_hold_outs_that_a_disk_cannot_tell_apart_have_figures_of_their_own(tmp_path: Path) -> None:
    names = ("\u5317\u4eac", "\u4e0a\u6d77", "2", "a!", "a?", "a 2")
    for number, name in enumerate(names):
        folder = a_run(tmp_path / str(number), result("gdu", name, domain_names=("near", "mid", name)))
        an_insight(domain_names=("near", "mid", name)).write(folder)
    keys = [chart.key for chart in Page(gather([tmp_path])).charts]
    assert len(set(keys)) == len(keys)
    assert len([key for key in keys if key.startswith("map")]) == 6


def test_files_of_a_folder_with_an_odd_name_are_linked_safely(tmp_path: Path) -> None:
    folder_of_runs(tmp_path)
    found = Parsed(Page(gather([tmp_path])).html(Files("javascript:a#b?c_files")))
    hrefs = [a["href"] or "" for a in found.of("a") if a.get("href") and not (a["href"] or "").startswith("#")]
    assert hrefs
    assert all(href.startswith("./javascript%3Aa%23b%3Fc_files/") for href in hrefs)


def test_times_and_sizes_are_sorted_by_what_they_are_not_by_their_first_digits(tmp_path: Path) -> None:
    runs = [result("erm", seconds=45.0), result("gdu", seconds=7_600.0)]
    found = page_of(folder_of_runs(tmp_path, runs))
    values = [a["data-value"] for a in found.of("td") if (a.get("class") or "").startswith("cost")]
    assert sorted(map(float, filter(None, values))) == [45.0, 7600.0]
