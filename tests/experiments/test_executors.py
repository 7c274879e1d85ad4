"""Grids of runs: each made once whoever makes it, with the numbers of one process, whatever is killed on the way."""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from operator import truediv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

import made_grids
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, fingerprint
from gated_domains.experiments import executors
from gated_domains.experiments.compare import compare
from gated_domains.experiments.executors import (
    ProcessExecutor,
    SerialExecutor,
    base,
    choose_executor,
    default_workers,
)
from gated_domains.experiments.executors import ray as on_ray
from gated_domains.experiments.executors.base import RunQueue
from gated_domains.experiments.executors.processes import _Worker
from gated_domains.experiments.executors.worker import WorkerFaultError, WorkerSpec
from gated_domains.experiments.planner import PlannedRun
from gated_domains.experiments.source_data import SharedData, SourceData
from gated_domains.methods import ERM, METHODS
from gated_domains.runs.folder import RunFolder, all_runs
from gated_domains.runs.storage import BusyError
from gated_domains.training.callbacks.stopping import NotFiniteError
from made_grids import Told, assert_same_runs, grid
from made_runs import CPU, recipe, runner, vectors

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
needs_proc = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")


# -- what may be begun -------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(tmp_path: Path) -> RunQueue:
    return RunQueue(runner(vectors(), tmp_path).planner.plan(grid(seeds=1)), tmp_path)


def names(works: list[Any]) -> list[str]:
    return [f"{work.recipe.method.name} {work.recipe.seed}" for work in works]


def test_every_run_is_planned_once_after_those_that_it_needs(queue):
    assert names(queue.left) == ["erm 0", "linear 0", "erm 1000", "ensemble 0"]
    assert [work.combines for work in queue.left] == [False, False, False, True]


def test_what_needs_others_is_ready_when_they_are_done(queue, tmp_path):
    first, linear, member, _ = queue.left
    assert names(queue.ready) == ["erm 0", "erm 1000"]
    queue.begin(first)
    assert names(queue.ready) == ["erm 1000"]
    queue.finish(first, RunFolder(tmp_path / "erm"))
    assert names(queue.ready) == ["linear 0", "erm 1000"]
    for work in (member, linear):
        queue.begin(work)
        queue.finish(work, RunFolder(tmp_path / work.name))
    assert names(queue.ready) == ["ensemble 0"]


def test_what_others_are_at_waits_until_it_is_looked_at_again(queue):
    for work in queue.ready:
        assert not queue.waits
        queue.begin(work)
        queue.put_back(work, BusyError("folder", 1))
    assert queue.ready == []
    assert queue.waits
    queue.retry_busy()
    assert names(queue.ready) == ["erm 0", "erm 1000"]


def test_a_run_that_is_lost_too_often_is_named(queue):
    work = queue.ready[0]
    for _ in range(2):
        queue.begin(work)
        queue.lose(work, "was killed (SIGKILL)", retries=2)
        assert queue.ready[0] is work
    queue.begin(work)
    with pytest.raises(DataError, match=r"^ERM, north held out, seed 0: .* lost 3 times; the last one was killed"):
        queue.lose(work, "was killed (SIGKILL)", retries=2)


def test_a_run_that_selects_for_another_says_what_it_is_validated_on():
    chosen = recipe("erm", selection="out_of_domain", validation_domain="west", seed=2)
    assert chosen.description == "ERM, north held out, validated on west, seed 2"
    assert recipe("erm", hold_out=None).description == "ERM, all domains, seed 0"


# -- one after the other -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """The grid made by one process, undisturbed."""
    return SerialExecutor(runner(vectors(), tmp_path_factory.mktemp("alone"))).run(grid())


def test_runs_come_in_the_order_of_their_recipes(alone):
    about = [(run.result().to_json()["method"], run.result().to_json()["seed"]) for run in alone]
    assert about == [("linear", 0), ("erm", 0), ("ensemble", 0), ("linear", 1), ("erm", 1), ("ensemble", 1)]
    assert len(all_runs(alone[0].path.parent)) == 8


