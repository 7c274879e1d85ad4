"""Light runs: weights and predictions go, results stay, and what an unfinished run needs is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gated_domains.experiments.model import WEIGHTS
from gated_domains.experiments.runner import Runner
from gated_domains.paper import running
from gated_domains.paper.grid import Grid, Job
from gated_domains.paper.light import lighten
from gated_domains.paper.running import Reproducing
from gated_domains.paper.standing import stands_on
from gated_domains.runs.folder import PREDICTIONS, RunFolder
from gated_domains.runs.recipe import Recipe
from made_runs import CPU, NothingIsTrained, recipe, runner, vectors


def job(row: str = "erm", column: str = "north", *, starts_on: Recipe | None = None, **others: Any) -> Job:
    made = recipe(others.pop("method", row), column, body="mlp", **others)
    return Job(row=row, column=column, recipe=made, starts_on=starts_on)


ERM = job()
HEAD = job("linear", starts_on=ERM.recipe)
TWO_NETWORKS = job("ensemble", settings={"members": 2})


def work(root: Path, *jobs: Job, light: bool = True, **others: Any) -> Reproducing:
    def make(executor: Any, runner: Runner, recipes: Any) -> None:
        executor.run(recipes, callback=others.get("callback"))

    chosen: dict[str, Any] = {"make": others.get("make", make), "hardware": CPU, "executing": {"workers": 1}}
    return Reproducing(Grid(jobs=jobs, without={}), root, light=light, **chosen)


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "load_data", lambda *_, **__: vectors())


def weights(root: Path) -> int:
    return len(list(root.glob(f"runs/*/*/{WEIGHTS}")))


def runs(root: Path) -> list[RunFolder]:
    return [RunFolder(path.parent) for path in root.glob("runs/*/*/run.json")]


def test_weights_and_predictions_go_and_all_else_stays(tmp_path: Path) -> None:
    heavy, light = tmp_path / "heavy", tmp_path / "light"
    work(heavy, ERM, light=False).run()
    work(light, ERM).run()
    (before,), (after,) = runs(heavy), runs(light)
    names = {path.name for path in before.path.iterdir()}
    assert {WEIGHTS, PREDICTIONS} <= names
    gone = names - {path.name for path in after.path.iterdir()}
    assert gone == {WEIGHTS, PREDICTIONS, "seen.npz"}
    assert after.done
    assert after.metrics()
    assert after.result().to_json()["test"] == before.result().to_json()["test"]


def test_light_runs_are_found_done_heads_on_them_and_ensembles_too(tmp_path: Path) -> None:
    jobs = (ERM, HEAD, TWO_NETWORKS)
    work(tmp_path, *jobs).run()
    assert weights(tmp_path) == 0
    assert len(runs(tmp_path)) == 4  # ERM is the first member of the ensemble
    again = work(tmp_path, *jobs, callback=NothingIsTrained())
    again.run()
    assert set(again.results) == set(jobs)


def test_what_an_unfinished_head_stands_on_is_kept(tmp_path: Path) -> None:
    def broken(executor: Any, runner: Runner, recipes: Any) -> None:
        if any(one.method.name == "linear" for one in recipes):
            raise RuntimeError("it fell over")
        executor.run(recipes)

    first = work(tmp_path, ERM, HEAD, job("erm", seed=7), make=broken)
    first.run()
    assert first.failed[HEAD] == "it failed: it fell over"
    assert weights(tmp_path) == 1  # of the network that the head needs; that of the other seed is gone
    work(tmp_path, ERM, HEAD).run()
    assert weights(tmp_path) == 0


def test_members_of_an_unfinished_ensemble_are_kept(tmp_path: Path) -> None:
    work(tmp_path, ERM, light=False).run()
    there = runner(vectors(), next(tmp_path.glob("runs/*")))
    assert lighten(there, [ERM], unfinished=[TWO_NETWORKS]) == 0
    assert weights(tmp_path) == 1
    assert lighten(there, [ERM], unfinished=[]) > 1_000
    assert weights(tmp_path) == 0


def test_a_person_who_stops_it_finds_light_runs_and_what_the_rest_needs(tmp_path: Path) -> None:
    def stopped(executor: Any, runner: Runner, recipes: Any) -> None:
        if any(one.method.name == "linear" for one in recipes):
            raise KeyboardInterrupt
        executor.run(recipes)

    with pytest.raises(KeyboardInterrupt):
        work(tmp_path, ERM, HEAD, job("gdu"), make=stopped).run()
    (kept,) = tmp_path.glob(f"runs/*/*/{WEIGHTS}")
    assert RunFolder(kept.parent).recipe()["method"]["name"] == "erm"


def test_another_column_keeps_its_runs_until_it_is_done(tmp_path: Path) -> None:
    seen: list[int] = []

    def make(executor: Any, runner: Runner, recipes: Any) -> None:
        executor.run(recipes)
        seen.append(weights(tmp_path))

    south = job(column="south")
    work(tmp_path, ERM, south, make=make).run()
    assert seen == [1, 1]  # the first column is light before the second begins
    assert weights(tmp_path) == 0


def test_a_head_on_a_network_whose_weights_are_gone_says_so_and_stops_no_other(tmp_path: Path) -> None:
    work(tmp_path, ERM).run()
    (under,) = runs(tmp_path)
    later = work(tmp_path, ERM, HEAD, TWO_NETWORKS, job("gdu"))
    later.run()
    for one in (HEAD, TWO_NETWORKS):
        assert str(under.path) in later.failed[one]
        assert "delete that folder to train it again" in later.failed[one]
    assert {one.row for one in later.results} == {"erm", "gdu"}


def test_results_done_before_are_there_however_soon_a_person_stops_it(tmp_path: Path) -> None:
    def stopped(executor: Any, runner: Runner, recipes: Any) -> None:
        raise KeyboardInterrupt

    south = job(column="south")
    work(tmp_path, south).run()
    again = work(tmp_path, ERM, south, make=stopped)
    with pytest.raises(KeyboardInterrupt):
        again.run()
    assert set(again.results) == {south}


def test_a_job_stands_on_what_its_own_needs_stand_on_too(tmp_path: Path) -> None:
    tuned = job("linear", selection="leave_one_source_out")  # by heads on networks of their own
    work(tmp_path, tuned, light=False).run()
    there = runner(vectors(), next(tmp_path.glob("runs/*")))
    own = there.find(tuned.recipe)
    assert own is not None
    every = {run.path for run in runs(tmp_path)}
    assert len(every) > 5
    assert {run.path for run in stands_on(there, tuned)} == every - {own.path}
