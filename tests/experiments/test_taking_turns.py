"""What runs that take turns leave behind in their process: nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from gated_domains.experiments.executors import OneByOne, choosing
from gated_domains.experiments.executors.side_by_side import SideBySide
from gated_domains.experiments.runner import Runner
from gated_domains.training.pauses import Pause, drained
from gated_domains.training.side_by_side import Turns, take_turns
from made_runs import recipe, runner, vectors


@pytest.fixture
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_threads_and_the_pace_of_checkpoints_are_as_before(tmp_path: Path):
    made = runner(vectors(), tmp_path)
    before = made.checkpoint_seconds
    for seeds in ((0, 1), (2, 3)):
        with SideBySide(made, workers=2) as executor:
            assert made.checkpoint_seconds == 2 * before
            executor.run([recipe("erm", seed=seed, training={"epochs": 1}) for seed in seeds])
        assert torch.get_num_threads() == 2
        assert made.checkpoint_seconds == before
        assert made.writing is None


def test_each_has_its_share_of_the_seconds_that_go_by():
    def sleeping(count: int):
        for _ in range(count):
            time.sleep(0.01)
            yield Pause.AFTER_STEP

    members = [Turns(sleeping(count), torch.device("cpu")) for count in (10, 10)]
    ended, _ = take_turns(members)
    assert ended is members[0]
    assert 0.08 < members[0].seconds < 0.5
    assert members[0].seconds == members[1].seconds


def test_one_that_waits_for_a_thread_does_not_keep_its_process_busy():
    looks = 0

    def waiting(until: float):
        nonlocal looks
        end = time.monotonic() + until
        while time.monotonic() < end:
            looks += 1
            yield Pause.ELSEWHERE
        return "done"

    assert drained(waiting(0.1)) == "done"
    assert looks < 150


def test_where_memory_is_too_small_for_so_many_fewer_go_on_and_none_is_lost(tmp_path: Path, monkeypatch):
    made, beside = runner(vectors(), tmp_path), []
    making = made.making

    def short_of_memory(recipe, *, watcher):
        beside.append(recipe.seed)
        if len(executor._team) >= 2:  # a third does not fit
            raise torch.OutOfMemoryError("CUDA out of memory")
        return (yield from making(recipe, watcher=watcher))

    monkeypatch.setattr(made, "making", short_of_memory)
    recipes = [recipe("erm", seed=seed, training={"epochs": 1}) for seed in range(4)]
    with SideBySide(made, workers=3) as executor:
        folders = executor.run(recipes)
        assert executor.workers == 1
    assert all(folder.done for folder in folders)
    assert len(beside) > 4  # some were begun again


def test_a_training_that_is_alone_and_short_of_memory_says_so(tmp_path: Path, monkeypatch):
    made = runner(vectors(), tmp_path)

    def short_of_memory(recipe, *, watcher):
        yield Pause.AFTER_STEP
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(made, "making", short_of_memory)
    with SideBySide(made, workers=2) as executor, pytest.raises(torch.OutOfMemoryError):
        executor.run([recipe("erm", training={"epochs": 1})])


@pytest.mark.parametrize(
    ("free", "trainings", "options", "expected"),
    [
        (139, 50, {}, "4 side by side, 256 heads together"),
        (139, 2, {}, "2 side by side, 256 heads together"),
        (13, 50, {}, "2 side by side, 256 heads together"),
        (8, 50, {}, "OneByOne"),
        (139, 50, {"population": "off"}, "OneByOne"),
        (139, 50, {"population": 8}, "OneByOne"),
        (139, 50, {"workers": 1}, "OneByOne"),
    ],
)
def test_on_a_gpu_as_many_take_turns_as_its_memory_has_room_for(
    free, trainings, options, expected, tmp_path: Path, monkeypatch
):
    def side_by_side(runner, *, workers, population):
        made = OneByOne(runner)
        made.said = f"{workers} side by side, {population} heads together"
        return made

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free * 2**30, 141 * 2**30))
    monkeypatch.setattr(choosing, "SideBySide", side_by_side)
    made = Runner(vectors(), tmp_path)
    chosen = choosing.choose_executor(made, trainings, **options)
    assert getattr(chosen, "said", type(chosen).__name__) == expected
