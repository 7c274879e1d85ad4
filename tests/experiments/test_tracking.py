"""Tracking tells of every run once, whoever makes it, and never stands in the way of a training."""

from __future__ import annotations

import builtins
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.cli import reproduce_digits
from gated_domains.data.errors import DataError
from gated_domains.experiments.executors import Executor, ProcessExecutor, SerialExecutor
from gated_domains.experiments.tracking import Tracking, check_trackers, tracked, tracking
from gated_domains.experiments.tracking.about_run import curve_of, files_of, finals_of, settings_of, tags_of, title_of
from gated_domains.experiments.tracking.names import key, legal
from gated_domains.paper import digits, running
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.result import read_results
from gated_domains.runs.storage import BusyError
from made_grids import Told
from made_runs import DOMAINS, assert_refused, call, recipe, runner, table, vectors

EPOCHS = 2


class Noted:
    """A tracker that keeps what it is told."""

    look = "look here"

    def __init__(self, root: Path) -> None:
        self.root, self.finished = root, []
        self.epochs: dict[str, list[int]] = {}
        self.closed = False

    def has(self, run: RunFolder) -> bool:
        return run.name in self.finished

    def follow(self, run: RunFolder) -> None:
        seen = self.epochs.setdefault(run.name, [])
        seen += [epoch for epoch, _ in curve_of(run, after=seen[-1] if seen else -1)]

    def finish(self, run: RunFolder) -> None:
        self.follow(run)
        self.finished.append(run.name)

    def close(self) -> None:
        self.closed = True


class Failing(Noted):
    def follow(self, run: RunFolder) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture
def noted(monkeypatch, tmp_path: Path) -> Noted:
    """The tracker behind the name ``noted``; another one, ``failing``, stands beside it."""
    one = Noted(tmp_path)
    for name, make in (("noted", lambda root: one), ("failing", Failing)):
        monkeypatch.setitem(tracking.TRACKERS, name, make)
        monkeypatch.setitem(tracking._NEEDED, name, lambda: None)
    return one


def grid() -> list[Any]:
    """A head, the body that it stands on, and an ensemble of two, of which that is one."""
    asked = [("linear", {}), ("erm", {}), ("ensemble", {"members": 2})]
    return [recipe(name, settings=settings, training={"epochs": EPOCHS}) for name, settings in asked]


def executors(made: Any) -> dict[str, Executor]:
    return {
        "one by one": SerialExecutor(made),
        "in processes": ProcessExecutor(made, workers=2),
    }


@pytest.mark.parametrize("way", ["one by one", pytest.param("in processes", marks=pytest.mark.slow)])
def test_every_run_is_told_of_once_with_all_its_epochs_whoever_makes_it(noted, tmp_path: Path, way: str):
    made = runner(vectors(), tmp_path)
    asked = grid()
    with (
        Tracking(["noted"], tmp_path) as tracks,
        executors(made)[way] as executor,
        tracked(tracks, made.planner.plan(asked), tmp_path, Told()) as callback,
    ):
        executor.run(asked, callback=callback)
    there = sorted(path.parent.name for path in tmp_path.glob("*/result.json"))
    assert sorted(noted.finished) == there
    assert len(there) == 4  # the second member of the ensemble
    trained = [name for name in there if RunFolder(tmp_path / name).metrics()]
    assert all(noted.epochs[name] == list(range(EPOCHS)) for name in trained)
    assert noted.closed


def test_curves_are_followed_while_a_training_is_under_way(noted, tmp_path: Path):
    made = runner(vectors(), tmp_path)
    lengths: list[int] = []

    class Looks(Told):
        def on_epoch(self, record: dict[str, Any], *, worker: int = 0) -> None:
            lengths.extend(len(epochs) for epochs in noted.epochs.values())

    asked = [recipe(training={"epochs": 3})]
    with tracked(Tracking(["noted"], tmp_path), made.planner.plan(asked), tmp_path, Looks()) as callback:
        SerialExecutor(made).run(asked, callback=callback)
    assert lengths == [1, 2]  # what was there before each epoch but the first


