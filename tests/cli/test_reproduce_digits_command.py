"""``gated-domains reproduce digits``: what it lists, what it refuses, what it writes, how it goes on."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from gated_domains.paper import digits, running
from gated_domains.paper.digits import Setup
from gated_domains.reports.published_digits import ROWS
from made_runs import DOMAINS, assert_refused, call, changed, vectors


def reproduce(*arguments: object) -> Any:
    return call("reproduce", "digits", "--no-report", *arguments)


def test_it_lists_the_rows_by_name() -> None:
    done = reproduce("--list")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == list(ROWS)


def test_names_that_are_none_are_refused_with_the_nearest(tmp_path: Path) -> None:
    assert_refused(reproduce("--methods", "gdu_mixstyle"), "--methods: there is no 'gdu_mixstyle'", "gdu_mixstyle_ema")
    assert_refused(reproduce("--targets", "mnits"), "--targets: there is no 'mnits'", "mnist")
    assert_refused(reproduce("--quick", "--small"), "leave --small out")
    assert_refused(reproduce("--precision", "8"), "precision", "bf16")
    (tmp_path / "file").write_text("")
    assert_refused(reproduce("--out", tmp_path / "file"), "is a file")


def test_without_data_the_table_is_written_and_the_cure_is_said(tmp_path: Path) -> None:
    done = reproduce("--data", tmp_path, "--methods", "erm", "--targets", "usps", "--seeds", 2, "--out", tmp_path / "o")
    assert_refused(done, "none of the 2 runs could be made", "gated-domains data fetch digits5")
    assert "n/a [1] / 93.70 (1.74)" in done.out
    assert (tmp_path / "o" / "table.md").is_file()


@pytest.fixture
def small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors in place of images, and an MLP trained on them for two epochs."""
    dataset = vectors()
    monkeypatch.setattr(running, "load_data", lambda *_, **__: dataset)

    def quick(data_dir: Any, *, epochs: int | None, precision: str) -> Setup:
        return Setup(
            data="digits",
            body="mlp",
            targets={name: name.title() for name in DOMAINS},
            usual=DOMAINS[:2],
            seeds=1,
            training={"epochs": 2, "batch_size": 32},
            epochs=epochs,
            precision=precision,
            published=False,
            about="QUICK: vectors.",
        )

    monkeypatch.setattr(digits, "quick", quick)


OPTIONS = ("--quick", "--device", "cpu", "--workers", 1)


@pytest.mark.usefixtures("small_world")
def test_every_row_is_run_written_and_found_again(tmp_path: Path) -> None:
    done = reproduce(*OPTIONS, "--targets", "north", "--light", "--out", tmp_path)
    assert done.code == 0, done
    assert "n/a" not in done.out
    for row in ROWS.values():
        assert row.label in done.out
    for name in ("table.md", "table.csv", "table.json", "dots.png"):
        assert (tmp_path / name).is_file()
    lines = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [(line["row"], line["target"]) for line in lines] == [(row, "north") for row in ROWS]
    # ERM (tanh) is trained once for its own row and the four heads on it, ERM for two rows and an ensemble.
    assert len(list(tmp_path.glob("runs/digits/*/result.json"))) == len(ROWS) + 1
    assert not list(tmp_path.glob("runs/digits/*/model.safetensors"))
    stored = json.loads((tmp_path / "table.json").read_text())
    assert [contrast["letter"] for contrast in stored["contrasts"]] == list("abcddde")
    again = reproduce(*OPTIONS, "--targets", "north", "--light", "--out", tmp_path)
    assert again.code == 0
    assert again.err == ""  # nothing is trained
    assert json.loads((tmp_path / "table.json").read_text())["rows"] == stored["rows"]


@pytest.mark.usefixtures("small_world")
def test_seeds_are_made_in_parts_and_put_together_without_training(tmp_path: Path) -> None:
    options = (*OPTIONS, "--methods", "erm,ft_mmd", "--targets", "north", "--out", tmp_path)
    assert_refused(reproduce(*options, "--no-train"), "none of the 2 runs", "leave --no-train out")
    assert reproduce(*options, "--seeds", 1, "--light").code == 0
    assert reproduce(*options, "--seeds", 1, "--first-seed", 1, "--light").code == 0
    done = reproduce(*options, "--seeds", 3, "--no-train")
    assert done.code == 0
    assert done.err == ""
    lines = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [(line["row"], line["seed"]) for line in lines] == [
        ("erm", "0"),
        ("erm", "1"),
        ("ft_mmd", "0"),
        ("ft_mmd", "1"),
    ]
    assert "the same command goes on" in done.out  # of the third seed