class LetGo(Told):
    """Holds the folder of a run, as another process would, until it is waited for."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self.lock = folder.lock()
        self.lock.__enter__()

    def on_wait(self, busy: Any) -> None:
        super().on_wait(busy)
        self.lock.__exit__(None, None, None)


def test_a_run_that_another_process_is_at_is_left_for_last_and_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "POLL_SECONDS", 0.0)
    maker = runner(vectors(), tmp_path)
    chosen = [recipe("erm"), recipe("erm", seed=1), recipe("linear")]
    told, before = LetGo(maker.folder(chosen[0])), maker.callback
    runs = SerialExecutor(maker).run(chosen, callback=told)
    first, second, linear = (run.name for run in runs)
    assert [about for what, about in told.heard if what == "ended"] == [second, first, linear]
    assert told.all("waiting") == [os.getpid()]
    assert maker.callback is before


class Elsewhere(LetGo):
    """Where another process makes the run meanwhile."""

    def __init__(self, maker: Any, chosen: Any) -> None:
        super().__init__(maker.folder(chosen))
        self.make = partial(runner(maker.dataset, maker.root).run, chosen)

    def on_wait(self, busy: Any) -> None:
        super().on_wait(busy)
        self.make()


def test_what_another_process_made_meanwhile_is_found_and_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "POLL_SECONDS", 0.0)
    maker, chosen = runner(vectors(), tmp_path), recipe("erm")
    told = Elsewhere(maker, chosen)
    (run,) = SerialExecutor(maker).run([chosen], callback=told)
    assert told.heard == [("waiting", os.getpid()), ("found", run.name)]


def test_who_is_at_work_is_known_in_another_process_too():
    error = pickle.loads(pickle.dumps(BusyError("runs/1a2b", 4711)))
    assert isinstance(error, DataError)
    assert str(error) == "another process (pid 4711) is at work in runs/1a2b; wait for it, or choose another --out"
    assert str(BusyError("runs")) == "another process is at work in runs; wait for it, or choose another --out"


# -- worker processes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessExecutor]:
    """Two of them for all tests: they take seconds to start. Each test has seeds of its own."""
    maker = runner(vectors(), tmp_path_factory.mktemp("workers"), checkpoint_seconds=0.02)
    with ProcessExecutor(maker, workers=2) as executor:
        yield executor


def test_workers_make_the_same_runs_to_the_bit_each_once(workers, alone):
    told = Told()
    assert_same_runs(workers.run(grid(), callback=told), alone)
    assert Counter(told.all("began")) == Counter(told.all("ended"))
    assert len(told.all("ended")) == len(set(told.all("ended"))) == 6  # joining an ensemble is no training
    assert told.all("found") == told.all("lost") == told.all("waiting") == []
    linear, erm = alone[0].name, alone[1].name
    assert told.heard.index(("ended", erm)) < told.heard.index(("began", linear))
    assert told.all("epoch").count(made_grids.EPOCHS - 1) == 6


def test_what_is_done_is_given_to_no_worker(workers, alone):
    told = Told()
    workers.run(grid())
    assert [run.name for run in workers.run(grid(), callback=told)] == [run.name for run in alone]
    assert told.heard == []


class Noting(ERM):
    """Notes about each process that builds it, in a file that is named by its number."""

    name, label = "noting", "Noting"

    @classmethod
    def build(cls, settings: Any, problem: Any, *, mode: Any) -> Any:
        threads = {torch.get_num_threads(), *(library["num_threads"] for library in threadpool_info())}
        about = {"folder": os.getcwd(), "command": sys.argv, "threads": sorted(threads)}
        about["variable"] = os.environ.get("OMP_NUM_THREADS")
        Path(os.environ["GATED_DOMAINS_NOTES"], f"{os.getpid()}.json").write_text(json.dumps(about))
        warnings.warn(f"built in process {os.getpid()}", UserWarning, stacklevel=1)
        return super().build(settings, problem, mode=mode)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ``Noting`` notes something."""
    monkeypatch.setitem(METHODS, "noting", Noting)
    monkeypatch.setenv("GATED_DOMAINS_NOTES", str(tmp_path / "notes"))
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


def other_processes(notes: Path) -> dict[int, dict[str, Any]]:
    """What processes other than this one have noted."""
    found = {int(path.stem): json.loads(path.read_text()) for path in notes.iterdir()}
    return {number: about for number, about in found.items() if number != os.getpid()}


