"""The alarm with river's ADWIN: quiet where nothing changes, soon where the domain does, and the same predictions."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
import torch

from gated_domains import GDUClassifier
from gated_domains.applying.opening import open_model
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.labels import Reading
from gated_domains.data.like import read_like
from gated_domains.data.loading import load_data
from gated_domains.insight.alarm import ChangeAlarm, heard_of
from gated_domains.layer import GatedDomainUnits, GateStream
from gated_domains.runs.recipe import DataSettings
from made_runs import call, recipe, runner

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("without_shape_checks")]

drift = pytest.importorskip("river.drift")

CENTRES = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, 3.0, 1.0], [-4.0, -4.0, 2.0]])
SOON = 60  # rows in which a switch between these domains must be heard; it is in 20 to 30


def rows(domain: int | None, count: int, seed: int) -> torch.Tensor:
    """Of one of four domains, or (None) of the first three as they come."""
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(3, (count,), generator=generator) if domain is None else torch.full((count,), domain)
    return CENTRES[which] + torch.randn(count, 3, generator=generator)


@pytest.fixture(scope="module")
def units() -> GatedDomainUnits:
    """Fitted to the first three domains."""
    torch.manual_seed(0)
    return GatedDomainUnits(3, 2, num_bases=4).fit_bases(rows(None, 600, 0)).eval()


def listened(units: GatedDomainUnits, *parts: torch.Tensor, at_once: int = 32, **settings: object) -> ChangeAlarm:
    alarm = ChangeAlarm(units, **settings)
    stream = GateStream(64, watch=alarm)
    for part in torch.cat(parts).split(at_once):
        stream.push(part)
    return alarm


@pytest.mark.parametrize("domain", [0, 1, 2, 3, None], ids=str)
def test_at_most_one_alarm_in_20_000_rows_without_a_change(units, domain):
    found = [len(listened(units, rows(domain, 10_000, seed), at_once=1000).raised) for seed in (1, 2)]
    assert sum(found) <= 1


def test_it_can_be_made_to_hear_what_is_not_there(units):
    """Else the test above could not fail."""
    loose = {"delta": 0.9, "detector": lambda delta: drift.ADWIN(delta=0.9, clock=1, min_window_length=1)}
    assert sum(len(listened(units, rows(None, 10_000, seed), at_once=1000, **loose).raised) for seed in (1, 2)) > 2


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2), (2, 0), (0, 3), (2, 3), (None, 3)])
@pytest.mark.parametrize("before", [200, 3000])
def test_a_switch_is_heard_soon_and_told_from_where_it_was(units, one, other, before):
    alarm = listened(units, rows(one, before, 3), rows(other, 500, 4), at_once=250)
    first = alarm.raised[0]
    assert before <= first.row < before + SOON
    assert abs(first.since - before) <= 12
    place = alarm.signals.index(first.signal)
    true = [float(heard_of(units, rows(which, 5_000, 9))[:, place].mean()) for which in (one, other)]
    assert (first.before, first.after) == pytest.approx(true, abs=0.12)
    assert len(alarm.raised) == 1


def test_after_an_alarm_the_way_back_is_heard_too(units):
    alarm = listened(units, rows(0, 400, 5), rows(1, 400, 6), rows(0, 400, 7))
    assert len(alarm.raised) == 2
    assert all(0 <= found.row - at < SOON for found, at in zip(alarm.raised, (400, 800), strict=True))
    assert alarm.rows == 1200


def test_the_same_rows_raise_the_same_alarms_however_they_are_cut(units):
    parts = rows(0, 400, 5), rows(2, 300, 6)
    assert listened(units, *parts).raised == listened(units, *parts).raised
    told = [[(f.row, f.signal, f.since) for f in listened(units, *parts, at_once=n).raised] for n in (9, 32, 700)]
    assert told[0] == told[1] == told[2] != []


def test_any_detector_of_river_can_listen(units):
    parts = rows(0, 400, 5), rows(1, 300, 6)
    for detector in (
        lambda delta: drift.PageHinkley(threshold=10, delta=0.05),
        lambda delta: drift.KSWIN(alpha=delta, seed=0),
    ):
        alarm = listened(units, *parts, delta=1e-3, detector=detector)
        assert any(400 <= found.row < 400 + SOON for found in alarm.raised)


# -- shipped models ----------------------------------------------------------------------------------------------------


def frame(parts: list[tuple[int | None, int]], seed: int) -> pd.DataFrame:
    values = torch.cat([rows(domain, count, seed + place) for place, (domain, count) in enumerate(parts)]).double()
    sick = np.where(values.sum(1).numpy() > 1, "yes", "no")
    return pd.DataFrame(values.numpy().round(4), columns=["a", "b", "c"]).assign(sick=sick)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    trained = frame([(0, 300), (1, 300), (2, 300)], seed=20).assign(site=np.repeat(["x", "y", "z"], 300))
    trained.to_csv(folder / "trained.csv", index=False)
    reading = Reading(target="sick", domain="site")
    dataset: DomainDataset = load_data(folder / "trained.csv", reading)
    chosen = recipe("gdu", None, settings={"num_bases": 3}, data=DataSettings.of(folder / "trained.csv", reading))
    GDUClassifier(num_bases=3, random_state=0).fit(trained[["a", "b", "c"]], trained["sick"]).save(folder / "estimator")
    return {"run": runner(dataset, folder / "runs").run(chosen).path, "estimator": folder / "estimator"}


@pytest.mark.parametrize("kind", ["run", "estimator"])
def test_a_switch_between_files_is_said_and_stands_in_the_table_and_predictions_are_the_same(
    models, kind, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    frame([(0, 300)], seed=30).drop(columns="sick").to_csv("monday.csv", index=False)
    frame([(0, 100), (3, 200)], seed=40).drop(columns="sick").to_csv("tuesday.csv", index=False)
    stream = ("predict", models[kind], "monday.csv", "tuesday.csv", "--gates", "stream")
    assert call(*stream, "--out", "plain.csv").code == 0
    done = call(*stream, "--alarm")
    assert done.code == 0, done
    found, plain = pyarrow.csv.read_csv("predictions.csv"), pyarrow.csv.read_csv("plain.csv")
    assert found.drop_columns("alarm").equals(plain)
    (heard,) = np.flatnonzero(found.column("alarm").to_numpy())
    assert 400 <= heard < 400 + SOON
    (said,) = [line for line in done.out.splitlines() if line.startswith("row ")]
    assert re.fullmatch(
        rf"row {heard - 300} of tuesday\.csv: (gate \d|coverage) (rose|fell) from \d+% to \d+% in the last \d+ rows",
        said,
    )
    # So unwilling that it hears later, or nothing at all.
    assert call(*stream, "--alarm", "--alarm-delta", "1e-12", "--out", "deaf.csv").code == 0
    late = np.flatnonzero(pyarrow.csv.read_csv("deaf.csv").column("alarm").to_numpy())
    assert len(late) == 0 or late[0] > heard


@pytest.mark.parametrize("kind", ["run", "estimator"])
def test_in_python_a_model_tells_its_alarms_and_says_the_same_to_the_bit(models, kind, tmp_path):
    path = tmp_path / "new.csv"
    frame([(1, 300), (2, 200)], seed=50).drop(columns="sick").to_csv(path, index=False)
    plain, watched = open_model(models[kind], gates="stream"), open_model(models[kind], gates="stream", alarm=True)
    data = read_like(path, plain.schema, targets=False)
    one, other = plain.predict(data).arrays(), watched.predict(data).arrays()
    assert one.keys() == other.keys()
    assert all(np.array_equal(values, other[name]) for name, values in one.items())
    (found,) = watched.alarm.raised
    assert 300 <= found.row < 300 + SOON
    watched.predict(data)  # the stream goes on: from the third domain to the second, and back
    switches = (300, 500, 800)
    assert all(0 <= each.row - at < SOON for each, at in zip(watched.alarm.raised, switches, strict=True))
    assert watched.alarm.rows == 1000
