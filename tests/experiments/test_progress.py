"""How far trainings are, as a person sees it: a line each, or bars with the time left."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gated_domains.experiments import progress
from gated_domains.experiments.planner import PlannedRun, Planner
from gated_domains.experiments.progress import ProgressBar, _duration
from gated_domains.experiments.source_data import SourceData
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import BusyError
from made_runs import recipe, vectors

FOLDER = RunFolder(Path("runs") / "0a1b2c3d4e5f")
RESULT: dict[str, Any] = {
    "metric": "accuracy",
    "test": {"by_domain": {"north": 0.5, "west": 0.7}},
    "validation": {"overall": 0.912},
}


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress.time, "monotonic", found)
    return found


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error, where nobody watches."""
    found = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found))
    monkeypatch.setenv("COLUMNS", "200")
    return found


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, said: io.StringIO) -> io.StringIO:
    """Standard error, where somebody does."""
    monkeypatch.setattr(said, "isatty", lambda: True)
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return said


def planned(recipes: Sequence[Recipe]) -> list[PlannedRun]:
    """Runs of recipes, of which nothing else is shown."""
    run = Planner(SourceData(vectors())).run(recipe())
    return [replace(run, recipe=chosen) for chosen in recipes]


def epoch(number: int, seconds: float) -> dict[str, Any]:
    return {"epoch": number, "seconds": seconds, "validation": {"metric": "accuracy", "overall": 0.5}}


def test_a_line_a_training_says_which_it_was_and_what_came_of_it(said):
    chosen = recipe("gdu", settings={"num_bases": 8}, seed=3)
    with ProgressBar(planned([chosen]), done=2) as callback:
        callback.on_run_start(chosen, FOLDER, epochs=1)
        callback.on_epoch(epoch(0, 1.0))
        callback.on_run_end(chosen, FOLDER, RESULT)
    first, second = said.getvalue().splitlines()
    assert first == "an epoch takes 1.0 s: at most 1.0 s for all trainings"
    assert second == "[3/3] GDU [num_bases=8], north held out, seed 3: validation 91.2, held out 60.0; done"


def test_with_nothing_held_out_no_score_is_made_up(said):
    chosen = recipe("erm", hold_out=None)
    with ProgressBar(planned([chosen])) as callback:
        callback.on_run_start(chosen, FOLDER, epochs=1)
        callback.on_epoch(epoch(0, 1.0))
        callback.on_run_end(chosen, FOLDER, {**RESULT, "test": None})
    assert said.getvalue().splitlines()[-1] == "[1/1] ERM, all domains, seed 0: validation 91.2; done"


def test_the_time_for_all_is_said_once_from_the_first_epoch(said, clock):
    todo = [recipe("erm", seed=seed) for seed in range(3)]
    with ProgressBar(planned(todo)) as callback:
        callback.on_run_start(todo[0], FOLDER, epochs=10)
        for number in range(3):
            callback.on_epoch(epoch(number, 6.0 * (number + 1)))
    assert said.getvalue().splitlines() == ["an epoch takes 6.0 s: at most 3 min for all trainings"]


def test_a_short_first_epoch_mostly_warms_up_and_is_not_taken(said, clock):
    todo = [recipe("erm")]
    with ProgressBar(planned(todo)) as callback:
        callback.on_run_start(todo[0], FOLDER, epochs=10)
        callback.on_epoch(epoch(0, 3.0))
        assert said.getvalue() == ""
        callback.on_epoch(epoch(1, 3.5))
    assert said.getvalue().splitlines() == ["an epoch takes 0.5 s: at most 5.0 s for all trainings"]


def test_a_training_that_goes_on_does_not_take_all_its_past_for_one_epoch(said, clock):
    todo = [recipe("erm")]
    with ProgressBar(planned(todo)) as callback:
        callback.on_run_start(todo[0], FOLDER, epochs=10)
        callback.on_epoch(epoch(7, 16.0))
    assert said.getvalue().startswith("an epoch takes 2.0 s")


def test_what_is_left_follows_from_how_long_trainings_of_a_kind_took(said, clock):
    todo = [recipe(method, seed=seed) for seed in (0, 1) for method in ("gdu", "erm")]
    with ProgressBar(planned(todo)) as callback:
        for chosen, seconds in zip(todo, (20.0, 4.0, 20.0, 4.0), strict=True):
            callback.on_run_start(chosen, FOLDER, epochs=2)
            callback.on_epoch(epoch(0, 10.0))
            clock.now += seconds
            callback.on_run_end(chosen, FOLDER, RESULT)
    left = [line.rsplit("; ")[-1] for line in said.getvalue().splitlines() if line.startswith("[")]
    # One GDU and two ERM, of which nothing is known yet; then one of each, known; then the last.
    assert left == ["about 60 s left", "about 24 s left", "about 4.0 s left", "done"]


def test_a_training_that_had_only_to_be_written_down_tells_no_time(said):
    """Cut off after its last epoch, it has none to tell of when it goes on."""
    todo = [recipe("erm", seed=seed) for seed in (0, 1)]
    with ProgressBar(planned(todo)) as callback:
        for chosen in todo:
            callback.on_run_start(chosen, FOLDER, epochs=3)
            callback.on_run_end(chosen, FOLDER, RESULT)
    first, second = said.getvalue().splitlines()
    assert first.endswith("held out 60.0")
    assert second.endswith("held out 60.0; done")


# -- several at a time -------------------------------------------------------------------------------------------------


