"""The same grid on a Ray cluster: the numbers of one process, whatever is killed on the way."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import made_grids
from gated_domains.data.errors import DataError
from gated_domains.experiments.executors import RayExecutor, SerialExecutor
from gated_domains.runs.folder import RunFolder, all_runs
from gated_domains.training.callbacks.stopping import NotFiniteError
from made_grids import Told, assert_same_runs, grid
from made_runs import assert_refused, call, recipe, runner, table, vectors

pytestmark = pytest.mark.extras

LONG = {"epochs": 40}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayExecutor]:
    """One for all tests, which takes seconds to start. Each test has seeds of its own."""
    pytest.importorskip("ray")
    maker = runner(vectors(), tmp_path_factory.mktemp("ray"), checkpoint_seconds=0.0)
    with RayExecutor(maker) as executor:
        yield executor


def test_a_cluster_makes_the_same_runs_to_the_bit_each_once_and_tells_of_their_ends(cluster, tmp_path):
    told = Told()
    runs = cluster.run(grid(), callback=told)
    assert_same_runs(runs, SerialExecutor(runner(vectors(), tmp_path)).run(grid()))
    assert {what for what, _ in told.heard} == {"ended"}
    assert len(told.heard) == len(set(told.heard)) == 6
    linear, erm = runs[0].name, runs[1].name
    assert told.all("ended").index(erm) < told.all("ended").index(linear)


def killing(folder: RunFolder, times: int) -> threading.Thread:
    """Kill the process at work in a folder so many times, each time when it has ended two more epochs."""

    def kill() -> None:
        for number in range(times):
            while len(folder.metrics()) < 2 * (number + 1):
                time.sleep(0.01)
            os.kill(int((folder.path / ".lock").read_text()), signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def test_a_process_of_the_cluster_killed_in_mid_training_is_replaced_and_the_run_goes_on(cluster, tmp_path):
    chosen = [recipe("erm", seed=seed, training=LONG) for seed in (10, 11)]
    thread, told = killing(cluster.runner.folder(chosen[0]), 2), Told()
    runs = cluster.run(chosen, callback=told)
    thread.join()
    assert len(told.all("lost")) == 2
    assert sorted(told.all("ended")) == sorted(run.name for run in runs)
    assert_same_runs(runs, SerialExecutor(runner(vectors(), tmp_path)).run(chosen))


@pytest.mark.slow
def test_a_run_that_is_lost_too_often_is_named(cluster, monkeypatch):
    monkeypatch.setattr(cluster, "retries", 0)
    chosen = recipe("erm", seed=20, training=LONG)
    killing(cluster.runner.folder(chosen), 1)
    with pytest.raises(DataError, match=r"ERM, north held out, seed 20: the process that trained it was lost 1 time"):
        cluster.run([chosen])
    assert cluster.run([chosen])[0].done


def test_what_cannot_be_trained_is_raised_as_it_is_and_the_cluster_goes_on(cluster):
    other = recipe("erm", seed=31)
    with pytest.raises(NotFiniteError, match="rate"):
        cluster.run([recipe("erm", seed=30, training={"rate": 1e30, "epochs": 20}), other])
    assert cluster.run([other])[0].done


def test_a_run_that_another_process_is_at_is_waited_for(cluster):
    chosen, told = recipe("erm", seed=40), Told()
    with cluster.runner.folder(chosen).lock():
        done: list[RunFolder] = []
        thread = threading.Thread(target=lambda: done.extend(cluster.run([chosen], callback=told)), daemon=True)
        thread.start()
        until(lambda: bool(told.all("waiting")))
        assert told.all("waiting")[0] == os.getpid()
    thread.join()
    assert done[0].done


def until(happened: Callable[[], bool]) -> None:
    for _ in range(1200):
        if happened():
            return
        time.sleep(0.05)
    pytest.fail("nothing happens")


def test_a_run_that_asks_for_more_than_there_is_is_refused(cluster):
    asking = RayExecutor(cluster.runner, cpus=1000.0)
    with pytest.raises(DataError, match="a run is to have 1000 CPUs and 0 GPUs, and this machine has less"):
        asking.__enter__()


def test_a_grid_whose_driver_is_killed_goes_on_without_a_lost_or_doubled_run(tmp_path):
    command = [sys.executable, made_grids.__file__, str(tmp_path), "ray"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline().startswith("ended")
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    done = {run.name for run in all_runs(tmp_path) if run.done}
    again = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=240, check=True)
    made = [line.split()[1] for line in again.stdout.splitlines() if line.startswith("ended")]
    assert len(made) == len(set(made))
    assert not done & set(made)
    assert all(run.done for run in all_runs(tmp_path))
    assert len(all_runs(tmp_path)) == 8


def scores(root: Path) -> list[dict[str, str]]:
    with open(root / "runs.csv", newline="") as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


@pytest.mark.slow
def test_the_command_gives_the_same_table(cluster, tmp_path, without_shape_checks):
    asked = ("compare", table(tmp_path / "clinic.csv"), "--target", "sick", "--domain", "site", "--device", "cpu",
             "--no-report", "--epochs", 2, "--seeds", 1, "--methods", "gdu[num_bases=3],linear")  # fmt: skip
    for name, options in {"one": ("--workers", 1), "ray": ("--executor", "ray", "--cpus-per-run", 1)}.items():
        done = call(*asked, *options, "--out", tmp_path / name)
        assert done.code == 0, done
    assert scores(tmp_path / "one") == scores(tmp_path / "ray")
    assert_refused(call(*asked, "--executor", "ray", "--cpus-per-run", 0, "--out", tmp_path / "no"), "share of CPUs")
