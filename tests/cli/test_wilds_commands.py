"""``gated-domains data`` for the eight of WILDS: what is there, what is missing, and stand-ins for them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from gated_domains import cli
from gated_domains.data.catalogue import RemoteFile
from gated_domains.data.wilds import WILDS
from gated_domains.data.wilds.sources import SOURCES, Files
from made_ogb import read_rows, write_ogb, write_rows


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., Done]:
    """The command line in this process."""
    monkeypatch.setenv("COLUMNS", "300")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["gated-domains", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return call


def listed(run, tmp_path):
    done = run("data", "list", "--data-dir", tmp_path)
    assert done.code == 0
    return {line.split()[0]: line.rstrip() for line in done.out.splitlines() if line.startswith("wilds/")}


def test_list_shows_the_eight_and_where_each_is(run, tmp_path):
    folder = write_ogb(tmp_path / "wilds" / "ogbg_molpcba")
    (tmp_path / "fmow_v1.1").mkdir()
    (tmp_path / "fmow_v1.1" / "RELEASE_v1.1.txt").touch()
    rows = listed(run, tmp_path)
    assert list(rows) == [f"wilds/{name}" for name in WILDS]
    assert rows["wilds/ogb-molpcba"].endswith(str(folder))
    assert rows["wilds/fmow"].endswith("fmow_v1.1, without rgb_metadata.csv, country_code_mapping.csv")
    assert rows["wilds/amazon"].endswith(f"not in {tmp_path / 'wilds'}")
    (folder / "MINIATURE.txt").touch()
    assert listed(run, tmp_path)["wilds/ogb-molpcba"].endswith("ogbg_molpcba, a miniature")


def test_check_tells_parts_domains_and_the_score_that_counts(run, tmp_path):
    folder = write_ogb(tmp_path / "ogbg_molpcba")
    done = run("data", "check", "wilds/ogb-molpcba", "--data-dir", tmp_path)
    assert done.code == 0
    assert "train 32 (published: 350,343)" in done.out
    assert "train: 32 rows of 9 domains, trains" in done.out
    assert "score mean average precision; WILDS asks for 3 runs" in done.out
    (folder / "MINIATURE.txt").touch()
    report = json.loads(run("data", "check", "wilds/ogb-molpcba", "--data-dir", tmp_path, "--json").out)
    assert report["rows"] == 40
    assert not report["broken"]
    assert {"level": "note", "text": "rows: train 32, val 4, test 4"} in report["findings"]


def test_check_of_data_that_are_not_there_says_where_it_looked(run, tmp_path):
    done = run("data", "check", "wilds/camelyon17", "--data-dir", tmp_path)
    assert done.code == 2
    assert str(tmp_path / "wilds" / "camelyon17_v1.0") in done.err.replace("\n", "")
    assert "data fetch wilds/camelyon17" in done.err


def test_check_of_a_file_that_is_cut_short_names_it(run, tmp_path):
    path = write_ogb(tmp_path / "ogbg_molpcba") / "raw" / "edge-feat.csv.gz"
    write_rows(path, read_rows(path)[:-1])
    done = run("data", "check", "wilds/ogb-molpcba", "--data-dir", tmp_path)
    assert done.code == 2
    assert "edge-feat.csv.gz" in done.err


def test_a_data_set_nobody_serves_ends_with_every_address_and_no_traceback(run, tmp_path, monkeypatch):
    nobody = "http://127.0.0.1:9/archive.tar.gz"  # the port that answers nothing
    monkeypatch.setitem(SOURCES, "rxrx1", (Files((RemoteFile("rxrx1_v1.0.tar.gz", (nobody,)),)),))
    done = run("data", "fetch", "wilds/rxrx1", "--data-dir", tmp_path)
    assert done.code == 2
    assert nobody in done.err
    assert "wilds issues 171 to 175" in done.err
    assert "Traceback" not in done.err


def test_a_miniature_is_written_found_and_checked(run, tmp_path):
    done = run("data", "miniature", "wilds/civilcomments", tmp_path)
    assert (done.code, done.out.strip()) == (0, f"wrote {tmp_path / 'civilcomments_v1.0'}")
    assert listed(run, tmp_path)["wilds/civilcomments"].endswith("civilcomments_v1.0, a miniature")
    again = run("data", "miniature", "wilds/civilcomments", tmp_path, "--seed", "1")
    assert again.code == 2
    assert "holds another miniature" in again.err


def test_all_miniatures_are_written_by_one_command(run, tmp_path, monkeypatch):
    asked = []
    write = lambda name, dest, *, seed: asked.append((name, seed)) or dest  # noqa: E731
    monkeypatch.setattr("gated_domains.data.miniatures.write_miniature", write)
    assert run("data", "miniature", "wilds/all", tmp_path, "--seed", "3").code == 0
    assert asked == [(f"wilds/{name}", 3) for name in WILDS]


def test_a_miniature_of_something_else_is_refused(run, tmp_path):
    done = run("data", "miniature", "wilds/py150", tmp_path)
    assert done.code == 2
    assert "there is no miniature of 'wilds/py150'" in done.err