def test_of_two_workers_each_has_half_of_what_is_left(said, clock):
    todo = [recipe("erm", seed=seed) for seed in range(7)]
    with ProgressBar(planned(todo), workers=2) as callback:
        for worker in (0, 1):
            callback.on_run_start(todo[worker], FOLDER, epochs=5, worker=worker)
        callback.on_epoch(epoch(0, 6.0), worker=1)
        clock.now += 20.0
        callback.on_run_end(todo[0], FOLDER, RESULT, worker=0)
        callback.on_run_end(todo[1], FOLDER, RESULT, worker=1, seconds=10.0)
    first, *lines = said.getvalue().splitlines()
    assert first == "an epoch takes 6.0 s: at most 2 min for all trainings, 2 at a time"
    # Six of 20 seconds; then five of 15, which is what the two took on average.
    assert [line.rsplit("; ")[-1] for line in lines] == ["about 60 s left", "about 38 s left"]


def test_what_is_left_is_no_less_than_the_longest_training(said, clock):
    todo = [recipe("erm", seed=seed) for seed in range(3)]
    with ProgressBar(planned(todo), workers=8) as callback:
        for worker in range(3):
            callback.on_run_start(todo[worker], FOLDER, epochs=5, worker=worker)
        callback.on_step(1, 2, worker=2)
        callback.on_epoch(epoch(0, 6.0), worker=0)
        clock.now += 20.0
        callback.on_run_end(todo[0], FOLDER, RESULT, worker=0)
    assert said.getvalue().splitlines()[-1].endswith("; about 20 s left")


def test_where_nothing_but_ends_is_heard_of_those_tell_the_time(said):
    todo = [recipe("erm", seed=seed) for seed in range(3)]
    with ProgressBar(planned(todo), workers=2) as callback:
        callback.on_run_end(todo[0], FOLDER, RESULT, seconds=8.0)
    assert said.getvalue().splitlines() == [
        "[1/3] ERM, north held out, seed 0: validation 91.2, held out 60.0; about 8.0 s left"
    ]


def test_what_other_processes_make_is_counted_and_they_are_named_once(said):
    todo = [recipe("erm", seed=seed) for seed in (0, 1)]
    with ProgressBar(planned(todo), workers=2) as callback:
        callback.on_wait([BusyError("a", 12), BusyError("b", 12)])
        callback.on_wait([BusyError("a", 12)])
        callback.on_run_found(todo[0], FOLDER)
        callback.on_wait([BusyError("b", 12), BusyError("c")])
        callback.on_run_found(todo[1], FOLDER)
    assert said.getvalue().splitlines() == [
        "waiting for process 12, at work on 2 runs of these",
        "[1/2] ERM, north held out, seed 0: another process has made it",
        "waiting for process 12, another process, at work on 2 runs of these",
        "[2/2] ERM, north held out, seed 1: another process has made it; done",
    ]


def test_a_training_whose_process_is_lost_is_still_to_be_made(said, clock):
    chosen = recipe("erm")
    with ProgressBar(planned([chosen]), workers=2) as callback:
        callback.on_run_start(chosen, FOLDER, epochs=5, worker=1)
        callback.on_epoch(epoch(0, 6.0), worker=1)
        callback.on_step(4, 5, worker=1)
        callback.on_run_lost(chosen, "was killed (SIGKILL)", worker=1)
        assert callback.time.seconds == 30.0
    assert said.getvalue().splitlines()[-1] == (
        "ERM, north held out, seed 0: its process was killed (SIGKILL); "
        "the training is tried again, from its last checkpoint"
    )


def test_on_a_screen_every_worker_that_has_something_to_do_has_a_line(screen):
    todo = [recipe("erm", seed=seed) for seed in range(3)]
    with ProgressBar(planned(todo), workers=2) as callback:
        callback.on_step(1, 10, worker=1)  # of a training begun before anybody watched
        for worker in (0, 1):
            callback.on_run_start(todo[worker], FOLDER, epochs=2, worker=worker)
        callback.on_run_end(todo[0], FOLDER, RESULT, worker=0)
        assert callback.progress is not None
        shown = {task.description: task.visible for task in callback.progress.tasks}
        assert shown == {"trainings": True, todo_words(0): False, todo_words(1): True}
        callback.on_run_start(todo[2], FOLDER, epochs=2, worker=0)
        shown = {task.description: task.visible for task in callback.progress.tasks}
        assert shown == {"trainings": True, todo_words(2): True, todo_words(1): True}
        callback.on_run_lost(todo[1], "was killed", worker=1)
        assert [task.visible for task in callback.progress.tasks] == [True, True, False]


def todo_words(seed: int) -> str:
    return f"ERM, north held out, seed {seed}"


# -- on a screen -------------------------------------------------------------------------------------------------------


def test_on_a_screen_there_are_bars_with_labels_letter_by_letter(screen):
    chosen = recipe("gdu", settings={"num_bases": 8}, hold_out="[/]north[red]")
    with ProgressBar(planned([chosen])) as callback:
        callback.on_run_start(chosen, FOLDER, epochs=2)
        callback.on_step(5, 10)
        callback.on_epoch(epoch(0, 9.0))
        assert callback.progress is not None
        callback.progress.refresh()
        callback.on_run_end(chosen, FOLDER, RESULT)
    shown = screen.getvalue()
    assert "GDU [num_bases=8], [/]north[red] held out, seed 0" in shown
    assert "validation 50.0" in shown
    assert "[1/1]" not in shown  # the bars say it


def test_the_bars_go_away_when_a_training_is_stopped(screen):
    def stopped() -> None:
        with ProgressBar(planned([recipe("erm")])) as callback:
            callback.on_run_start(recipe("erm"), FOLDER, epochs=2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert screen.getvalue().endswith("\x1b[2K")
    assert "\x1b[?25h" in screen.getvalue()  # the cursor is back


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (5_900, "98 min"),
        (7_200, "2.0 h"),
    ],
)
def test_a_time_is_said_as_exactly_as_it_is_known(seconds, words):
    assert _duration(float(seconds)) == words