def test_what_was_done_before_is_tracked_as_well_and_nothing_twice(noted, tmp_path: Path):
    made = runner(vectors(), tmp_path)
    SerialExecutor(made).run(grid())
    for _ in range(2):
        with tracked(Tracking(["noted"], tmp_path), made.planner.plan(grid()), tmp_path, Told()) as callback:
            SerialExecutor(made).run(grid(), callback=callback)
        assert len(noted.finished) == 4


def test_a_tracker_that_fails_warns_once_and_stops_neither_training_nor_the_other(noted, tmp_path: Path):
    made = runner(vectors(), tmp_path)
    asked = grid()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with tracked(Tracking(["failing", "noted"], tmp_path), made.planner.plan(asked), tmp_path, Told()) as callback:
            ends = SerialExecutor(made).run(asked, callback=callback)
    (said,) = [str(one.message) for one in heard if "failing" in str(one.message)]
    assert "No space left" in said
    assert "the same command later adds what is missing" in said
    assert all(run.done for run in ends)
    assert len(noted.finished) == 4


def test_the_other_watcher_hears_everything(noted, tmp_path: Path):
    asked = grid()
    plain, through = Told(), Told()
    SerialExecutor(runner(vectors(), tmp_path / "a")).run(asked, callback=plain)
    made = runner(vectors(), tmp_path / "b")
    with tracked(Tracking(["noted"], tmp_path), made.planner.plan(asked), made.root, through) as callback:
        SerialExecutor(made).run(asked, callback=callback)
        callback.on_run_lost(asked[0], "was killed")
        callback.on_wait([BusyError("somebody is at it", pid=3)])
    assert through.heard == [*plain.heard, ("lost", "was killed"), ("waiting", 3)]


def test_a_run_is_read_from_its_folder(tmp_path: Path):
    run = runner(vectors(), tmp_path).run(recipe("gdu", seed=3, training={"rate": 0.01}))
    settings, tags, result = settings_of(run), tags_of(run), run.result().to_json()
    assert (settings["training.rate"], settings["method.name"], settings["seed"]) == (0.01, "gdu", 3)
    assert settings["training.ema"] is None
    assert settings["training.group_by"] == "[]"
    assert (tags["data"], tags["method"], tags["hold_out"], tags["seed"]) == (result["data"], "gdu", "north", "3")
    assert title_of(run) == f"{result['label']}, north held out, seed 3"
    for record, (epoch, scalars) in zip(run.metrics(), curve_of(run), strict=True):
        assert epoch == record["epoch"]
        assert scalars["train/task"] == record["train"]["task"]
        assert scalars["validation/domain/south"] == record["validation"]["by_domain"]["south"]
        assert scalars["measures/gate_entropy"] == record["measures"]["gate_entropy"]
        assert (scalars["rate"], list(scalars)[-1]) == (record["rate"], "selection")
    finals = finals_of(run)
    assert finals["held_out/domain/north"] == result["test"]["by_domain"]["north"]
    assert (finals["cost/seconds"], finals["best_epoch"]) == (result["seconds"], result["best_epoch"])


def test_files_beside_a_tracked_run_are_not_taken_for_a_run(tmp_path: Path):
    run = runner(vectors(), tmp_path / "runs").run(recipe())
    (tmp_path / "elsewhere").mkdir()
    for name, path in files_of(run).items():
        (tmp_path / "elsewhere" / name).write_bytes(path.read_bytes())
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2
    assert len(read_results(tmp_path)) == 1


ODD = ["a/b", "a_b", "a b", "a%b", "<script>", "..", ".", "", " a", "a ", "a:b", "a\nb", "é", "e", "x" * 300, "x" * 301]


def test_odd_names_become_legal_and_stay_distinct():
    made = [legal(name) for name in ODD]
    assert len(set(made)) == len(ODD)
    assert legal("location_43") == "location_43"
    assert legal("north wing-2.b") == "north wing-2.b"
    assert legal("a/b").startswith("a_b-")


