"""A run on disk: found again by its recipe, never half-written, wherever it is cut off."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.runs import folder as module
from gated_domains.runs.folder import FORMAT, RunFolder, all_runs, open_run_folder
from made_runs import made_up_result

RECIPE = {"method": {"name": "gdu", "kappa": 2.0}, "seed": 0, "hold_out": ["mnist"]}
DATA = {"name": "digits", "fingerprint": "abc"}
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.open(tmp_path / "runs", RECIPE, data=DATA)


def finished(root: Path, **changes: Any) -> RunFolder:
    run = RunFolder.open(root, {**RECIPE, **changes}, data=DATA)
    run.finish(made_up_result(method="gdu", held_out=("mnist",), test={"mnist": 0.9}))
    return run


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def changed(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def python(script: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Another process with our names at hand."""
    start = "import os, sys, time\nfrom gated_domains.runs.folder import *\nimport numpy as np\n"
    command = [sys.executable, "-c", start + textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


# -- made and found again ----------------------------------------------------------------------------------------------


def test_the_recipe_and_the_data_are_written_first(run):
    assert left_in(run.path) == ["run.json"]
    assert json.loads((run.path / "run.json").read_text()) == {
        "format": FORMAT,
        "run": run.path.name,
        "recipe": RECIPE,
        "data": DATA,
    }
    assert run.recipe() == RECIPE
    assert not run.done


def test_the_same_recipe_on_the_same_data_finds_the_same_folder(run):
    before = (run.path / "run.json").stat().st_mtime_ns
    again = RunFolder.open(run.path.parent, dict(reversed(RECIPE.items())), data=DATA)
    assert again.path == run.path
    assert (run.path / "run.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("recipe", "data"), [({**RECIPE, "seed": 1}, DATA), (RECIPE, {**DATA, "fingerprint": "changed"})]
)
def test_another_recipe_or_other_data_have_their_own_folder(run, recipe, data):
    assert RunFolder.find(run.path.parent, recipe, data=data) is None
    assert RunFolder.open(run.path.parent, recipe, data=data).path != run.path
    assert len(all_runs(run.path.parent)) == 2


def test_looking_for_a_run_makes_nothing(tmp_path):
    assert RunFolder.find(tmp_path / "runs", RECIPE, data=DATA) is None
    assert left_in(tmp_path) == []


def test_tuples_in_a_recipe_are_lists(tmp_path):
    first = RunFolder.open(tmp_path, {"hold_out": ("a", "b")}, data=DATA)
    assert RunFolder.open(tmp_path, {"hold_out": ["a", "b"]}, data=DATA).path == first.path
    assert first.recipe() == {"hold_out": ["a", "b"]}


@pytest.mark.parametrize("theirs", [0, 2, "1", None])
def test_a_folder_of_another_version_is_refused_with_the_cure(run, theirs):
    changed(run.path / "run.json", format=theirs)
    with pytest.raises(DataError) as caught:
        RunFolder.open(run.path.parent, RECIPE, data=DATA)
    said = str(caught.value)
    assert str(run.path) in said
    assert f"has format {theirs!r}, this version reads {FORMAT}" in said
    assert "choose another --out, or delete" in said


def test_a_folder_that_holds_another_recipe_is_refused(run):
    changed(run.path / "run.json", recipe={**RECIPE, "seed": 5})
    with pytest.raises(DataError, match="holds a run of another recipe; choose another --out, or delete"):
        RunFolder.open(run.path.parent, RECIPE, data=DATA)


def test_a_run_json_cut_anywhere_or_without_its_parts_is_refused(run):
    path = run.path / "run.json"
    whole = path.read_bytes()
    for length in range(0, len(whole) - 2, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"run\.json: .* delete the folder"):
            RunFolder.open(run.path.parent, RECIPE, data=DATA)
    for other in (b"[]", b'{"format": 1}', b"\xff\xfe", b'{"format": NaN}', b"[" * 100_000):
        path.write_bytes(other)
        with pytest.raises(DataError, match="delete the folder"):
            RunFolder.open(run.path.parent, RECIPE, data=DATA)


def test_a_folder_cut_off_at_birth_is_used(run):
    (run.path / "run.json").unlink()
    (run.path / ".run.123-0a1b2c3d.json").write_text("half")
    assert RunFolder.open(run.path.parent, RECIPE, data=DATA).recipe() == RECIPE


def test_a_folder_of_something_else_is_left_alone(run):
    (run.path / "run.json").rename(run.path / "mine.txt")
    with pytest.raises(DataError, match=r"not empty, but there is no run\.json in it"):
        RunFolder.open(run.path.parent, RECIPE, data=DATA)
    assert left_in(run.path) == ["mine.txt"]


# -- metrics -----------------------------------------------------------------------------------------------------------


def record(step: int) -> dict[str, Any]:
    return {"epoch": step // 10, "step": step, "train": {"task": 1 / step, "reconstruction": 0.5}, "note": "zwölf\n"}


def test_metrics_are_read_back_in_order(run):
    assert run.metrics() == []
    records = [record(step) for step in (10, 20, 30)]
    for one in records:
        run.append_metrics(one)
    assert run.metrics() == records
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) == 3


def test_what_is_no_number_becomes_null_and_what_numpy_made_becomes_plain(run):
    run.append_metrics({"step": 1, "a": math.nan, "b": [math.inf], "c": {"d": np.float32(0.5), "e": np.int64(3)}})
    assert run.metrics() == [{"step": 1, "a": None, "b": [None], "c": {"d": 0.5, "e": 3}}]
    assert "NaN" not in (run.path / "metrics.jsonl").read_text()


def test_a_last_line_cut_anywhere_is_dropped_and_does_not_spoil_the_next(run):
    path = run.path / "metrics.jsonl"
    run.append_metrics(record(10))
    start = len(path.read_bytes())
    run.append_metrics(record(20))
    whole = path.read_bytes()
    for length in range(start, len(whole)):
        path.write_bytes(whole[:length])
        assert run.metrics() == [record(10)]
        run.append_metrics(record(30))
        assert run.metrics() == [record(10), record(30)]


def test_records_after_the_checkpoint_are_dropped_when_a_run_goes_on(run):
    for step in (10, 20, 30):
        run.append_metrics(record(step))
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "cu')
    run.keep_metrics(20)
    assert run.metrics() == [record(10), record(20)]
    assert (run.path / "metrics.jsonl").read_text().endswith("\n")
    run.keep_metrics(0)
    assert run.metrics() == []


def test_a_run_without_metrics_has_none_to_drop(run):
    run.keep_metrics(10)
    assert left_in(run.path) == ["run.json"]


def test_a_damaged_line_in_the_middle_is_refused_with_its_number(run):
    for damage in ('{"step": 20, "a"', "[1]", '{"epoch": 1}', ""):
        (run.path / "metrics.jsonl").write_text(f'{{"step": 10}}\n{damage}\n{{"step": 30}}\n')
        with pytest.raises(DataError, match=r"metrics\.jsonl, line 2: .*delete the folder"):
            run.metrics()


def test_a_record_without_a_step_is_refused(run):
    with pytest.raises(ValueError, match="needs its step as a whole number, got None"):
        run.append_metrics({"epoch": 1})
    assert run.metrics() == []


# -- predictions and results -------------------------------------------------------------------------------------------


def test_predictions_come_back_as_they_were(run):
    arrays = {
        "rows": np.arange(3),
        "output": np.random.default_rng(0).random((3, 2), np.float32),
        "names": np.array(["a", "é", "c"]),
    }
    run.write_predictions(**arrays)
    found = run.predictions()
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_python_objects_are_neither_written_nor_read(run):
    with pytest.raises(TypeError, match="beta holds Python objects"):
        run.write_predictions(beta=np.array([{}, None]))
    np.savez(run.path / "predictions.npz", beta=np.array([{}, None]))
    with pytest.raises(DataError, match="never read"):
        run.predictions()


def test_predictions_that_are_missing_or_cut_are_refused_with_the_cure(run):
    with pytest.raises(DataError, match=r"predictions\.npz is missing; delete the folder"):
        run.predictions()
    run.write_predictions(output=np.ones((20, 3)))
    path = run.path / "predictions.npz"
    whole = path.read_bytes()
    for length in range(0, len(whole), 31):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"predictions\.npz.* delete the folder"):
            run.predictions()


