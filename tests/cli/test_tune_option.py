"""``gated-domains compare --tune``: trials first, then the table of what was chosen; stopped anywhere it goes on."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gated_domains.experiments.progress import ProgressBar
from gated_domains.runs.folder import RunFolder, all_runs
from made_runs import Done, assert_refused, call, table

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run

SHORT = (
    "--epochs",
    1,
    "--device",
    "cpu",
    "--workers",
    1,
    "--hold-out",
    "north",
    "--target",
    "sick",
    "--domain",
    "site",
)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return table(tmp_path / "clinic.csv")


def compare(data: Path, *options: object) -> Done:
    return call("compare", data, *SHORT, "--no-report", "--out", "out", *options)


def test_settings_are_tried_first_and_the_table_is_of_those_that_were_chosen(data):
    done = compare(data, "--methods", "erm,erm[activation=tanh,rate=0.01]", "--tune", 3, "--seeds", 2, "--explain")
    assert done.code == 0, done
    assert "; before them, 3 trials of settings for each method and hold-out" in done.out.splitlines()[1]
    kept = json.loads(Path("out/tuning.json").read_text())
    first, second = kept["searches"]
    assert list(first["ranges"]) == ["rate", "weight_decay"]
    assert list(second["ranges"]) == ["weight_decay"]  # the rate was set by hand
    with open("out/table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    labels = ["ERM (tuned)", "ERM [activation=tanh, rate=0.01] (tuned)"]
    assert [row["label"] for row in rows] == labels
    with open("out/runs.csv", newline="") as file:
        tabled = {(row["label"], row["run"]) for row in csv.DictReader(file)}
    chosen = {
        label: search["trials"][search["chosen"]]["run"] for label, search in zip(labels, (first, second), strict=True)
    }
    assert set(chosen.items()) <= tabled  # seed 0 of what was chosen is the trial itself
    assert len(tabled) == 4
    assert len(all_runs("out")) == 2 * 3 + 2 * 1  # trials with seed 0, and the chosen ones with seed 1
    assert "of 3 trials for each method and hold-out" in " ".join(done.out.split())
    assert str(Path("out/tuning.json")) in done.out.splitlines()[-2]


def test_what_is_set_for_all_methods_is_not_searched(data):
    assert compare(data, "--methods", "erm", "--tune", 2, "--seeds", 1, "--rate", 0.003).code == 0
    (search,) = json.loads(Path("out/tuning.json").read_text())["searches"]
    assert list(search["ranges"]) == ["weight_decay"]


def test_stopped_among_the_trials_it_goes_on_where_it_was(data, monkeypatch):
    options = ("--methods", "erm", "--tune", 3, "--seeds", 1)
    begun: list[RunFolder] = []
    began = ProgressBar.on_run_start

    def stop(self: ProgressBar, recipe: Any, folder: RunFolder, **others: Any) -> None:
        begun.append(folder)
        if len(begun) == 2:
            raise KeyboardInterrupt
        began(self, recipe, folder, **others)

    monkeypatch.setattr(ProgressBar, "on_run_start", stop)
    stopped = compare(data, *options)
    assert stopped.code == 130, stopped
    assert "the same command resumes it" in stopped.out
    assert not Path("out/table.md").exists()
    done = compare(data, *options)
    assert done.code == 0, done
    assert len(begun) == 4  # the first and the one that was cut; then that again and the third
    assert compare(data, *options).code == 0
    assert len(begun) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tune", 1), "2 trials or more, got 1"),
        (("--tune", 3, "--tuner", "optnua"), "did you mean 'optuna'"),
        (("--tune", 3, "--tuner", "optuna"), "pip install 'gated-domains[tune]'"),
        (("--tune", 3, "--selection", "last"), "another --selection"),
    ],
    ids=["one trial", "unknown tuner", "no optuna", "last epoch"],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_trained(data, options, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    done = compare(data, "--methods", "erm", *options)
    assert_refused(done, words)
    assert not Path("out").exists()