@given(st.lists(st.text(max_size=12), unique=True, max_size=6))
def test_any_names_become_keys_of_letters_that_all_trackers_take(names: list[str]):
    keys = [key("validation", "domain", name) for name in [*names, *map(legal, set(names) - set(map(legal, names)))]]
    for made in keys:
        assert made.count("/") == 2
        assert len(made) < 250
        assert all(part.strip(" .") == part != "" for part in made.split("/"))
        assert all(letter.isascii() and (letter.isalnum() or letter in "_-. /") for letter in made)
    assert len(set(keys)) == len({*names, *map(legal, names)})


@pytest.mark.parametrize(("package", "name"), [("tensorboard", "tensorboard"), ("mlflow", "mlflow")])
def test_without_its_package_a_tracker_is_refused_with_the_command_that_installs_it(monkeypatch, package, name):
    real = builtins.__import__

    def without(wanted: str, *others: Any, **more: Any) -> Any:
        if wanted.partition(".")[0] == package or wanted == "torch.utils.tensorboard":
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(wanted, *others, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(tracking.importlib, "import_module", without)
    with pytest.raises(DataError, match=rf"--track {name} needs .*pip install 'gated-domains\[track\]'"):
        check_trackers(name)


@pytest.mark.parametrize(("written", "words"), [("tensorbord", "tensorboard"), (" , ", "tensorboard, mlflow")])
def test_a_name_that_is_none_is_refused_with_those_there_are(written: str, words: str):
    with pytest.raises(DataError, match=words):
        check_trackers(written)


def test_names_are_taken_once_each_and_none_by_default(noted):
    assert check_trackers(None) == ()
    assert check_trackers("noted, failing,noted") == ("noted", "failing")


def test_the_commands_refuse_an_unknown_tracker_before_anything_is_trained(tmp_path: Path):
    data, out = table(tmp_path / "t.csv"), tmp_path / "out"
    for command in (["compare", data, "--target", "sick", "--domain", "site"], ["reproduce", "digits", "--quick"]):
        done = call(*command, "--track", "wandb", "--out", out)
        assert_refused(done, "--track wandb")
        assert not out.exists()


def test_compare_and_train_track_their_runs(noted, tmp_path: Path):
    data, out = table(tmp_path / "t.csv"), tmp_path / "out"
    asked = [data, "--target", "sick", "--domain", "site", "--epochs", 1, "--out", out, "--track", "noted"]
    done = call(
        "compare", "--no-report", *asked, "--hold-out", "north", "--methods", "erm", "--seeds", 1, "--workers", 1
    )
    assert done.code == 0, done
    assert "look here" in done.out
    assert len(noted.finished) == 1
    done = call("train", *asked, "--hold-out", "south", "--method", "erm")
    assert done.code == 0, done
    assert len(noted.finished) == 2


@pytest.fixture
def small_digits(monkeypatch) -> None:
    """Vectors in place of the images of ``reproduce digits --quick``."""
    dataset = vectors()
    monkeypatch.setattr(running, "load_data", lambda *_, **__: dataset)
    setup = digits.Setup(
        data="digits", body="mlp", targets={name: name for name in DOMAINS}, usual=DOMAINS[:2], seeds=1,
        training={"epochs": EPOCHS, "batch_size": 32}, epochs=None, precision="32", published=False, about="vectors.",
    )  # fmt: skip
    monkeypatch.setattr(digits, "quick", lambda *_, **__: setup)


@pytest.mark.usefixtures("small_digits")
def test_reproduce_tracks_what_it_makes_and_what_it_finds(noted, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(reproduce_digits, "write_report", lambda *_: None)  # a page takes seconds

    def reproduce(methods: str, *more: str) -> None:
        chosen = ["--methods", methods, "--targets", "north", "--out", tmp_path, "--device", "cpu", "--workers", 1]
        done = call("reproduce", "digits", "--quick", "--no-report", *chosen, *more)
        assert done.code == 0, done

    reproduce("erm")
    assert noted.finished == []
    reproduce("erm,gdu", "--track", "noted")
    assert len(noted.finished) == 2
    reproduce("erm,gdu", "--track", "noted", "--no-train")
    assert len(noted.finished) == 2
    assert {Path(path).parent.name for path in tmp_path.glob("runs/*/*/result.json")} == set(noted.finished)