def test_a_run_is_done_when_its_result_is_there_and_its_checkpoints_go(run):
    (run.path / "checkpoint-000000010").mkdir()
    (run.path / "checkpoint-000000010" / "state.json").write_text("{}")
    (run.path / ".checkpoint-99-0a1b2c3d").mkdir()
    assert [path.name for path in run.checkpoints] == ["checkpoint-000000010"]
    made = made_up_result(method="gdu", selection_score=math.nan)
    run.finish(made)
    assert run.done
    assert run.result() == replace(made, run=run.name, selection_score=None)
    stored = json.loads((run.path / "result.json").read_text())
    assert (stored["format"], stored["run"], stored["selection_score"]) == (FORMAT, run.name, None)
    assert left_in(run.path) == ["result.json", "run.json"]


def test_cut_off_before_the_checkpoints_went_they_go_the_next_time(run, monkeypatch):
    (run.path / "checkpoint-000000010").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run.finish(made_up_result())
    assert run.done
    assert RunFolder.open(run.path.parent, RECIPE, data=DATA).checkpoints == []


def test_cut_off_before_the_result_was_whole_the_checkpoints_stay(run, monkeypatch):
    (run.path / "checkpoint-000000010").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run.finish(made_up_result())
    assert not run.done
    assert left_in(run.path) == ["checkpoint-000000010", "run.json"]


