"""Heads that are trained together: from outside, a grid like any other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gated_domains.data.errors import DataError
from gated_domains.experiments.executors import OneByOne, Workers, choose_executor, choosing
from gated_domains.experiments.executors.plan import Plan
from gated_domains.experiments.executors.side_by_side import SideBySide
from gated_domains.experiments.recipe import Recipe
from gated_domains.experiments.run_folder import RunFolder, all_runs
from gated_domains.experiments.together import run_together, stack_key
from gated_domains.training import fine_tuning
from gated_domains.training.population import Population
from gated_domains.training.trouble import NotFiniteError
from gated_domains.utils.locks import BusyError
from made_grids import Told
from made_runs import Interrupt, NothingIsTrained, Watcher, numbers, recipe, runner, vectors, without_times

HEAD = {"num_bases": 3, "basis_size": 4}


def heads(name: str = "linear", seeds: int = 3, **others: Any) -> list[Recipe]:
    return [recipe(name, seed=seed, training={"epochs": 3, **others.get("training", {})}, **_rest(others))
            for seed in range(seeds)]  # fmt: skip


def _rest(others: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in others.items() if name != "training"}


def names(runs: Sequence[Any]) -> list[str]:
    return [run.name for run in runs]


def fine_tuned(**settings: Any) -> dict[str, Any]:
    return {"mode": "fine_tune", **HEAD, **settings}


def assert_alike(some: list[RunFolder], others: list[RunFolder]) -> None:
    """The same runs in the same order, but for rounding."""
    assert [run.name for run in some] == [run.name for run in others]
    for one, other in zip(some, others, strict=True):
        own, theirs = (load_file(run.path / "model.safetensors") for run in (one, other))
        assert own.keys() == theirs.keys()
        for name, value in own.items():
            torch.testing.assert_close(value, theirs[name], rtol=1e-4, atol=1e-5)
        first, second = one.result(), other.result()
        assert first["best_epoch"] == second["best_epoch"]
        assert first["validation"] == second["validation"]
        assert first["test"] == second["test"]
        assert first["notes"] == second["notes"]
        assert len(without_times(one)) == len(without_times(other))
        for name, values in one.predictions().items():
            np.testing.assert_allclose(values, other.predictions()[name], rtol=1e-4, atol=1e-5)


@pytest.fixture
def populations(monkeypatch) -> list[int]:
    """How many members every population had."""
    sizes: list[int] = []
    plain = Population.__init__

    def noting(self: Population, members: Any) -> None:
        plain(self, members)
        sizes.append(len(self.members))

    monkeypatch.setattr(Population, "__init__", noting)
    return sizes


# -- what may go together ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 5},
        {"hold_out": "west"},
        {"training": {"rate": 0.01}},
        {"training": {"weight_decay": 0.01}},
        {"settings": fine_tuned(lambda_ols=0.5)},
        {"settings": fine_tuned(sigma=2.0)},
        {"settings": fine_tuned(entropy=0.3, lambda_dev=0.5)},
    ],
)
def test_heads_that_differ_in_numbers_alone_go_together(changes):
    data, usual = vectors(), recipe("gdu", settings=fine_tuned())
    other = recipe("gdu", **{"settings": fine_tuned(), **changes})
    assert stack_key(usual, data) == stack_key(other, data) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": fine_tuned(gate="mmd")},
        {"settings": fine_tuned(num_bases=4)},
        {"settings": fine_tuned(lambda_ols=0.0)},
        {"training": {"batch_size": 16}},
        {"training": {"ema": 0.9}},
        {"training": {"class_weights": True}},
    ],
)
def test_heads_of_different_make_do_not(changes):
    data, usual = vectors(), recipe("gdu", settings=fine_tuned())
    other = recipe("gdu", **{"settings": fine_tuned(), **changes})
    assert stack_key(other, data) is not None
    assert stack_key(usual, data) != stack_key(other, data)


@pytest.mark.parametrize(
    "alone",
    [
        recipe("erm"),
        recipe("ensemble"),
        recipe("gdu"),
        recipe("linear", training={"swad": True}),
        recipe("linear", training={"optimizer": "sgd"}),
        recipe("linear", training={"accumulate": 2}),
        recipe("linear", training={"mixstyle": 0.5}),
        recipe("linear", training={"sampling": "balanced"}),
        recipe("linear", training={"precision": "16"}),
    ],
)
def test_everything_else_is_trained_alone(alone):
    assert stack_key(alone, vectors()) is None


def test_where_the_task_knows_the_training_rows_hold_outs_do_not_mix():
    data = numbers()
    assert stack_key(recipe("linear"), data) == stack_key(recipe("linear", seed=1), data)
    assert stack_key(recipe("linear"), data) != stack_key(recipe("linear", hold_out="west"), data)


def test_what_goes_together_is_handed_out_last_and_in_fair_shares(tmp_path):
    plan = Plan(runner(vectors(), tmp_path), [*heads(seeds=5), recipe("erm", seed=7)])
    for work in plan.left:
        if work.recipe.method.name == "erm" and work.recipe.seed < 5:
            plan.begin(work)
            plan.finish(work, RunFolder(tmp_path / work.name))
    sizes = lambda bundles: [len(bundle) for bundle in bundles]  # noqa: E731
    assert plan.bundles(9)[0][0].recipe.seed == 7
    assert sizes(plan.bundles(9)) == [1, 5]
    assert sizes(plan.bundles(2)) == [1, 2, 2, 1]
    assert sizes(plan.bundles(9, hands=2)) == [1, 3, 2]
    assert sizes(plan.bundles(1)) == [1] * 6


# -- the same runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("linear", {}),
        ("gdu-paper", fine_tuned()),
        ("gdu", fine_tuned()),
        pytest.param("gdu", fine_tuned(gating="features"), marks=pytest.mark.slow),
    ],
)
def test_runs_are_those_of_one_by_one(name, settings, tmp_path, populations):
    recipes = heads(name, settings=settings)
    alone = OneByOne(runner(vectors(), tmp_path / "alone")).run(recipes)
    assert populations == []
    together = OneByOne(runner(vectors(), tmp_path / "together"), population=9).run(recipes)
    assert populations == [3]
    assert_alike(alone, together)


def test_hold_outs_rates_and_averages_go_side_by_side(tmp_path, populations):
    recipes = [
        recipe("linear", hold_out, seed=seed, training={"epochs": 3, "ema": 0.9, "rate": rate})
        for hold_out in ("north", "west")
        for seed, rate in ((0, 1e-3), (1, 1e-2))
    ]
    alone = OneByOne(runner(vectors(), tmp_path / "alone")).run(recipes)
    together = OneByOne(runner(vectors(), tmp_path / "together"), population=9).run(recipes)
    assert populations == [4]
    assert_alike(alone, together)


def test_workers_make_bundles_too(tmp_path):
    recipes = heads(seeds=4)
    alone = OneByOne(runner(vectors(), tmp_path / "alone")).run(recipes)
    told = Told()
    with Workers(runner(vectors(), tmp_path / "together"), workers=2, population=9) as workers:
        together = workers.run(recipes, watcher=told)
        assert names(workers.run(recipes)) == names(together)
    assert_alike(alone, together)
    assert sorted(told.all("ended")) == sorted(run.name for run in all_runs(tmp_path / "together"))


def test_side_by_side_stacks_heads_when_bodies_are_done(tmp_path, populations):
    recipes = heads(seeds=3)
    alone = OneByOne(runner(vectors(), tmp_path / "alone")).run(recipes)
    told = Told()
    with SideBySide(runner(vectors(), tmp_path / "together"), workers=2, population=9) as executor:
        together = executor.run(recipes, watcher=told)
    assert populations == [3]
    assert_alike(alone, together)
    assert len(told.all("ended")) == 6


def test_features_of_a_body_are_taken_once_for_all_heads_on_it(tmp_path, monkeypatch):
    taken = []
    plain = fine_tuning.cached_features
    monkeypatch.setattr(fine_tuning, "cached_features", lambda *a, **k: (taken.append(1), plain(*a, **k))[1])
    maker = runner(vectors(), tmp_path)
    settings = [fine_tuned(gating="features", lambda_ols=weight) for weight in (1e-3, 1e-2, 1e-4)]
    recipes = [recipe("gdu", settings=own) for own in settings]
    assert all(isinstance(run, RunFolder) for run in run_together(maker, recipes))
    assert len(taken) == 1


# -- what is told ------------------------------------------------------------------------------------------------------


def test_every_run_begins_and_ends_and_steps_are_told_once(tmp_path):
    maker, told = runner(vectors(), tmp_path), Told()
    for chosen in heads():
        maker.run(maker.stands_on(chosen)[0])
    runs = run_together(maker, heads(), watcher=told)
    names = [run.name for run in runs if isinstance(run, RunFolder)]
    assert told.all("began") == names
    assert told.all("ended") == names
    assert told.all("epoch") == [0, 1, 2]
    steps = told.all("stepped")
    assert steps == sorted(set(steps))


def test_what_is_done_is_found_and_what_others_are_at_is_left(tmp_path):
    maker, recipes = runner(vectors(), tmp_path), heads()
    first = maker.run(recipes[0])
    with maker.folder(recipes[1]).lock():
        came = run_together(maker, recipes)
    assert names(came[:1]) == [first.name]
    assert isinstance(came[1], BusyError)
    assert isinstance(came[2], RunFolder)
    assert came[2].done
    runs = OneByOne(maker, population=9).run(recipes)
    assert all(run.done for run in runs)
    maker.watcher = NothingIsTrained()
    assert names(OneByOne(maker, population=9).run(recipes)) == names(runs)


def test_one_that_breaks_is_noted_and_raised_after_the_others_are_done(tmp_path):
    good, bad = heads(seeds=2), recipe("linear", seed=2, training={"epochs": 3, "rate": 1e30, "weight_decay": 1.0})
    maker = runner(vectors(), tmp_path)
    for chosen in heads():
        maker.run(maker.stands_on(chosen)[0])
    under = recipe("erm", seed=2, training={"epochs": 3})
    folder = maker.run(under)
    bad = bad.but(backbone=str(folder.path))
    good = [chosen.but(backbone=str(folder.path)) for chosen in good]
    with pytest.raises(NotFiniteError, match="learning rate 1e\\+30"):
        OneByOne(maker, population=9).run([bad, *good])
    assert all(maker.folder(chosen).done for chosen in good)
    broken = maker.folder(bad)
    assert not broken.done
    assert "learning rate 1e+30" in json.loads((broken.path / "broken.json").read_text())["why"]


def test_stopped_in_the_middle_it_goes_on_together_or_alone(tmp_path):
    recipes = heads("gdu", settings=fine_tuned())
    never = OneByOne(runner(vectors(), tmp_path / "never")).run(recipes)
    for way in (1, 9):
        maker = runner(vectors(), tmp_path / str(way), checkpoint_seconds=0.0)
        for chosen in recipes:
            maker.run(maker.stands_on(chosen)[0])
        with pytest.raises(KeyboardInterrupt):
            run_together(maker, recipes, watcher=Interrupt(4))
        assert all(maker.folder(chosen).checkpoints for chosen in recipes)
        assert_alike(never, OneByOne(maker, population=way).run(recipes))


def test_what_cannot_be_stepped_together_after_all_is_trained_in_turn(tmp_path, populations, monkeypatch):
    monkeypatch.setattr("gated_domains.experiments.together.odd_one_out", lambda members: "made up")
    recipes = heads()
    together = OneByOne(runner(vectors(), tmp_path / "together"), population=9).run(recipes)
    assert populations == []
    assert_alike(OneByOne(runner(vectors(), tmp_path / "alone")).run(recipes), together)


# -- choosing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "most"), [("auto", choosing.MOST_TOGETHER), ("off", 1), ("7", 7), (7, 7)])
def test_how_many_go_together_is_chosen_by_name_or_number(asked, most, tmp_path):
    chosen = choose_executor(runner(vectors(), tmp_path), 4, workers=1, population=asked)
    assert isinstance(chosen, OneByOne)
    assert chosen.population == most


@pytest.mark.parametrize("asked", ["some", "0", -3])
def test_a_population_of_another_kind_is_refused(asked, tmp_path):
    with pytest.raises(DataError, match="--population must be auto, off or a number from 1 on"):
        choose_executor(runner(vectors(), tmp_path), 4, workers=1, population=asked)


def test_under_torchrun_each_training_goes_alone(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert choose_executor(runner(vectors(), tmp_path), 4).population == 1


def test_a_single_watcher_of_runs_is_enough(tmp_path):
    watcher = Watcher()
    run_together(runner(vectors(), tmp_path, watcher=watcher), heads(seeds=2), watcher=watcher)
    assert len(watcher.ended) == 4
