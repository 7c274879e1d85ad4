"""``gated-domains reproduce ablations``: what it lists, what it refuses, what it draws, how it goes on."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from gated_domains.paper import running
from gated_domains.paper.ablations import setup
from gated_domains.paper.ablations.grids import FIGURES
from gated_domains.paper.ablations.setup import Setup
from gated_domains.reports.ablations.setting import Fineness
from gated_domains.runs.recipe import DataSettings
from made_runs import assert_refused, call, vectors


def reproduce(*arguments: object) -> Any:
    return call("reproduce", "ablations", *arguments)


def test_it_lists_the_figures_by_name() -> None:
    done = reproduce("--list")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == list(FIGURES)


def test_names_that_are_none_are_refused_with_the_nearest(tmp_path: Path) -> None:
    assert_refused(reproduce("--figure", "base"), "--figure: there is no 'base'", "bases")
    assert_refused(reproduce("--quick", "--small"), "leave --small out")
    assert_refused(reproduce("--precision", "8", "--figure", "domains"), "precision", "bf16")
    (tmp_path / "file").write_text("")
    assert_refused(reproduce("--out", tmp_path / "file", "--figure", "domains"), "is a file")


def test_without_data_the_cure_is_said(tmp_path: Path) -> None:
    done = reproduce("--data", tmp_path, "--figure", "domains", "--out", tmp_path / "o")
    assert_refused(done, "none of the 3 runs could be made", "gated-domains data fetch digits5")
    assert "6 trainings: 3 networks, 3 heads" in done.out


@pytest.fixture
def small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors in place of images, an MLP trained on them for two epochs, grids of a few cells."""
    dataset = vectors()
    monkeypatch.setattr(running, "load_data", lambda *_, **__: dataset)

    def quick(*, epochs: int | None, precision: str) -> Setup:
        return Setup(
            data=DataSettings(what="digits"),
            body="mlp",
            target="north",
            target_title="North",
            second="south",
            second_title="South",
            fineness=Fineness(
                bases={"FT": (2, 3), "E2E": (2,)},
                sizes={"FT": (2,), "E2E": (2,)},
                weights={"FT": (0.0, 0.1), "E2E": (0.0,)},
                clusters=(2, 3),
            ),
            seeds=1,
            epochs={"FT": min(2, epochs or 2), "E2E": min(2, epochs or 2)},
            batch_size=32,
            precision=precision,
            about="QUICK: vectors.",
        )

    monkeypatch.setattr(setup, "quick", quick)


OPTIONS = ("--quick", "--device", "cpu", "--workers", 1)


def _csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.usefixtures("small_world")
@pytest.mark.slow
def test_every_figure_is_run_drawn_and_drawn_again_without_weights(tmp_path: Path) -> None:
    done = reproduce(*OPTIONS, "--light", "--out", tmp_path)
    assert done.code == 0, done
    for name in FIGURES:
        for suffix in ("svg", "png", "pdf", "csv", "md"):
            assert (tmp_path / f"{name}.{suffix}").is_file(), name
        assert f"{name}: " in done.out
    assert (tmp_path / "report.html").is_file()
    page = (tmp_path / "ablations.md").read_text("utf-8")
    assert [line for line in page.splitlines() if line.startswith("![")] == [
        line for name in FIGURES for line in page.splitlines() if line.endswith(f"]({name}.png)")
    ]
    assert "QUICK: vectors." in page
    assert "missing" not in page
    numbers = {name: (tmp_path / f"{name}.csv").read_bytes() for name in FIGURES}
    kept = [
        json.loads((path.parent / "result.json").read_text()) for path in tmp_path.glob("runs/*/*/model.safetensors")
    ]
    assert {(run["method"], run["hold_out"]) for run in kept} == {("erm", "north")}  # what heads stand on
    again = reproduce(*OPTIONS, "--no-train", "--out", tmp_path)
    assert again.code == 0
    assert again.err == ""
    assert {name: (tmp_path / f"{name}.csv").read_bytes() for name in FIGURES} == numbers


@pytest.mark.usefixtures("small_world")
@pytest.mark.slow
def test_figures_are_made_one_at_a_time_and_share_their_runs(tmp_path: Path) -> None:
    assert reproduce(*OPTIONS, "--figure", "davies-bouldin", "--light", "--out", tmp_path).code == 0
    assert len(list(tmp_path.glob("runs/*/*/result.json"))) == 1
    done = reproduce(
        *OPTIONS, "--figure", "domains", "--light", "--out", tmp_path
    )  # stands on the network of the first
    assert done.code == 0, done
    assert len(list(tmp_path.glob("runs/*/*/result.json"))) == 2
    page = (tmp_path / "ablations.md").read_text("utf-8")
    assert "davies-bouldin.png" in page
    assert "domains.png" in page
    points = _csv(tmp_path / "domains.csv")
    assert {point["name"] for point in points} == {"south", "west", "sources", "north (unseen)", "bases"}
    assert sum(point["name"] == "bases" for point in points) == 10 * 10


@pytest.mark.usefixtures("small_world")
def test_what_is_drawn_is_what_the_runs_scored(tmp_path: Path) -> None:
    done = reproduce(*OPTIONS, "--figure", "size", "--seeds", 2, "--epochs", 1, "--out", tmp_path)
    assert done.code == 0, done
    results = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/*/result.json")]
    assert {run["epochs"] for run in results} == {1}
    drawn = {(line["panel"], line["name"]): float(line["y"]) for line in _csv(tmp_path / "size.csv")}
    assert len(drawn) == 3 + 4
    scores = [
        100 * run["test"]["overall"]
        for run in results
        if run["method"] == "gdu-paper" and run["mode"] == "fine_tune" and "gate=mmd" in run["label"]
    ]
    assert len(scores) == 2
    (tuned,) = [value for (panel, name), value in drawn.items() if name == "MMD" and "FT" in panel]
    assert tuned == pytest.approx(sum(scores) / 2)
    assert len(_csv(tmp_path / "size-runs.csv")) == 2 * (1 + 3 + 4)


@pytest.mark.usefixtures("small_world")
@pytest.mark.slow
def test_a_run_that_fails_leaves_a_hole_and_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = setup.Setup.recipe

    def diverging(self: Setup, setting: Any, seed: int) -> Any:
        made = recipe(self, setting, seed)
        if (setting.gate, setting.mode, setting.bases) == ("mmd", "E2E", 2):
            return made.replace(training=made.training.model_copy(update={"rate": 1e38}))
        return made

    monkeypatch.setattr(setup.Setup, "recipe", diverging)
    done = reproduce(*OPTIONS, "--figure", "bases", "--out", tmp_path)
    assert done.code == 0, done
    assert "1 run missing:" in done.out
    drawn = {(line["panel"].startswith("end"), line["name"]) for line in _csv(tmp_path / "bases.csv")}
    assert (True, "MMD") not in drawn
    assert (True, "projection") in drawn
