"""Insights of runs: made once, of a few runs, and a note where they cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.experiments import insights as looking
from gated_domains.experiments.insights import look, look_at, missing_insights, worth_a_look
from gated_domains.experiments.model import WEIGHTS
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.insight import INSIGHT, Insight
from gated_domains.runs.recipe import DataSettings
from made_runs import changed, made_up_result, recipe, runner, table, vectors


def finished(path: Path, **result: object) -> RunFolder:
    """A folder that looks like that of a finished run."""
    path.mkdir()
    found = made_up_result(**{"method": "gdu", "label": "GDU", **result})
    (path / "result.json").write_text(json.dumps(found.to_json()))
    return RunFolder(path)


def test_a_gated_run_gets_an_insight_of_its_own_rows(tmp_path: Path):
    work, asked = runner(vectors(), tmp_path), recipe("gdu", "south")
    run = work.run(asked)
    path = look(run, work, asked)
    assert path == run.path / INSIGHT
    found, kept = Insight.read(run.path), run.predictions()
    assert found is not None
    assert found.domain_names.tolist() == ["north", "west", "south"]
    assert found.unseen.tolist() == [False, False, True]
    places = {int(row): place for place, row in enumerate(kept["rows"])}
    unseen = found.unseen[found.domains]
    np.testing.assert_allclose(
        found.beta[unseen], kept["beta"][[places[int(row)] for row in found.rows[unseen]]], rtol=1e-4, atol=1e-5
    )


def test_it_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    work, asked = runner(vectors(), tmp_path), recipe("gdu")
    run = work.run(asked)
    first = look(run, work, asked)
    monkeypatch.setattr(looking, "insight_of", lambda *_, **__: pytest.fail("it is made again"))
    assert look(run, work, asked) == first


def test_a_run_without_gates_has_none(tmp_path: Path):
    work, asked = runner(vectors(), tmp_path), recipe("erm")
    assert look(work.run(asked), work, asked) is None


def test_data_that_changed_since_are_refused(tmp_path: Path):
    run = runner(vectors(), tmp_path).run(recipe("gdu"))
    with pytest.raises(DataError, match="other rows"):
        look(run, runner(vectors(153), tmp_path), recipe("gdu"))


def test_of_each_hold_out_the_recommended_form_of_the_first_seed_is_looked_into(tmp_path: Path):
    made = [
        finished(tmp_path / "a", hold_out="north", method="erm", label="ERM"),
        finished(tmp_path / "b", hold_out="north", method="gdu-paper", label="GDU (paper)"),
        finished(tmp_path / "c", hold_out="north", label="GDU [num_bases=8]"),
        finished(tmp_path / "d", hold_out="north", seed=1),
        finished(tmp_path / "e", hold_out="north", seed=0),
        finished(tmp_path / "f", hold_out="south", method="gdu-paper", label="GDU (paper)"),
        finished(tmp_path / "g", hold_out="west", method="erm", label="ERM"),
    ]
    assert [run.name for run in worth_a_look(made)] == ["e", "f"]


def test_at_most_eight_hold_outs_are_looked_into(tmp_path: Path):
    made = [finished(tmp_path / f"{number:02d}", hold_out=f"site {number}") for number in range(12)]
    assert [run.name for run in worth_a_look(made)] == [f"{number:02d}" for number in range(8)]


def test_the_runs_of_a_comparison_are_looked_into_and_light_ones_noted(tmp_path: Path):
    work = runner(vectors(), tmp_path)
    asked = [recipe(method, hold_out) for hold_out in ("north", "south") for method in ("erm", "gdu")]
    runs = [work.run(each) for each in asked]
    (runs[3].path / WEIGHTS).unlink()
    found = look_at(runs, work, asked)
    assert found.written == [runs[1].path / INSIGHT]
    assert len(found.notes) == 1
    assert str(runs[3].path) in found.notes[0]
    assert "weights were not kept" in found.notes[0]


def test_missing_insights_are_made_from_the_data_that_recipes_name(tmp_path: Path):
    reading = Reading(target="sick", domain="site")
    path = table(tmp_path / "sick.csv")
    data = DataSettings.of(str(path), reading)
    work = runner(load_data(path, reading), tmp_path / "runs")
    runs = [work.run(recipe("gdu", hold_out, data=data)) for hold_out in ("north", "south")]
    first = missing_insights([tmp_path / "runs"])
    assert sorted(first.written) == sorted(run.path / INSIGHT for run in runs)
    assert first.notes == []
    path.unlink()
    assert sorted(missing_insights([tmp_path / "runs"]).written) == sorted(first.written)  # nothing is read again


def test_data_that_are_gone_and_weights_that_were_not_kept_are_notes(tmp_path: Path):
    work = runner(vectors(), tmp_path)
    north, south = (work.run(recipe("gdu", hold_out)) for hold_out in ("north", "south"))
    found = missing_insights([tmp_path])
    assert found.written == []
    assert "made in a test" in found.notes[0]
    (north.path / WEIGHTS).unlink()
    look(south, work, recipe("gdu", "south"))
    found = missing_insights([tmp_path])
    assert found.written == [south.path / INSIGHT]
    assert [str(north.path) in note and "weights" in note for note in found.notes] == [True]


def test_a_recipe_that_cannot_be_read_spoils_no_other(tmp_path: Path):
    path = table(tmp_path / "sick.csv")
    reading = Reading(target="sick", domain="site")
    data = DataSettings.of(str(path), reading)
    work = runner(load_data(path, reading), tmp_path / "runs")
    north, south = (work.run(recipe("gdu", hold_out, data=data)) for hold_out in ("north", "south"))
    (north.path / "recipe.yaml").write_text("nonsense: true")
    found = missing_insights([tmp_path / "runs"])
    assert found.written == [south.path / INSIGHT]
    assert len(found.notes) == 1


def test_the_metric_is_that_of_the_run(tmp_path: Path):
    work, asked = runner(vectors(), tmp_path), recipe("gdu", metric="log_loss")
    run = work.run(asked)
    path = look(run, work, asked)
    assert path is not None
    by_loss = Insight.read(run.path)
    path.unlink()
    changed(run.path / "result.json", metric="accuracy")
    look(run, work, asked)
    by_accuracy = Insight.read(run.path)
    assert by_loss is not None
    assert by_accuracy is not None
    assert not np.allclose(by_loss.dropping, by_accuracy.dropping)
