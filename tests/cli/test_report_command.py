"""``gated-domains report``: what it writes and says, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from made_runs import assert_refused, call

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))  # where made-up run folders are made

from made_folders import folder_of_runs


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return folder_of_runs(tmp_path / "runs")


def test_it_writes_the_page_and_says_where(runs: Path) -> None:
    done = call("report", runs, "--figures", "png")
    assert done.code == 0, done
    assert done.out.startswith("wrote report.html (")
    assert "report_files" in done.out
    assert Path("report.html").stat().st_size > 100_000
    kinds = {path.suffix for path in Path("report_files").iterdir()}
    assert kinds == {".png", ".csv", ".md", ".tex", ".json"}


def test_another_title_place_and_baseline_are_taken(runs: Path) -> None:
    done = call("report", runs, "--out", "deep/er/page.html", "--title", "our <b>hospitals</b>", "--baseline", "gdu",
                "--figures", "none")  # fmt: skip
    assert done.code == 0, done
    page = Path("deep/er/page.html").read_text("utf-8")
    assert "<title>our &lt;b&gt;hospitals&lt;/b&gt;</title>" in page
    assert "to GDU" in page


def test_broken_folders_are_counted_and_stop_nothing(runs: Path) -> None:
    (runs / "0003" / "result.json").write_text("{")
    done = call("report", runs, "--figures", "none")
    assert done.code == 0, done
    assert "1 folder or file took no part; the page says why" in done.out


def test_what_makes_no_page_is_refused_with_the_cure(runs: Path, tmp_path: Path) -> None:
    assert_refused(call("report", tmp_path / "nowhere"), "there is no such folder of runs")
    assert_refused(call("report", runs, "--out", "report.pdf"), "ends in .html")
    assert_refused(call("report", runs, "--baseline", "emr"), "there is no run of 'emr'", "erm")
    assert_refused(call("report", runs, "--map", "pca", "--insight"), "there are tsne and umap")
    assert_refused(call("report", runs, "--figures", "gif"), "'gif' is none of svg, png, pdf, none")
    (tmp_path / "empty").mkdir()
    assert_refused(call("report", tmp_path / "empty"), "no finished run with a domain held out")
    assert not list(tmp_path.glob("*.html"))