@pytest.mark.filterwarnings("ignore:built in process")
def test_a_worker_computes_with_one_thread_and_knows_folder_command_and_variables(tmp_path, notes, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "argv", ["/somewhere/my-command", "--with", "options"])
    chosen = recipe("noting", training={"batch_size": 300_000})  # so large that all threads there are would be used
    with ProcessExecutor(runner(vectors(), Path("../runs")), workers=1) as executor:
        (run,) = executor.run([chosen])
    (about,) = other_processes(notes).values()  # found by a variable
    assert about == {
        "folder": str(tmp_path / "here"),
        "command": ["/somewhere/my-command", "--with", "options"],
        "threads": [1],
        "variable": "1",
    }
    assert run.path.resolve().parent == tmp_path / "runs"
    assert json.loads((run.path / "environment.json").read_text())["command"][0] == "my-command"


class Killer(Told):
    """Kills the worker that has just begun a run, or ended an epoch of one, so many times."""

    def __init__(self, executor: ProcessExecutor, times: int, at: str) -> None:
        super().__init__()
        self.executor, self.times, self.at = executor, times, at

    def on_run_start(self, recipe: Any, folder: RunFolder, *, epochs: int, worker: int = 0) -> None:
        super().on_run_start(recipe, folder, epochs=epochs, worker=worker)
        self.kill("began", worker)

    def on_epoch(self, record: dict[str, Any], *, worker: int = 0) -> None:
        super().on_epoch(record, worker=worker)
        if record["epoch"] > 1:
            self.kill("epoch", worker)

    def kill(self, at: str, worker: int) -> None:
        if at == self.at and self.times:
            self.times -= 1
            (process,) = (other.process for other in self.executor._team if other.number == worker)
            os.kill(process.pid, signal.SIGKILL)


LONG = {"epochs": 16}


@posix_only
def test_a_worker_killed_in_mid_training_is_replaced_and_its_run_goes_on_to_the_same_bits(workers, tmp_path):
    chosen = [recipe("erm", seed=seed, training=LONG) for seed in (30, 31, 32)]
    told = Killer(workers, 2, "epoch")
    runs = workers.run(chosen, callback=told)
    assert told.all("lost") == ["was killed (SIGKILL), as by a system that is out of memory"] * 2
    assert sorted(told.all("ended")) == sorted(run.name for run in runs)
    assert len(told.all("began")) == 5
    assert_same_runs(runs, SerialExecutor(runner(vectors(), tmp_path)).run(chosen))


@posix_only
def test_a_run_whose_worker_dies_again_and_again_is_named_and_the_others_are_kept(workers, monkeypatch):
    monkeypatch.setattr(workers, "retries", 1)
    with pytest.raises(DataError, match=r"ERM, north held out, seed 40: .* lost 2 times; the last one was killed"):
        workers.run([recipe("erm", seed=40)], callback=Killer(workers, 2, "began"))
    assert len(workers.run([recipe("erm", seed=40)])) == 1


def test_what_cannot_be_trained_is_raised_as_it_is_and_workers_go_on(workers):
    wild = recipe("erm", seed=50, training={"rate": 1e30, "epochs": 20})
    others = [recipe("erm", seed=seed, training=LONG) for seed in (51, 52)]
    before = {worker.process.pid for worker in workers._team}
    with pytest.raises(NotFiniteError, match="rate"):
        workers.run([wild, *others])
    assert all(run.done for run in workers.run(others))
    assert {worker.process.pid for worker in workers._team} >= before


def test_a_run_that_another_process_is_at_is_waited_for(workers):
    told = LetGo(workers.runner.folder(recipe("erm", seed=60)))
    runs = workers.run([recipe("erm", seed=60), recipe("erm", seed=61)], callback=told)
    assert told.all("ended") == [runs[1].name, runs[0].name]
    assert set(told.all("waiting")) == {os.getpid()}  # by each worker that comes by before it is let go


class Interrupted(Told):
    def on_epoch(self, record: dict[str, Any], *, worker: int = 0) -> None:
        raise KeyboardInterrupt


def test_stopped_by_a_person_all_workers_are_gone_and_nothing_is_lost(workers, tmp_path):
    chosen = [recipe("erm", seed=seed, training=LONG) for seed in (70, 71)]
    with pytest.raises(KeyboardInterrupt):
        workers.run(chosen, callback=Interrupted())
    assert workers._team == []
    assert_same_runs(workers.run(chosen), SerialExecutor(runner(vectors(), tmp_path)).run(chosen))