def test_a_damaged_result_is_no_result(run):
    run.finish(made_up_result(method="gdu"))
    for damage in ("", '{"method": ', "[]", '{"format": 99}'):
        (run.path / "result.json").write_text(damage)
        assert not run.done
        with pytest.raises(DataError, match="delete"):
            run.result()


# -- cut off anywhere --------------------------------------------------------------------------------------------------


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refused(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


WRITERS = {
    "json": lambda run: run.write_json("environment.json", {"torch": "3"}),
    "predictions": lambda run: run.write_predictions(output=np.zeros(5)),
    "metrics": lambda run: run.append_metrics(record(20)),
    "kept metrics": lambda run: run.keep_metrics(5),
    "result": lambda run: run.finish(made_up_result(method="other")),
}


@pytest.mark.parametrize("fault", [interrupt, full, refused])
@pytest.mark.parametrize(
    ("writer", "call"),
    # nothing is moved when a line is added
    [(writer, call) for writer in WRITERS for call in ("fsync", "replace") if (writer, call) != ("metrics", "replace")],
)
def test_a_fault_while_writing_passes_through_and_leaves_all_as_it_was(run, monkeypatch, writer, fault, call):
    run.write_json("environment.json", {"torch": "2"})
    run.write_predictions(output=np.ones(5))
    run.append_metrics(record(10))
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    monkeypatch.setattr(os, call, fault)
    with pytest.raises((KeyboardInterrupt, OSError)):
        WRITERS[writer](run)
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


@pytest.mark.parametrize("fault", [interrupt, full, refused])
def test_a_fault_while_a_folder_is_made_leaves_one_that_can_be_made(tmp_path, monkeypatch, fault):
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fault)
        with pytest.raises((KeyboardInterrupt, OSError)):
            RunFolder.open(tmp_path, RECIPE, data=DATA)
    assert RunFolder.open(tmp_path, RECIPE, data=DATA).recipe() == RECIPE


@posix_only
def test_a_disk_that_fills_up_in_the_middle_of_a_line_leaves_the_lines_before(run):
    script = """
        import resource
        run = RunFolder(sys.argv[1])
        run.append_metrics({"step": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        for write in (
            lambda: run.append_metrics({"step": 2, "long": "x" * 500}),
            lambda: run.write_json("environment.json", {"long": "x" * 500}),
            lambda: run.write_predictions(output=np.ones(500)),
        ):
            try:
                write()
            except OSError as error:
                print(os.path.basename(error.filename))
    """
    said, _ = python(script, run.path).communicate()
    assert said.split() == ["metrics.jsonl", "environment.json", "predictions.npz"]
    assert run.metrics() == [{"step": 1}]
    assert left_in(run.path) == ["metrics.jsonl", "run.json"]


