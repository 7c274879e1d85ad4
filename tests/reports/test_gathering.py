"""Reading run folders for a page: whole ones in order, damaged and unfinished ones by name, nothing fatal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from made_folders import CLASSES, a_run, folder_of_runs
from made_results import result

from gated_domains.data.errors import DataError
from gated_domains.runs.collection import gather


def test_whole_runs_come_in_reading_order_wherever_they_lie(tmp_path: Path) -> None:
    a_run(tmp_path / "deep" / "below" / "x", result("gdu", "fold 10"))
    a_run(tmp_path / "y", result("gdu", "fold 2"))
    found = gather([tmp_path])
    assert [run.hold_out for run in found.results] == ["fold 2", "fold 10"]
    assert found.folder(found.results[1]).name == "x"
    assert not found.broken


def test_a_folder_named_twice_counts_once(tmp_path: Path) -> None:
    folder_of_runs(tmp_path)
    assert len(gather([tmp_path, tmp_path / "0000"]).results) == len(gather([tmp_path]).results)


def test_unfinished_diverged_and_damaged_folders_are_listed_with_the_reason(tmp_path: Path) -> None:
    folder_of_runs(tmp_path)
    for name, content in (
        ("cut", None),
        ("half", '{"format": 1, "ru'),
        ("other", "[1, 2]"),
        ("newer", '{"format": 99}'),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}", encoding="utf-8")
        if content is not None:
            (tmp_path / name / "result.json").write_text(content, encoding="utf-8")
    (tmp_path / "diverged").mkdir()
    (tmp_path / "diverged" / "run.json").write_text("{}", encoding="utf-8")
    (tmp_path / "diverged" / "broken.json").write_text('{"why": "nan"}', encoding="utf-8")
    found = gather([tmp_path])
    why = {item.path.name: item.why for item in found.broken}
    assert len(found.results) == 12
    assert set(why) == {"cut", "half", "other", "newer", "diverged"}
    assert "not finished" in why["cut"]
    assert "NaN or infinite" in why["diverged"]
    assert "no JSON" in why["half"]
    assert "update gated-domains" in why["newer"]


def test_a_folder_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        gather([tmp_path / "nowhere"])


def test_damaged_curves_and_predictions_are_noted_and_passed_over(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "one", result())
    whole = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    (folder / "metrics.jsonl").write_text(whole + '{"epoch": 3, "tr', encoding="utf-8")
    (folder / "predictions.npz").write_bytes((folder / "predictions.npz").read_bytes()[:200])
    (folder / "insight.npz").write_bytes(b"PK nothing")
    found = gather([tmp_path])
    run = found.results[0]
    assert len(found.curve(run)) == 3
    assert found.predictions(run) is None
    assert found.insight(run) is None
    assert len(found.broken) == 3
    found.curve(run)
    assert len(found.broken) == 3, "noted once, however often it is asked for"


def test_predictions_whose_arrays_do_not_go_together_are_noted(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "one", result(), arrays={"part": np.zeros(3), "output": np.zeros((4, 2))})
    found = gather([folder])
    assert found.predictions(found.results[0]) is None
    assert "rows" in found.broken[0].why


def test_what_is_absent_is_empty_and_no_complaint(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "one", result(), curve=(), arrays={})
    for name in ("run.json", "model.json"):
        (folder / name).unlink()
    found = gather([folder])
    run = found.results[0]
    assert (found.curve(run), found.predictions(run), found.about(run), found.class_names(run)) == ([], None, {}, ())
    assert not found.broken


def test_names_of_classes_are_those_of_the_model(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "one", result())
    found = gather([folder])
    assert found.class_names(found.results[0]) == CLASSES
    (folder / "model.json").write_text(json.dumps({"schema": None}), encoding="utf-8")
    assert found.class_names(found.results[0]) == ()
