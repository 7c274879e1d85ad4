"""``gated-domains reproduce wilds --miniature`` from data on disk to the table, with the packages of the extra."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from made_runs import call

pytestmark = pytest.mark.extras


@pytest.mark.usefixtures("without_shape_checks")
def test_two_data_sets_go_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for package in ("wilds", "torchvision", "torch_geometric"):
        pytest.importorskip(package)
    options = ("--miniature", "--datasets", "camelyon17,ogb-molpcba", "--methods", "erm,fish,e2e_cosine")
    done = call("reproduce", "wilds", *options, "--out", tmp_path, "--device", "cpu", "--workers", 1, "--no-report")
    assert done.code == 0, done
    assert "WILDS on MINIATURES: ours / the paper's" in done.out
    assert "made-up data and shrunk networks" in done.out

    lines = list(csv.DictReader((tmp_path / "table.csv").open()))
    found = {(line["set_up"], line["row"], line["kind"]): line for line in lines}
    for place in (
        ("camelyon17", "erm", "test"),
        ("camelyon17", "e2e_cosine", "inside"),
        ("camelyon17", "fish", "test"),
        ("ogb-molpcba", "erm", "test"),
        ("ogb-molpcba", "e2e_cosine", "test"),
    ):
        assert 0 < float(found[place]["mean"]) <= 1, place
        assert found[place]["n"] == "1"
    assert found["ogb-molpcba", "erm", "test"]["metric"] == "average precision"
    assert float(found["ogb-molpcba", "erm", "test"]["mean"]) > 0.3  # it learns
    assert found["ogb-molpcba", "fish", "test"]["why"] == "no published settings"
    assert found["camelyon17", "erm", "test"]["published_mean"] == "70.3"

    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["miniature"] is True
    bodies = {(run["column"], run["body"]) for run in stored["runs"]}
    assert bodies == {("camelyon17", "densenet121"), ("ogb-molpcba", "gin")}
    curves = list(csv.DictReader((tmp_path / "davies_bouldin.csv").open()))
    assert {line["dataset"] for line in curves} == {"Camelyon17", "OGB-MolPCBA"}

    again = call("reproduce", "wilds", *options, "--out", tmp_path, "--device", "cpu", "--workers", 1, "--no-report")
    assert again.code == 0
    assert again.err == ""  # nothing is written or trained twice
