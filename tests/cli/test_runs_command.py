"""``gated-domains runs list``: what each folder is, whatever became of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gated_domains.runs.folder import RunFolder
from made_runs import Interrupt, assert_refused, call, recipe, runner, vectors

pytestmark = pytest.mark.usefixtures("without_shape_checks")


def test_every_folder_has_a_line_with_its_state(tmp_path: Path):
    made = runner(vectors(), tmp_path / "runs")
    done = made.run(recipe("linear"))
    interrupted = runner(vectors(), tmp_path / "runs", callback=Interrupt(after=3), checkpoint_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        interrupted.run(recipe("gdu", seed=3))
    planned = made.planner.run(recipe("coral"))
    failed = RunFolder.open(made.root, planned.identity, data=planned.data)
    failed.write_failure("the loss became NaN")
    damaged = made.planner.run(recipe("irm")).folder(made.root)
    damaged.path.mkdir()
    (damaged.path / "run.json").write_text("{")

    listed = {run["path"].split("/")[-1]: run for run in json.loads(call("runs", "list", tmp_path, "--json").out)}
    assert len(listed) == 5  # the network under the linear head, too
    one = listed[done.name]
    assert (one["data"], one["method"], one["hold_out"], one["seed"]) == (
        "vectors",
        "retrained linear head",
        "north",
        "0",
    )
    assert one["state"] == "done"
    assert one["score"].endswith(" accuracy")
    assert Path(one["path"]) == done.path
    assert any(run["state"].startswith("epoch ") and run["seed"] == "3" for run in listed.values())
    assert listed[failed.name]["state"] == "failed"
    assert listed[damaged.name]["state"].startswith("damaged: ")

    table = call("runs", "list", tmp_path)
    assert table.code == 0
    assert str(done.path) in table.out
    assert table.out.splitlines()[-1] == "5 runs, 2 done"


def test_a_folder_that_is_not_there_is_refused_and_an_empty_one_has_no_runs(tmp_path: Path):
    assert_refused(call("runs", "list", tmp_path / "nowhere"), "there is no such folder of runs")
    assert call("runs", "list", tmp_path).out.splitlines()[-1] == "0 runs, 0 done"
