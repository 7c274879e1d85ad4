"""The page in a real browser: it draws, answers to pointer and filter, and nothing leaves or runs that must not.

Debian's chromium, driven by playwright.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.extras

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))  # where made-up runs are made

from made_folders import a_run, folder_of_runs, some_predictions  # noqa: E402
from made_insights import an_insight  # noqa: E402
from made_results import many, result  # noqa: E402

from gated_domains.reports.page import write_page  # noqa: E402
from gated_domains.runs.collection import gather  # noqa: E402

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
DOMAINS = ("near", "mid", "far", HOSTILE)
QUIETLY = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("there is no chromium to open the page in; install it: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=list(QUIETLY))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods, four hold-outs (one of a hostile name), two seeds; gated runs with an insight each."""
    root = tmp_path_factory.mktemp("runs")
    for number, hold_out in enumerate(DOMAINS):
        for method in ("gdu", "erm", "linear"):
            for seed in (0, 1):
                others = {"domain_names": DOMAINS, "sources": tuple(name for name in DOMAINS if name != hold_out)}
                score = 0.6 + 0.05 * number + 0.02 * seed + 0.01 * (method == "erm")
                run = result(method, hold_out, seed, score, **others)
                arrays = some_predictions(run, 60)
                if method == "gdu":
                    chance = np.random.default_rng(seed)
                    arrays["domains"] = np.arange(60) % len(DOMAINS)
                    arrays["beta"] = chance.dirichlet(np.ones(4), 60).astype(np.float32)
                    arrays["coverage"] = chance.random(60, dtype=np.float32)
                folder = a_run(root / f"{method}-{number}-{seed}", run, arrays=arrays)
                if (method, seed) == ("gdu", 0):
                    names = [*(name for name in DOMAINS if name != hold_out), hold_out]
                    an_insight(domain_names=names, kind=("images", "texts", "table", "images")[number]).write(folder)
    (root / "half").mkdir()
    (root / "half" / "result.json").write_text("{", encoding="utf-8")
    path = root.parent / "page" / "report.html"
    write_page(gather([root]), path, kinds=())
    return path