def test_warnings_of_a_worker_come_back(tmp_path, notes):
    with ProcessExecutor(runner(vectors(), tmp_path / "runs"), workers=1) as executor, pytest.warns() as heard:
        executor.run([recipe("noting")])
    (worker,) = other_processes(notes)
    (said,) = [one for one in heard if str(one.message) == f"built in process {worker}"]
    assert (said.category, Path(said.filename).name) == (UserWarning, Path(__file__).name)


class Faulty(ERM):
    """Cannot be built by a worker."""

    name, label = "faulty", "Faulty"

    @classmethod
    def build(cls, settings: Any, problem: Any, *, mode: Any) -> Any:
        if multiprocessing.parent_process() is not None:
            truediv(1, 0)
        return super().build(settings, problem, mode=mode)


def test_a_fault_in_a_worker_is_told_with_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "faulty", Faulty)
    with (
        ProcessExecutor(runner(vectors(), tmp_path), workers=1) as executor,
        pytest.raises(WorkerFaultError, match=r"(?s)Faulty, north held out, seed 0.*in build.*ZeroDivisionError"),
    ):
        executor.run([recipe("faulty")])


class OfAScript(Noting):
    """A method that nobody has registered."""

    name, label = "of-a-script", "Of a script"


@pytest.mark.filterwarnings("ignore:built in process")
def test_workers_train_a_method_of_a_script(tmp_path, notes):
    shared = {"hold_out": "north", "seeds": 2, "training": {"epochs": 1}, "out": tmp_path / "runs"}
    try:
        found = compare(vectors(), methods=[OfAScript, "erm"], **shared, hardware=CPU, workers=2, progress=False)
    finally:
        METHODS.pop("of-a-script", None)
    made = sorted((result.method, result.label, result.seed) for result in found.runs.results)
    named = [("erm", "ERM"), ("of-a-script", "Of a script")]
    assert made == [(*names, seed) for names in named for seed in (0, 1)]
    assert 1 <= len(other_processes(notes)) <= 2
    assert "Of a script" in str(found)


class Unreadable:
    """Cannot be unpickled."""

    def __reduce__(self) -> Any:
        return truediv, (1, 0)


def test_work_that_a_worker_cannot_read_is_a_fault_and_does_not_end_it(workers):
    worker = _Worker(0, workers.spec, SharedData(workers.runner.data))
    worker.connection.send(Unreadable())
    heard: list[Any] = []
    while len(heard) < 2:
        wait([worker.connection])
        heard += worker.messages()
    assert "ZeroDivisionError" in heard[1].traceback
    assert worker.process.is_alive()
    worker.end()


class Deadly(WorkerSpec):
    """Ends a process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


def test_workers_that_do_not_come_up_are_not_started_for_ever(tmp_path):
    with ProcessExecutor(runner(vectors(), tmp_path), workers=1, retries=1) as executor:
        executor.spec = Deadly.of(executor.runner)
        with pytest.raises(DataError, match=r"as soon as they are .*; the last one ended with exit code 3.*__main__"):
            executor.run([recipe("erm")])


@needs_proc
def test_closed_no_process_is_left(workers):
    worker = _Worker(0, workers.spec, SharedData(workers.runner.data))
    assert Path(f"/proc/{worker.process.pid}").exists()
    worker.end()
    assert not Path(f"/proc/{worker.process.pid}").exists()


# -- data that all workers share ---------------------------------------------------------------------------------------


def mapping_of(array: np.ndarray) -> object:
    """What the numbers of an array lie in, however many arrays stand between."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) else owner