@pytest.mark.usefixtures("small_world")
def test_a_table_is_continued_without_its_run_folders(tmp_path: Path) -> None:
    options = (*OPTIONS, "--methods", "erm,ft_mmd", "--targets", "north")
    first, second = tmp_path / "first", tmp_path / "second"
    assert reproduce(*options, "--seeds", 1, "--out", first).code == 0
    listed = first / "table.csv"
    done = reproduce(*options, "--seeds", 2, "--done", listed, "--out", second)
    assert done.code == 0, done
    assert "2 of the 4 runs are done" in done.out
    before, after = (list(csv.DictReader(path.read_text().splitlines())) for path in (listed, second / "table.csv"))
    assert [line for line in after if line["seed"] == "0"] == before
    assert len(after) == 4
    results = [json.loads(path.read_text()) for path in second.glob("runs/digits/*/result.json")]
    assert {result["seed"] for result in results} == {1}
    # Nothing is left to do, so no data are needed; another setting is another run.
    again = reproduce(*options, "--seeds", 2, "--done", second / "table.csv", "--no-train", "--out", tmp_path / "third")
    assert again.code == 0, again
    assert (tmp_path / "third" / "table.csv").read_text() == (second / "table.csv").read_text()
    other = reproduce(*options, "--seeds", 1, "--epochs", 1, "--done", listed, "--out", tmp_path / "fourth")
    assert "0 of the 2 runs are done" in other.out


@pytest.mark.usefixtures("small_world")
def test_a_run_list_that_is_none_is_refused(tmp_path: Path) -> None:
    options = (*OPTIONS, "--methods", "erm", "--targets", "north", "--out", tmp_path / "out")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert_refused(reproduce(*options, "--done", tmp_path / "other.csv"), "no column row, target", "table.csv")
    assert_refused(reproduce(*options, "--done", tmp_path / "none.csv"), "none.csv")
    assert reproduce(*options).code == 0
    listed = tmp_path / "out" / "table.csv"
    header, line = listed.read_text().splitlines()
    fields = line.split(",")
    fields[header.split(",").index("accuracy")] = "high"
    listed.write_text("\n".join([header, ",".join(fields)]) + "\n")
    assert_refused(reproduce(*options, "--done", listed), "erm, north, seed 0", "'high'")


@pytest.mark.usefixtures("small_world")
def test_the_table_names_the_machines_of_its_runs_wherever_it_is_made(tmp_path: Path) -> None:
    options = (*OPTIONS, "--methods", "erm", "--targets", "north", "--seeds", 3, "--out", tmp_path)
    made = reproduce(*options, "--light")
    here = json.loads((tmp_path / "table.json").read_text())["machine"]
    assert f"Made on {here}." in made.out

    def noted(seed: int) -> Path:
        """What the run of a seed keeps of its surroundings."""
        runs = [json.loads(path.read_text()) for path in tmp_path.glob("runs/digits/*/result.json")]
        (name,) = [run["run"] for run in runs if run["seed"] == seed]
        return tmp_path / "runs" / "digits" / name / "environment.json"

    changed(noted(0), gpu="NVIDIA H200", torch="2.9.1+cu130")
    assert f"Made on NVIDIA H200, torch 2.9.1; {here}." in reproduce(*options, "--no-train").out
    for seed in (1, 2):
        changed(noted(seed), gpu="NVIDIA H200", torch="2.9.1+cu130")
    assert "Made on NVIDIA H200, torch 2.9.1." in reproduce(*options, "--no-train").out
    noted(1).unlink()
    noted(2).write_text("{")
    assert "Made on NVIDIA H200, torch 2.9.1; a machine that was not noted." in reproduce(*options, "--no-train").out


@pytest.mark.usefixtures("small_world")
def test_epochs_cap_every_row(tmp_path: Path) -> None:
    done = reproduce(*OPTIONS, "--methods", "erm,gdu", "--targets", "north", "--epochs", 1, "--out", tmp_path)
    assert done.code == 0, done
    lines = csv.DictReader((tmp_path / "table.csv").read_text().splitlines())
    assert [line["epochs"] for line in lines] == ["1", "1"]