@dataclass
class Opened:
    """A page, and what was heard of it."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def draw_all(self) -> None:
        """Scroll through, as a reader would; every chart is drawn as it comes into sight."""
        for chart in self.page.locator(".chart:visible").all():
            chart.scroll_into_view_if_needed()
            self.page.wait_for_function("chart => chart.dataset.drawn === 'yes'", arg=chart.element_handle())


@pytest.fixture
def opened(browser: Any, report: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    options = getattr(request, "param", {})
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
    found = Opened(page)
    page.on("console", lambda said: found.errors.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: found.errors.append(str(error)))
    page.on("request", lambda asked: found.requests.append(asked.url))
    page.goto(report.as_uri())
    page.wait_for_function("document.documentElement.dataset.ready === 'yes'")
    yield found
    page.close()


def test_it_opens_from_disk_draws_every_figure_and_says_nothing_on_the_console(opened: Opened) -> None:
    opened.draw_all()
    assert opened.errors == []
    assert (
        opened.page.locator(".chart").count()
        == opened.page.locator(".chart[data-drawn=yes] .main-svg")
        .locator("xpath=ancestor::div[contains(concat(' ', @class, ' '), ' chart ')]")
        .count()
    )
    sections = opened.page.locator("section").evaluate_all("all => all.map(one => one.dataset.section)")
    assert sections == ["table", "scores", "training", "mistakes", "cost", "gates", "bases", "broken"]
    assert opened.page.locator("#no-figures").is_hidden()


def test_nothing_is_fetched(opened: Opened, report: Path) -> None:
    opened.draw_all()
    assert [url for url in opened.requests if not url.startswith(("data:", "blob:"))] == [report.as_uri()]


def test_figures_far_below_are_drawn_only_when_they_come_into_sight(opened: Opened) -> None:
    drawn = opened.page.locator(".chart[data-drawn=yes]").count()
    assert drawn < opened.page.locator(".chart").count()


def test_hovering_over_a_run_says_which_it_is(opened: Opened) -> None:
    hover(opened, "#scores .chart", ".points path")
    said = opened.page.locator("#scores .hoverlayer").text_content()
    assert any(method in said for method in ("GDU", "ERM", "LINEAR"))


def test_hovering_over_a_sample_of_a_map_shows_its_picture(opened: Opened) -> None:
    chart = opened.page.locator("figure[id^=map] .chart[data-sprite]").first
    hover(opened, f"#{chart.get_attribute('data-key')} .chart", ".points path")
    peek = opened.page.locator("#peek")
    peek.wait_for(state="visible")
    assert "data:image/" in peek.evaluate("box => box.style.backgroundImage")


def hover(opened: Opened, chart: str, point: str) -> None:
    """Put the pointer on a dot of a chart."""
    place = opened.page.locator(chart).first
    place.evaluate("chart => chart.scrollIntoView({block: 'center'})")  # not below the bar at the top
    opened.page.wait_for_function("chart => chart.dataset.drawn === 'yes'", arg=place.element_handle())
    box = place.locator(point).first.bounding_box()
    opened.page.mouse.move(box["x"] - 40, box["y"] - 40)
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    place.locator(".hoverlayer .hovertext").first.wait_for(state="visible")


def test_the_filter_leaves_one_domain_in_table_figures_and_cards(opened: Opened) -> None:
    opened.draw_all()
    opened.page.get_by_role("button", name="far", exact=True).click()
    columns = opened.page.locator("table#c1-table-all th.hold-out:visible").all_inner_texts()
    assert columns == ["far"]
    shown = opened.page.locator("#scores .chart").evaluate(
        "chart => [...new Set(chart.data.filter(t => t.visible !== false).map(t => t.meta && t.meta.domain))]"
    )
    assert set(shown) <= {"far", None}
    assert "far" in shown
    maps = opened.page.locator("figure[id^=map]:visible").all()
    assert [figure.get_attribute("data-domain") for figure in maps] == ["far"]
    assert opened.page.locator(".cards:visible").count() == 1
    opened.page.get_by_role("button", name="all", exact=True).click()
    assert opened.page.locator("table#c1-table-all th.hold-out:visible").count() == len(DOMAINS)
    assert opened.errors == []


def test_a_click_on_a_heading_sorts_the_table_by_it(opened: Opened) -> None:
    heading = opened.page.get_by_role("columnheader", name="mean")
    heading.click()
    cells = opened.page.locator("#c1-table-all tbody tr td.summary:nth-child(6)").all_inner_texts()
    means = [float(cell.split()[0]) for cell in cells]
    assert means == sorted(means, reverse=True)
    heading.click()
    again = opened.page.locator("#c1-table-all tbody tr td.summary:nth-child(6)").all_inner_texts()
    assert [float(cell.split()[0]) for cell in again] == sorted(means)


@pytest.mark.parametrize("opened", [{"color_scheme": "dark"}], indirect=True)
def test_it_is_dark_where_the_system_is_and_the_button_turns_on_the_light(opened: Opened) -> None:
    opened.draw_all()
    assert ink(opened)[0] > 200, "light letters"
    assert ground(opened) < 60
    opened.page.locator("#theme").click()
    assert ground(opened) > 240
    assert ink(opened)[0] < 60, "the letters of figures follow"


def ground(opened: Opened) -> int:
    return int(opened.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))


def ink(opened: Opened) -> list[int]:
    """The colour of the numbers on an axis."""
    tick = opened.page.locator("#scores .xtick text").first
    found = tick.evaluate("text => getComputedStyle(text).fill.match(/\\d+/g)")
    return [int(part) for part in found[:3]]


@pytest.mark.parametrize("opened", [{"viewport": {"width": 390, "height": 844}, "has_touch": True}], indirect=True)
def test_it_fits_a_phone(opened: Opened) -> None:
    opened.draw_all()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    for chart in opened.page.locator(".chart").all():
        assert chart.bounding_box()["width"] <= 390
    panels = opened.page.locator("#curves .chart").evaluate(
        "chart => chart.layout.xaxis2.domain[1] - chart.layout.xaxis2.domain[0]"
    )
    assert panels > 0.8, "panels stand below each other"
    assert opened.errors == []


def test_hostile_names_are_read_not_run(opened: Opened) -> None:
    opened.draw_all()
    opened.page.locator('button[data-choose^="<script>"]').click()
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("img[src='x']").count() == 0
    assert "<script>window.hacked" in opened.page.locator("table#c1-table-all th.hold-out:visible").inner_text()
    ticks = opened.page.locator("#scores .ytick text").all_text_contents()
    assert any("<script>" in tick for tick in ticks), ticks


def test_on_paper_it_is_light_and_without_buttons(opened: Opened) -> None:
    opened.page.emulate_media(media="print", color_scheme="dark")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.page.locator("nav.bar").is_hidden()
    assert ground(opened) > 240
    opened.page.wait_for_function("[...document.querySelectorAll('.chart')].every(c => c.dataset.drawn === 'yes')")
    assert len(opened.page.pdf()) > 50_000
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")


def test_a_page_of_many_hold_outs_is_filtered_by_a_list(browser: Any, tmp_path: Path) -> None:
    folder_of_runs(tmp_path / "runs", many(3, 30, 2), rows=6)
    path = write_page(gather([tmp_path / "runs"]), tmp_path / "report.html", kinds=())[0]
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_function("document.documentElement.dataset.ready === 'yes'")
    page.locator("#choose-domain").select_option(label="hospital of somewhere 7")
    assert page.locator("th.hold-out:visible").all_inner_texts() == ["hospital of somewhere 7"]
    page.close()