@posix_only
def test_shared_arrays_are_mapped_and_not_copied_from_a_file_that_has_no_name(tmp_path, monkeypatch):
    data = SourceData(vectors(3_000))
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        shared = SharedData(data)
    assert list(tmp_path.iterdir()) == []
    size = data.dataset.inputs.values.nbytes + data.dataset.targets.nbytes + data.dataset.domains.nbytes
    assert os.fstat(shared.file.fileno()).st_size >= size
    sent = ForkingPickler.dumps(shared)
    assert len(sent) < size / 10
    one, other = pickle.loads(sent), pickle.loads(ForkingPickler.dumps(shared))
    shared.close()  # with workers at work, as where a run could not be made
    for name in ("targets", "domains"):
        assert isinstance(mapping_of(getattr(one.dataset, name)), mmap.mmap)
        np.testing.assert_array_equal(getattr(one.dataset, name), getattr(data.dataset, name))
    assert isinstance(mapping_of(one.dataset.inputs.values), mmap.mmap)
    assert isinstance(mapping_of(one.digests), mmap.mmap)
    one.dataset.targets[:] = 7  # for this process alone
    np.testing.assert_array_equal(other.dataset.targets, data.dataset.targets)
    assert list(tmp_path.iterdir()) == []


@posix_only
@pytest.mark.parametrize("way", ["columns of a larger array", "column by column", "on disk"])
def test_arrays_are_shared_however_they_lie(tmp_path, way):
    values = np.random.default_rng(0).normal(size=(3_000, 4)).astype(np.float32)
    np.save(tmp_path / "values.npy", values)
    given = {
        "columns of a larger array": np.repeat(values, 2, axis=1)[:, ::2],
        "column by column": np.asfortranarray(values),
        "on disk": np.load(tmp_path / "values.npy", mmap_mode="r"),
    }
    data = vectors(3_000)
    shared = SharedData(SourceData(data.with_inputs(Features(given[way]))))
    sent = ForkingPickler.dumps(shared)
    assert len(sent) < values.nbytes / 10
    received = pickle.loads(sent).dataset.inputs.values
    shared.close()
    assert isinstance(mapping_of(received), mmap.mmap)
    np.testing.assert_array_equal(received, values)


def say_back(connection: Connection, data: SourceData) -> None:
    """In another process: the run that is sent, the name of the data, and the name that their content gives them."""
    connection.send((connection.recv(), data.fingerprint, fingerprint(data.dataset, data.dataset.inputs.digests())))


def test_a_worker_receives_a_planned_run_and_the_data_unchanged(tmp_path):
    maker = runner(vectors(), tmp_path)
    plan = maker.planner.plan([recipe("linear")])
    sent = plan.runs[plan.asked[0]]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=say_back, args=(theirs, SharedData(maker.data)))
    process.start()
    ours.send(sent)
    received, named, found = ours.recv()
    process.join()
    assert named == found == maker.data.fingerprint
    assert isinstance(received, PlannedRun)
    for name in ("name", "recipe", "identity", "data", "split_hash", "needs", "domain_sizes", "rows_per_domain"):
        assert getattr(received, name) == getattr(sent, name)
    assert received.needs
    assert received.recipe.method.kind is sent.recipe.method.kind
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(received.split, part), getattr(sent.split, part))


def test_a_planned_run_is_sent_without_the_data(tmp_path):
    data = vectors()
    wide = data.with_inputs(type(data.inputs)(np.tile(data.inputs.values, 200)))
    run = runner(wide, tmp_path).planner.run(recipe("erm"))
    assert len(pickle.dumps(run)) < wide.inputs.nbytes / 10


# -- killed from outside -----------------------------------------------------------------------------------------------


def started(folder: Path, workers: str) -> subprocess.Popen[str]:
    command = [sys.executable, made_grids.__file__, str(folder), workers]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def heard(process: subprocess.Popen[str], until: str = "all done") -> list[str]:
    """What a process says, until it has said something that begins so."""
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.strip())
        if line.startswith(until):
            break
    return lines


def ended(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("ended")]


