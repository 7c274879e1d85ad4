"""``gated_domains.compare``: what it refuses, what it keeps when trainings fail, methods as classes, shared data."""

from __future__ import annotations

import json
from multiprocessing import reduction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gated_domains as gd
from gated_domains.data.errors import DataError
from gated_domains.experiments.model import Model
from gated_domains.experiments.progress import ProgressBar
from gated_domains.experiments.run_features import runner_of
from gated_domains.experiments.source_data import SharedData, SourceData
from made_runs import vectors

pytestmark = pytest.mark.usefixtures("without_shape_checks")


def compared(folder: Path, **options: Any) -> gd.Comparison:
    settings = {"seeds": 1, "training": {"epochs": 1}, "workers": 1, "progress": False, "methods": "erm"}
    return gd.compare(vectors(), out=folder, **{**settings, **options})


class Diverging(gd.METHODS["erm"]):
    """Its loss is NaN."""

    name, label = "diverging", "Diverging"

    def objective(self, batch: gd.DomainBatch) -> dict[str, torch.Tensor]:
        return {"task": super().objective(batch)["task"] * float("nan")}


@pytest.fixture
def diverging(monkeypatch):
    monkeypatch.setitem(gd.METHODS, "diverging", Diverging)
    return Diverging


def test_a_method_that_diverges_is_left_out_of_a_partial_table_and_named(tmp_path: Path, diverging):
    found = compared(tmp_path, methods=["erm", diverging], allow_partial=True)
    assert [row.label for row in found.numbers.rows] == ["ERM"]
    assert "Diverging with north held out" in str(found.failure)
    assert str(found).startswith("incomplete: 3 trainings failed and are not in the table")
    with pytest.raises(DataError, match="3 trainings failed"):
        compared(tmp_path, methods=["erm", diverging])


def test_a_search_in_which_every_trial_fails_costs_no_other_method(tmp_path: Path, diverging):
    found = compared(tmp_path, methods=["erm", diverging], tune_trials=2, hold_out="north", allow_partial=True)
    assert [row.label for row in found.numbers.rows] == ["ERM (tuned)"]
    assert "Diverging, north held out: none of 2 trials came to a score" in str(found.failure)
    searches = {search["method"]: search for search in json.loads((tmp_path / "tuning.json").read_text())["searches"]}
    assert searches["diverging"]["chosen"] is None
    assert searches["erm"]["chosen"] is not None


def test_what_is_finished_when_it_is_interrupted_makes_a_table_and_is_resumed(tmp_path: Path, monkeypatch):
    ended = []

    def interrupt(self, *arguments: Any, **options: Any) -> None:
        ended.append(arguments)
        if len(ended) == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressBar, "on_run_end", interrupt)
        found = compared(tmp_path, methods="erm,gdu", progress=True, allow_partial=True)
    assert isinstance(found.failure, KeyboardInterrupt)
    assert len(found.numbers.rows) == 2
    whole = compared(tmp_path, methods="erm,gdu")
    assert whole.failure is None
    assert len(whole.numbers.hold_outs) == 3


def test_a_run_on_data_in_memory_does_not_name_a_file_that_happens_to_be_called_so(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("vectors").write_text("something else")
    run = gd.train(vectors(), method="gdu", training={"epochs": 1}, out=tmp_path / "runs", progress=False)
    assert run.recipe.data.what == ""
    with pytest.raises(DataError, match=r"was trained on data in memory; name their file \(--data\)"):
        runner_of(run.folder, Model.load(run.path))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"config": {"seed": 2}}, "config names seed, which is an argument of its own"),
        ({"config": {"body": "mlp"}}, "config names body"),
        ({"config": {"scoreby": "class"}}, "did you mean"),
        ({"methods": [5]}, "methods holds 5; give names"),
        ({"methods": [int]}, "methods holds the class int, which is no subclass"),
        ({"methods": []}, "methods names none"),
        ({"target": "sick"}, "cannot be given beside a data set that is loaded already"),
        ({"margin": -1.0}, "margin"),
        ({"executor": {"worker": 2}}, "executor has no option 'worker'; did you mean 'workers'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_value(tmp_path: Path, options: dict[str, Any], words: str):
    with pytest.raises(DataError, match=words):
        compared(tmp_path, **options)
    assert not list(tmp_path.iterdir())


def defined(penalty: float) -> type[gd.Method]:
    """A method as a notebook cell defines it, again and again."""

    class Mine(gd.METHODS["erm"]):
        name, label = "mine", "Mine"

        def objective(self, batch: gd.DomainBatch) -> dict[str, torch.Tensor]:
            return {**super().objective(batch), "penalty": torch.tensor(penalty)}

    return Mine


def test_a_method_that_is_defined_again_takes_the_place_of_the_first(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(gd.METHODS, "mine", defined(0.0))
    again = defined(1.0)
    compared(tmp_path, methods=[again], hold_out="north")
    assert gd.METHODS["mine"] is again
    other = type("Other", (gd.METHODS["erm"],), {"name": "mine", "__module__": __name__})
    with pytest.raises(DataError, match="there is another method 'mine'"):
        compared(tmp_path, methods=[other])


def test_where_handles_cannot_be_sent_workers_get_a_copy_of_the_data(monkeypatch):
    data = SourceData(vectors())
    shared = SharedData(data)
    monkeypatch.delattr(reduction, "DupFd")
    rebuild, content = shared.__reduce__()
    copied = rebuild(*content)
    assert copied.fingerprint == data.fingerprint
    np.testing.assert_array_equal(copied.dataset.targets, data.dataset.targets)


def test_data_for_which_the_temporary_folder_has_no_room_are_refused_with_a_cure(monkeypatch):
    class Full:
        def tell(self) -> int:
            return 0

        def seek(self, _: int) -> None: ...
        def close(self) -> None: ...
        def write(self, _: object) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("gated_domains.experiments.source_data.tempfile.TemporaryFile", Full)
    with pytest.raises(DataError, match="set TMPDIR to a folder with room, or use one worker"):
        SharedData(SourceData(vectors()))