@posix_only
def test_killed_at_any_moment_everything_can_be_read_and_work_goes_on(tmp_path):
    script = """
        run = RunFolder.open(sys.argv[1], {"seed": 0}, data={})
        with run.lock():
            step = len(run.metrics())
            run.keep_metrics(step)
            while True:
                step += 1
                run.append_metrics({"step": step, "long": "x" * 5000})
                run.write_json("environment.json", {"step": step, "long": ["x"] * 2000})
                run.write_predictions(step=np.full(20_000, step))
                print("a step", flush=True)
    """
    chance, done = random.Random(0), 0
    for _ in range(3):
        worker = python(script, tmp_path)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "a step\n"
        time.sleep(0.1 * chance.random())
        worker.kill()
        worker.wait()
        run = RunFolder.open(tmp_path, {"seed": 0}, data={})
        steps = [one["step"] for one in run.metrics()]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) > done
        done = len(steps)
        assert done - 1 <= json.loads((run.path / "environment.json").read_text())["step"] <= done
        assert set(run.predictions()["step"]) <= {done - 1, done}
    with run.lock():
        assert left_in(run.path) == [".lock", "environment.json", "metrics.jsonl", "predictions.npz", "run.json"]


# -- one worker at a time ----------------------------------------------------------------------------------------------

HOLDER = """
    with RunFolder(sys.argv[1]).lock():
        print(os.getpid(), flush=True)
        time.sleep(60)
"""


@posix_only
def test_a_folder_at_work_is_refused_until_its_worker_ends_even_by_a_kill(run):
    holder = python(HOLDER, run.path)
    assert holder.stdout is not None
    pid = int(holder.stdout.readline())
    try:
        with pytest.raises(DataError) as caught, run.lock():
            pass
        assert f"another process (pid {pid}) is at work in {run.path}; wait for it, or choose" in str(caught.value)
    finally:
        os.kill(pid, signal.SIGKILL)
        holder.wait()
    with run.lock():
        pass


