"""The scripts behind the tables of shift, at a tiny size: they run to the end and say what they should."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains.data.digits5 import DOMAINS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
Script = Callable[..., list[list[str]]]


@pytest.fixture
def script(monkeypatch, tmp_path, capsys) -> Iterator[Script]:
    """Runs a script with these arguments; the rows of all its tables, without their headings."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def run(name: str, *arguments: object) -> list[list[str]]:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments), "--save", "made"])
        made = runpy.run_path(str(BENCHMARKS / name))
        monkeypatch.setitem(made["save"].__globals__, "RESULTS", tmp_path)
        made["main"]()
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    yield run
    sys.modules.pop("held_out_models", None)


def saved(folder: Path) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads((folder / "made.json").read_text(), parse_constant=refuse)


@pytest.fixture
def features(tmp_path) -> Path:
    """Two classes in three domains: two that overlap, and one far from both."""
    rng = np.random.default_rng(0)
    domains, labels = np.arange(360) % 3, rng.integers(2, size=360)
    centre = np.array([0.0, 1.0, 25.0])[domains]
    values = rng.normal(size=(360, 4)) + centre[:, None] * [1, 0, 0, 0] + 3 * labels[:, None] * [0, 0, 0, 1]
    path = tmp_path / "made.npz"
    np.savez(path, features=values.astype(np.float32), labels=labels, domains=domains)
    return path


@pytest.fixture
def digits(tmp_path) -> Path:
    """A data directory with a few images of each domain: those of a class are alike, and domains differ in tint."""
    rng = np.random.default_rng(1)
    folder = tmp_path / "data" / "digits5-small"
    folder.mkdir(parents=True)
    for place, domain in enumerate(DOMAINS):
        arrays = {}
        for part, rows in (("train", 40), ("test", 20)):
            labels = np.arange(rows) % 10
            images = rng.integers(40, size=(rows, 32, 32, 3)) + 20 * labels[:, None, None, None]
            images[..., place % 3] //= 1 + place
            arrays |= {f"{part}_images": images.astype(np.uint8), f"{part}_labels": labels}
        np.savez(folder / f"{domain}.npz", **arrays)
    return folder.parent


def test_a_domain_far_away_is_told_from_the_sources_and_its_accuracy_foreseen_without_a_look_at_it(
    script, features, tmp_path
):
    rows = script("shift_held_out.py", "--data", features)
    novelty, accuracy = rows[1:4], rows[5:]
    assert [row[0] for row in novelty] == ["0", "1", "2"]
    assert float(novelty[2][1]) > 0.99
    assert float(novelty[0][1]) < 0.8
    assert (float(novelty[2][3]), novelty[2][6]) == (100, "0.001")
    assert float(novelty[2][7]) > 0.01  # familiar rows are not told from their own kind
    assert [row[0] for row in accuracy] == ["0", "1", "2", "**mean, errors by size**"]
    kept = saved(tmp_path)
    assert kept["command"] == "python benchmarks/shift_held_out.py --data made.npz --save made"
    for row in kept["rows"]:
        taught = {domain["name"] for domain in row["calibration"]["domains"]}
        assert taught == {"0", "1", "2"} - {row["target"]}
        assert 0 < row["true"] <= 1


def test_two_domains_are_held_out_at_once_and_every_method_and_way_is_scored(script, digits, tmp_path):
    out = tmp_path / "out"
    asked = ("--data", digits, "--out", out, "--epochs", 1, "--pairs", 1, "--body", "small", "--workers", 1)
    rows = script("partial_invariance.py", *asked, "--device", "cpu")
    assert [row[:2] for row in rows[1:]] == [
        ["mnist + mnistm", "mnist"],
        ["mnist + mnistm", "mnistm"],
        ["**mean**", ""],
    ]
    kept = saved(tmp_path)
    assert str(tmp_path) not in json.dumps(kept)
    for row in kept["rows"]:
        assert set(row["accuracy"]) == {"gdu[coverage=true]", "gdu", "erm", "linear"}
        inside, outside = row["inside"], row["outside"]
        assert inside["rows"] + outside["rows"] == 20
        together = [part["rows"] * part["gated"] for part in (inside, outside) if part["rows"]]
        assert sum(together) / 20 == pytest.approx(
            row["accuracy"]["gdu[coverage=true]"]
        )  # the run was scored by the same model
        if outside["rows"]:
            assert outside["gated"] == outside["always"]  # a sample outside has the shared expert alone
    assert len(list((out / "runs").glob("*/result.json"))) == 4
    again = script("partial_invariance.py", *asked, "--device", "cpu")
    assert again == rows


@pytest.mark.slow
def test_runs_of_digits_are_foreseen_like_estimators(script, digits, tmp_path):
    asked = ("--data", digits, "--out", tmp_path / "out", "--epochs", 1, "--body", "small", "--workers", 1)
    rows = script("shift_held_out.py", *asked, "--device", "cpu")
    assert [row[0] for row in rows[1:6]] == list(DOMAINS)
    assert len(list((tmp_path / "out" / "runs").glob("*/result.json"))) == 15
    for row in saved(tmp_path)["rows"]:
        assert len(row["calibration"]["domains"]) == 4
