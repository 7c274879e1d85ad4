"""A shipped model is told by what lies there; what could run code is never loaded."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from gated_domains.applying.of_run import RunPredictor
from gated_domains.applying.opening import open_model
from gated_domains.data.errors import DataError
from gated_domains.runs.folder import RunFolder
from made_runs import recipe, runner, vectors

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return runner(vectors(), tmp_path_factory.mktemp("runs")).run(recipe("gdu"))


def test_a_run_is_opened_by_its_folder_or_first_letters(run):
    for path in (run.path, str(run.path), run.path.parent / run.name[:5]):
        found = open_model(path)
        assert isinstance(found, RunPredictor)
        assert found.sources == run.result().to_json()["sources"]


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("sprung"),)


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.pt", "m.PTH", "m.pt2", "folder/m.pkl"])
def test_pickles_are_refused_and_never_loaded(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path(name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match=r"holds pickled Python, which could run anything .* export to ONNX"):
        open_model(Path(name).parts[0])
    assert not Path("sprung").exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "no model is named; give the folder of a run"),
        ("empty", "empty is an empty folder; give the folder of a run"),
        ("other", "other is no run: there is no run.json in it"),
        ("table.csv", "table.csv is no model; give"),
        ("gone.onnx", "gone.onnx: there is no such file"),
        ("gone.pkl", "gone.pkl: there is no such file"),
        ("gone", "gone: there is no such run"),
        ("no/where", "there is no folder no"),
    ],
)
def test_what_is_no_model_is_refused_in_words(tmp_path, monkeypatch, path, words):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("other").mkdir()
    Path("other/readme.txt").write_text("hello")
    Path("table.csv").write_text("a,b\n")
    with pytest.raises(DataError, match=words):
        open_model(path)


def test_a_window_is_for_a_stream(run):
    with pytest.raises(DataError, match="a window of 9 rows is for gates of a stream"):
        open_model(run.path, gates="batch", window=9)
    found = open_model(run.path, gates="stream", window=9)
    assert found.method.test_gates.size == 9
