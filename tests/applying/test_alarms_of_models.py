"""``predict --gates stream --alarm``, with a detector of our own: where alarms are told, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from gated_domains.applying.of_estimator import EstimatorPredictor
from gated_domains.applying.of_run import RunPredictor
from gated_domains.applying.opening import open_model
from gated_domains.applying.predictor import NO_STREAM, HasAlarm
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.experiments.model import Model
from gated_domains.insight import alarm as alarms
from gated_domains.runs.recipe import DataSettings
from made_estimators import GDUClassifier, fitted
from made_runs import assert_refused, call, recipe, runner, table

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run


class EveryTenth:
    """A detector that fires at every tenth number."""

    def __init__(self, delta: float) -> None:
        self.count = 0

    @property
    def drift_detected(self) -> bool:
        return self.count % 10 == 0

    def update(self, x: float) -> None:
        self.count += 1


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A gated run, a plain one, and a gated estimator."""
    folder = tmp_path_factory.mktemp("models")
    path, reading = table(folder / "clinic.csv"), Reading(target="sick", domain="site")
    made = runner(load_data(path, reading), folder / "runs")
    data = DataSettings.of(path, reading)
    found = {
        name: made.run(recipe(name, "north", settings={"num_bases": 3} if name == "gdu" else {}, data=data)).path
        for name in ("gdu", "erm")
    }
    fitted(GDUClassifier).save(folder / "estimator")
    return {**found, "estimator": folder / "estimator"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def every_tenth(monkeypatch):
    monkeypatch.setattr(alarms, "_adwin", lambda: EveryTenth)


@pytest.mark.usefixtures("here", "every_tenth")
def test_alarms_stand_in_the_table_and_are_said_by_file_and_row(models):
    table(Path("a.csv"), 33, start=150), table(Path("b.csv"), 12, start=300)
    assert call("predict", models["gdu"], "a.csv", "b.csv", "--gates", "stream", "--out", "without.csv").code == 0
    done = call("predict", models["gdu"], "a.csv", "b.csv", "--gates", "stream", "--alarm")
    assert done.code == 0, done
    found, without = pyarrow.csv.read_csv("predictions.csv"), pyarrow.csv.read_csv("without.csv")
    assert found.drop_columns("alarm").equals(without)
    heard = np.flatnonzero(found.column("alarm").to_numpy())
    assert heard.tolist() == [9, 19, 29, 33 + 6]  # the stream goes on from file to file
    said = [line for line in done.out.splitlines() if line.startswith("row ")]
    assert [line.split(": ")[0] for line in said] == [
        *("row 9 of a.csv", "row 19 of a.csv", "row 29 of a.csv", "row 6 of b.csv")
    ]
    assert all(" from " in line and line.endswith(" rows") for line in said)


@pytest.mark.usefixtures("here", "every_tenth")
def test_a_column_of_that_name_is_not_lost_and_few_rows_raise_no_alarm(models):
    path = table(Path("a.csv"), 6, start=150)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0] + ",alarm", *(f"{line},{place}" for place, line in enumerate(lines[1:]))]))
    done = call("predict", models["gdu"], path, "--gates", "stream", "--alarm", "--metadata", "alarm")
    assert done.code == 0, done
    found = pyarrow.csv.read_csv("predictions.csv")
    assert found.column("alarm").to_pylist() == [False] * 6
    assert found.column("given alarm").to_pylist() == list(range(6))
    assert "no alarm was raised" in done.out


@pytest.mark.usefixtures("here")
def test_an_alarm_without_a_stream_is_refused_with_the_cure(models):
    table(Path("a.csv"), 6, start=150)
    cure = ("an alarm listens to gates of a stream", "add --gates stream, or leave --alarm out")
    for model in models.values():
        assert_refused(call("predict", model, "a.csv", "--alarm"), *cure)
        assert_refused(call("predict", model, "a.csv", "--gates", "batch", "--alarm"), *cure)
    stream = ("predict", models["gdu"], "a.csv", "--gates", "stream")
    assert_refused(call(*stream, "--alarm-delta", 0.1), "an alarm delta of 0.1", "add --alarm")
    assert_refused(call("predict", models["erm"], "a.csv", "--gates", "stream", "--alarm"), "ERM has no gates")
    assert not Path("predictions.csv").exists()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("model", ["gdu", "estimator"])
def test_without_river_the_line_that_installs_it_is_said(models, model, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "river"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(DataError, match=r"pip install 'gated-domains\[alarm\]'"):
        open_model(models[model], gates="stream", alarm=True)
    assert open_model(models[model], gates="stream").alarm is None


def test_only_a_stream_can_be_listened_to_in_python_too(models):
    run = Model.load(models["gdu"])
    with pytest.raises(DataError, match=NO_STREAM):
        RunPredictor(run, gates="batch", alarm_delta=0.05)
    with pytest.raises(DataError, match=NO_STREAM):
        EstimatorPredictor(models["estimator"], alarm_delta=0.05)
    assert isinstance(open_model(models["gdu"]), HasAlarm)
