"""Runs that take turns in one process: each is what it would be alone, whatever the others do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gated_domains.common.health import GateHealth, findings_heard
from gated_domains.data.errors import DataError
from gated_domains.experiments.executors import OneByOne
from gated_domains.experiments.executors.side_by_side import SideBySide
from gated_domains.experiments.run_folder import all_runs
from gated_domains.experiments.runner import Runner
from gated_domains.training.engine import Hardware
from gated_domains.training.pauses import Pause
from gated_domains.training.side_by_side import OwnNumbers, Turns, take_turns
from gated_domains.training.trouble import NotFiniteError
from made_grids import Told, assert_same_runs, grid
from made_runs import images, recipe, runner, vectors

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_the_runs_are_those_of_one_after_the_other_bit_by_bit(tmp_path: Path):
    recipes = [*grid(epochs=3), *(recipe("gdu", seed=seed, training={"epochs": 3}) for seed in range(2))]
    alone = OneByOne(runner(vectors(), tmp_path / "alone")).run(recipes)
    with SideBySide(runner(vectors(), tmp_path / "together"), workers=3) as executor:
        together = executor.run(recipes)
    assert_same_runs(alone, together)


@needs_gpu
def test_on_a_gpu_dropout_is_that_of_one_after_the_other_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    recipes = [
        recipe(method, seed=seed, body="digits", training={"epochs": 3, "batch_size": 8, "precision": "32"})
        for method in ("erm", "gdu")
        for seed in range(2)
    ]
    pictures, on_gpu = images(20), Hardware(device="cuda", devices=1)
    alone = OneByOne(Runner(pictures, tmp_path / "alone", hardware=on_gpu)).run(recipes)
    with SideBySide(Runner(pictures, tmp_path / "together", hardware=on_gpu), workers=4) as executor:
        together = executor.run(recipes)
    assert_same_runs(alone, together)


def test_steps_of_several_alternate_and_each_run_is_told_of_once(tmp_path: Path):
    told, recipes = Told(), [recipe("erm", seed=seed, training={"epochs": 2}) for seed in range(4)]
    with SideBySide(runner(vectors(), tmp_path), workers=2) as executor:
        folders = executor.run(recipes, watcher=told)
    began, ended = told.all("began"), told.all("ended")
    assert sorted(began) == sorted(ended) == sorted(folder.name for folder in folders)
    kinds = [what for what, _ in told.heard if what in ("began", "ended")]
    assert kinds[:2] == ["began", "began"]  # the second before the first has ended


def test_a_run_that_breaks_off_is_raised_and_the_others_go_on_at_the_next_call(tmp_path: Path):
    good = [recipe("erm", seed=seed, training={"epochs": 2}) for seed in range(2)]
    bad = recipe("erm", training={"epochs": 2, "rate": 1e30, "optimizer": "sgd"})
    with SideBySide(runner(vectors(), tmp_path), workers=3) as executor:
        with pytest.raises(NotFiniteError):
            executor.run([*good, bad])
        folders = executor.run(good)
    assert all(folder.done for folder in folders)


def test_let_go_of_it_leaves_folders_that_another_can_work_in(tmp_path: Path):
    recipes = [recipe("erm", seed=seed, training={"epochs": 2}) for seed in range(2)]

    class Stops(Told):
        def epoch_ended(self, record, *, worker=0):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), SideBySide(runner(vectors(), tmp_path), workers=2) as executor:
        executor.run(recipes, watcher=Stops())
    assert not any(run.done for run in all_runs(tmp_path))
    assert all(folder.done for folder in OneByOne(runner(vectors(), tmp_path)).run(recipes))


def test_fewer_than_one_at_a_time_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="at least one training at a time, got 0"):
        SideBySide(runner(vectors(), tmp_path), workers=0)


def test_random_numbers_of_one_do_not_depend_on_how_many_others_draw():
    def drawing(seed: int, count: int):
        torch.manual_seed(seed)
        drawn = []
        for _ in range(count):
            drawn.append(torch.rand(()).item())
            yield Pause.AFTER_STEP
        return drawn

    before = torch.get_rng_state()
    members = [Turns(drawing(seed, count), torch.device("cpu")) for seed, count in ((1, 3), (2, 7), (1, 5))]
    left = list(members)
    while left:
        ended, error = take_turns(left)
        assert error is None
        left.remove(ended)
    first, _, third = (member.result for member in members)
    torch_alone = torch.Generator().manual_seed(1)
    expected = [torch.rand((), generator=torch_alone).item() for _ in range(5)]
    assert first == expected[:3]
    assert third == expected
    assert torch.equal(torch.get_rng_state(), before)


def test_what_gates_find_is_heard_by_the_run_that_it_is_of():
    def listening(name: str):
        with findings_heard() as found:
            yield Pause.AFTER_STEP
            moves = 0.0 if name == "dead" else 0.1
            GateHealth(beta_std=moves, kernel_low=0.1, kernel_high=0.9, dead=(), doubled=()).warn()
            yield Pause.AFTER_STEP
        return found

    members = [Turns(listening(name), torch.device("cpu")) for name in ("dead", "alive")]
    for _ in range(3):
        for member in members:
            member.take()
    dead, alive = (member.result for member in members)
    assert len(dead) == 1
    assert "do not depend on the input" in dead[0]
    assert alive == []


def test_numbers_of_its_own_are_put_away_whatever_happens_inside():
    numbers, before = OwnNumbers(torch.device("cpu")), torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), numbers.in_force():
        torch.rand(3) / (1 // 0)
    assert torch.equal(torch.get_rng_state(), before)