def workers_of(pid: int) -> set[int]:
    """The processes whose parent is a child of this one: those of its server of forks."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    return {child for child, parent in parents.items() if parents.get(parent) == pid}


@pytest.mark.slow
@posix_only
@needs_proc
def test_a_grid_whose_parent_is_killed_leaves_nobody_at_work_and_goes_on_without_a_lost_or_doubled_run(
    tmp_path, alone
):  # fmt: skip
    parent = started(tmp_path, "2")
    first = ended(heard(parent, "ended"))
    at_work = workers_of(parent.pid)
    assert len(at_work) == 2
    parent.send_signal(signal.SIGKILL)
    first += ended(heard(parent))
    parent.wait()
    for _ in range(200):
        if not any(Path(f"/proc/{pid}").exists() for pid in at_work):
            break
        time.sleep(0.05)
    else:
        pytest.fail("workers outlive their parent")
    done = {run.name for run in all_runs(tmp_path) if run.done}
    again = started(tmp_path, "2")
    second = ended(heard(again))
    assert again.wait() == 0
    assert not done & set(second)  # the last one may have ended without a word
    assert set(first) <= done
    assert len(second) == len(set(second))
    assert_same_runs(SerialExecutor(runner(vectors(), tmp_path)).run(grid()), alone)


@pytest.mark.slow
@posix_only
def test_two_commands_on_one_folder_share_the_work(tmp_path, alone):
    both = [started(tmp_path, workers) for workers in ("1", "2")]
    said = [heard(process) for process in both]
    assert [process.wait() for process in both] == [0, 0]
    made = [name for lines in said for name in ended(lines)]
    assert len(made) == len(set(made)) == 6
    assert_same_runs(SerialExecutor(runner(vectors(), tmp_path)).run(grid()), alone)


# -- which, and how many -----------------------------------------------------------------------------------------------


@pytest.fixture
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(executors, "_cores", lambda: 4)
    monkeypatch.setattr(executors, "available_bytes", lambda: 64 * 2**30)
    return runner(vectors(), tmp_path)


def test_there_are_as_many_workers_as_cores_or_trainings(maker):
    assert [default_workers(maker, trainings) for trainings in (0, 1, 3, 9)] == [1, 1, 3, 4]


def test_where_data_do_not_fit_so_often_there_are_fewer(maker, monkeypatch):
    monkeypatch.setattr(executors, "available_bytes", lambda: 1100 * 2**20)
    assert default_workers(maker, 9) == 2
    monkeypatch.setattr(executors, "available_bytes", lambda: 0)
    assert default_workers(maker, 9) == 1


def test_under_torchrun_and_on_a_gpu_there_is_one(maker, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(type(maker), "device", "cuda")
        assert default_workers(maker, 9) == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert default_workers(maker, 9) == 1
    with pytest.raises(DataError, match="torchrun has started 2 processes already; leave --workers out"):
        choose_executor(maker, 9, workers=3)


def test_the_executor_is_what_was_asked_for(maker):
    assert isinstance(choose_executor(maker, 1), SerialExecutor)
    assert isinstance(choose_executor(maker, 9, workers=1), SerialExecutor)
    chosen = choose_executor(maker, 1, workers=7, retries=5)
    assert isinstance(chosen, ProcessExecutor)
    assert (chosen.workers, chosen.retries) == (7, 5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executor": "rays"}, "no executor 'rays'; did you mean 'ray'"),
        ({"address": "auto"}, "--address auto is for a Ray cluster; add --executor ray"),
        ({"cpus_per_run": 2.0}, "--cpus-per-run 2.0 is for a Ray cluster"),
        ({"executor": "ray", "workers": 2}, "with Ray, --cpus-per-run says how many fit"),
        ({"retries": -1}, "retries must be 0 or more, got -1"),
        ({"workers": 0}, "at least one worker, got 0"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, dict) else "",
)
def test_options_that_make_no_sense_are_refused(maker, options, words):
    with pytest.raises(DataError, match=words):
        choose_executor(maker, 9, **options)


def test_without_ray_it_is_said_how_to_get_it(maker, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DataError, match=r"Ray is not installed; pip install 'gated-domains\[ray\]'"):
        choose_executor(maker, 9, executor="ray")


def test_an_address_where_nobody_listens_is_refused_at_once():
    with pytest.raises(DataError, match=r"^no Ray cluster can be used at ray://127\.0\.0\.1:1: "):
        on_ray._refuse_nobody("ray://127.0.0.1:1")
    on_ray._refuse_nobody("auto")


def test_a_machine_of_a_cluster_that_does_not_see_the_folder_says_so(maker, tmp_path):
    spec, run = ProcessExecutor(maker, workers=1).spec, maker.planner.run(recipe("erm"))
    outcome = on_ray._task(spec, maker.data, str(tmp_path / "token"), 1.0, run)
    with pytest.raises(DataError, match="all machines of the cluster must see the same: choose --out on a disk"):
        raise outcome.error
