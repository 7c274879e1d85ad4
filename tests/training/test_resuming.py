"""Cut anywhere and begun again, a training ends as if it had never been cut: to the last bit, with the same records."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cut_workers
import pytest
import torch
from safetensors.torch import load_file

from gated_domains.data.errors import DataError
from gated_domains.runs.folder import RunFolder
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.callbacks.checkpoint import (
    TENSORS,
    Checkpoint,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from small_trainings import Records, build, identical, material, train, training, vectors, weights

needs_forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
CASES = pytest.mark.parametrize("case", cut_workers.CASES)
LAST = cut_workers.STEPS * cut_workers.EPOCHS


@pytest.fixture(scope="module")
def started(tmp_path_factory) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """The process that has trainings killed, begun at once: it takes a while."""
    folder = tmp_path_factory.mktemp("cut")
    command = [sys.executable, cut_workers.__file__, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    yield folder, process
    process.kill()


@pytest.fixture(scope="module")
def uncut() -> dict[str, tuple[dict[str, torch.Tensor], list[dict[str, Any]], dict[str, Any]]]:
    """The weights, records and outcome of each case, trained in one go."""
    found = {}
    for case in cut_workers.CASES:
        journal = Records()
        run = cut_workers.new_training(case, None, journal)
        outcome = run.fit()
        about = {"best_epoch": outcome.best_epoch, "epochs": outcome.epochs, "validation": outcome.validation.as_json()}
        found[case] = weights(run.method), journal.timeless(), about
    return found


@pytest.fixture(scope="module")
def cut(started, uncut) -> Path:
    """What came of the trainings that were killed at every point, by case."""
    folder, process = started
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said[-4000:]
    return folder


@needs_forks
@CASES
def test_killed_and_begun_again_many_times_it_ends_as_if_it_had_never_been_cut(case, cut, uncut):
    folder = cut / case
    expected, records, outcome = uncut[case]
    assert identical(load_file(folder / "weights.safetensors"), expected)
    found = Records(RunFolder(folder).metrics())
    assert found.timeless() == records
    assert [record["step"] for record in found] == [5, 10, 15]
    assert json.loads((folder / "outcome.json").read_text()) == outcome


class CutError(Exception):
    pass


class Watch(ProgressCallback):
    """Cuts a training after a step, and counts those that are taken."""

    def __init__(self, at: int | None = None) -> None:
        self.at, self.steps = at, []

    def on_step(self, step: int, steps: int) -> None:
        self.steps.append(step)
        if step == self.at:
            raise CutError


@CASES
def test_cut_after_any_step_it_ends_as_if_it_had_never_been_cut(case, uncut, tmp_path):
    expected, records, _ = uncut[case]
    journal = Records()
    for step in (1, 3, 5, 6, 10, 14, LAST):
        with pytest.raises(CutError):
            cut_workers.new_training(case, tmp_path, journal, Watch(step)).fit()
    torch.manual_seed(123)  # whatever the new process drew meanwhile
    run = cut_workers.new_training(case, tmp_path, journal)
    run.fit()
    assert identical(weights(run.method), expected)
    assert journal.timeless() == records


def test_no_step_that_was_kept_is_taken_again(uncut, tmp_path):
    with pytest.raises(CutError):
        cut_workers.new_training("gdu", tmp_path, Records(), Watch(8)).fit()
    assert newest_checkpoint(tmp_path).name == "checkpoint-000000007"
    watch = Watch()
    run = cut_workers.new_training("gdu", tmp_path, None, watch)
    run.fit()
    assert watch.steps == list(range(8, LAST + 1))
    assert identical(weights(run.method), uncut["gdu"][0])


def test_what_was_done_is_not_done_again(uncut, tmp_path):
    cut_workers.new_training("erm", tmp_path, Records()).fit()
    watch, journal = Watch(), Records()
    run = cut_workers.new_training("erm", tmp_path, journal, watch)
    outcome = run.fit()
    assert watch.steps == []
    assert identical(weights(run.method), uncut["erm"][0])
    assert outcome.validation.as_json() == uncut["erm"][2]["validation"]


def test_the_time_before_a_cut_counts(tmp_path):
    with pytest.raises(CutError):
        cut_workers.new_training("erm", tmp_path, Records(), Watch(8)).fit()
    newest = newest_checkpoint(tmp_path)
    state = load_checkpoint(newest)
    state["counters"]["seconds"] = 1000.0
    save_checkpoint(tmp_path, 7, state)
    journal = Records()
    outcome = cut_workers.new_training("erm", tmp_path, journal).fit()
    assert 1000 < outcome.seconds < 1100
    assert all(record["seconds"] > 1000 for record in journal)


def test_checkpoints_lie_as_many_seconds_apart_as_was_asked_for(tmp_path):
    data = material(vectors(60), train=40, validation=20)
    train(build("erm", data.dataset), data, checkpoint=Checkpoint(tmp_path, seconds=1e9))
    assert newest_checkpoint(tmp_path) is None
    train(build("erm", data.dataset), data, checkpoint=Checkpoint(tmp_path, seconds=0.0))
    assert newest_checkpoint(tmp_path).name == "checkpoint-000000003"


def test_early_stopping_is_remembered_over_a_cut(tmp_path):
    from gated_domains.evaluation.metrics import SelectionRule

    data = material(vectors(60), train=40, validation=20)
    scores = {0: 5.0, 1: 4.0, 2: 3.0, 3: 2.0}

    def attempt(progress: Watch):
        run = training(
            build("erm", data.dataset), data, epochs=9, patience=3, progress=progress, schedule="constant",
            checkpoint=Checkpoint(tmp_path, seconds=0.0),
            rule=SelectionRule(name="s", words="s", number=lambda evidence: scores[run.epoch]),
        )  # fmt: skip
        return run.fit()

    with pytest.raises(CutError):
        attempt(Watch(3))
    outcome = attempt(Watch())
    assert (outcome.best_epoch, outcome.epochs, outcome.stopped) == (0, 4, "early")


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    with pytest.raises(CutError):
        cut_workers.new_training("erm", folder, Records(), Watch(4)).fit()
    return folder


@pytest.fixture
def folder(begun, tmp_path) -> Path:
    return shutil.copytree(begun, tmp_path / "copy")


@pytest.mark.parametrize("case", ["gdu", "gdu averaged"])
def test_a_checkpoint_of_another_model_is_refused_with_the_cure(case, folder):
    with pytest.raises(
        DataError, match=r"checkpoint-000000003 is of another model \(.*\); delete it to start"
    ) as caught:
        cut_workers.new_training(case, folder, Records()).fit()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_checkpoint_without_averages_is_refused_where_averages_are_asked_for(folder):
    data = material(vectors(120), train=80, validation=30)
    run = training(build("erm", data.dataset), data, ema=0.9, checkpoint=Checkpoint(folder))
    with pytest.raises(DataError, match=r"is of another model .*; delete it to start"):
        run.fit()


def test_a_checkpoint_of_another_optimiser_state_is_refused(folder):
    state = load_checkpoint(newest_checkpoint(folder))
    state["optimizer"]["param_groups"] = state["optimizer"]["param_groups"] * 2
    save_checkpoint(folder, 4, state)
    with pytest.raises(DataError, match=r"is of another model .*; delete it to start"):
        cut_workers.new_training("erm", folder, Records()).fit()


def test_a_checkpoint_of_another_number_of_processes_is_refused_with_the_cure(folder):
    state = load_checkpoint(newest_checkpoint(folder))
    save_checkpoint(folder, 4, {**state, "world": 2})
    with pytest.raises(DataError, match="made by 2 processes, and here are 1: go on with as many, or delete it"):
        cut_workers.new_training("erm", folder, Records()).fit()


def test_a_checkpoint_cut_in_half_is_refused_with_the_cure(folder):
    path = newest_checkpoint(folder) / TENSORS
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"holds [\d,]+ bytes of [\d,]+; delete the folder .* to start this training"):
        cut_workers.new_training("erm", folder, Records()).fit()