def test_the_lock_is_let_go_of_at_the_end_and_after_an_error(run):
    with pytest.raises(RuntimeError), run.lock():
        raise RuntimeError
    with run.lock():
        assert (run.path / ".lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(DataError, match="is at work in"), RunFolder(run.path).lock():
            pass
    with run.lock():
        pass


def test_two_folders_are_worked_in_at_once(run):
    other = RunFolder.open(run.path.parent, {**RECIPE, "seed": 1}, data=DATA)
    with run.lock(), other.lock():
        pass


@posix_only
def test_a_forked_child_does_not_keep_the_lock_of_a_worker_that_was_killed(run):
    script = """
        with RunFolder(sys.argv[1]).lock():
            child = os.fork()
            if child == 0:
                print(os.getpid(), flush=True)
                os.close(1)
            time.sleep(60)
    """
    worker = python(script, run.path)
    assert worker.stdout is not None
    child = int(worker.stdout.readline())
    worker.kill()
    worker.wait()
    try:
        os.kill(child, 0)  # it lives
        with run.lock():
            pass
    finally:
        os.kill(child, signal.SIGKILL)


@posix_only
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_does_not_stop_work(code, run, monkeypatch, recwarn):
    import fcntl

    def no_locks(*args: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with run.lock():
        pass
    assert not [caught for caught in recwarn if "flock" in str(caught.message)]


@posix_only
def test_a_folder_that_cannot_be_locked_for_another_reason_is_an_error(run, monkeypatch):
    import fcntl

    def broken(*args: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)), run.lock():
        pass


@posix_only
def test_a_forked_child_that_leaves_the_lock_does_not_release_it_for_its_parent(run):
    script = """
        with RunFolder(sys.argv[1]).lock():
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                print(os.getpid(), flush=True)
                time.sleep(60)
    """
    worker = python(script, run.path)
    assert worker.stdout is not None
    try:
        assert int(worker.stdout.readline()) == worker.pid
        with pytest.raises(DataError, match=rf"pid {worker.pid}\) is at work in"), run.lock():
            pass
    finally:
        worker.kill()
        worker.wait()


def test_drafts_of_a_worker_that_was_killed_are_swept_up_and_nothing_else(run):
    for name in (".environment.12-0a1b2c3d.json", ".metrics.12-0a1b2c3d.jsonl", ".gitignore", "notes.txt"):
        (run.path / name).write_text("")
    with run.lock():
        assert left_in(run.path) == [".gitignore", ".lock", "notes.txt", "run.json"]


# -- named by people ---------------------------------------------------------------------------------------------------


def test_a_run_is_opened_by_its_folder_or_its_first_letters(tmp_path, monkeypatch):
    run = finished(tmp_path / "runs")
    assert open_run_folder(run.path).path == run.path
    assert open_run_folder(f"{run.path}/").result().to_json()["method"] == "gdu"
    assert open_run_folder(tmp_path / "runs" / run.name[:3]).path == run.path
    monkeypatch.chdir(run.path)
    assert open_run_folder(".").result().to_json()["method"] == "gdu"


def test_letters_that_several_runs_begin_with_are_refused_with_their_names(tmp_path):
    run = finished(tmp_path)
    shutil.copytree(run.path, tmp_path / f"{run.name[:4]}00000000")
    with pytest.raises(DataError, match=f"may be any of .*{run.name}.*; give more letters"):
        open_run_folder(tmp_path / run.name[:4])
    assert open_run_folder(run.path).path == run.path


def test_a_run_that_is_not_there_is_refused_with_a_near_name(tmp_path):
    run = finished(tmp_path / "runs")
    wrong = "x" + run.name[1:]
    with pytest.raises(DataError, match=f"there is no such run in .*runs; did you mean '{run.name}'"):
        open_run_folder(tmp_path / "runs" / wrong)
    with pytest.raises(DataError, match=r"there is no folder .*rums; check the spelling"):
        open_run_folder(tmp_path / "rums" / run.name)


def test_what_is_no_run_is_refused_in_words(tmp_path):
    run = finished(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty is no run: there is no run\.json in it"):
        open_run_folder(tmp_path / "empty")
    with pytest.raises(DataError, match=f"runs is no run, but holds some; name one of them: {run.name}"):
        open_run_folder(tmp_path / "runs")
    with pytest.raises(DataError, match=r"result\.json is a file; give the folder of a run"):
        open_run_folder(run.path / "result.json")


def test_a_run_under_way_is_refused_with_how_far_it_is(run):
    with pytest.raises(DataError, match="is not finished: no epoch is done; start the same command to go on"):
        open_run_folder(run.path)
    run.append_metrics(record(10))
    with pytest.raises(DataError, match=r"is not finished: 1 epoch is done \(step 10\)"):
        open_run_folder(run.path)
    run.append_metrics(record(20))
    with pytest.raises(DataError, match=r"is not finished: 2 epochs are done \(step 20\)"):
        open_run_folder(run.path)
    assert open_run_folder(run.path, finished=False).path == run.path


def test_a_run_of_another_version_is_refused_when_opened_by_name(tmp_path):
    run = finished(tmp_path)
    changed(run.path / "run.json", format=7)
    with pytest.raises(DataError, match="has format 7, this version reads 1"):
        open_run_folder(run.path)


def test_all_runs_are_listed_by_name_and_nothing_else(tmp_path):
    runs = [finished(tmp_path, seed=seed) for seed in range(3)]
    (tmp_path / "table.md").write_text("")
    (tmp_path / "pictures").mkdir()
    assert [run.path for run in all_runs(tmp_path)] == sorted(run.path for run in runs)
    assert [run.path for run in all_runs(runs[0].path)] == [runs[0].path]
    assert all_runs(tmp_path / "pictures") == []
    with pytest.raises(DataError, match="there is no such folder"):
        all_runs(tmp_path / "none")


def test_a_home_folder_may_be_written_short(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    run = finished(tmp_path / "runs")
    assert open_run_folder(f"~/runs/{run.name}").path == run.path
    assert len(all_runs("~/runs")) == 1
    assert str(run.path) in repr(run)


def test_the_names_of_the_files_are_those_that_people_know():
    assert (module.RUN, module.RESULT, module.METRICS, module.PREDICTIONS) == (
        "run.json",
        "result.json",
        "metrics.jsonl",
        "predictions.npz",
    )
