"""What makes a run: all settings with every ``auto`` filled in, and weights by what they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gated_domains.experiments.recipe_checks import identity_of, resolve
from gated_domains.paper.grid import Job
from gated_domains.paper.run_list import settings_hash
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import run_hash
from made_runs import recipe, runner, vectors


def test_identity_has_every_field_but_data():
    found = resolve(recipe("gdu", selection="auto"), vectors())
    assert set(found.identity()) == set(type(found).model_fields) - {"data"}
    assert (found.identity()["selection"], found.identity()["metric"]) == ("source_validation", "accuracy")


def test_what_auto_stands_for_is_the_same_run():
    data = vectors()
    asked, named = recipe("gdu", selection="auto"), recipe("gdu", selection="source_validation")
    assert run_hash(resolve(asked, data).identity()) == run_hash(resolve(named, data).identity())


@pytest.mark.parametrize(
    "named",
    [
        lambda found: run_hash(identity_of(found)),
        lambda found: settings_hash(Job(row="erm", column="north", recipe=found)),
        lambda found: runner(vectors(), Path("nowhere")).planner.run(found).name,
    ],
    ids=["its identity", "its line in a list of runs", "its folder"],
)
def test_a_backbone_counts_by_the_digest_of_its_weights(tmp_path: Path, named: Callable[[Recipe], str]):
    names = []
    for folder, digest in (("one", "a"), ("copy", "a"), ("other", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.json").write_text(json.dumps({"format": 1, "sha256": digest}))
        names.append(named(recipe("erm").replace(backbone=str(tmp_path / folder))))
    assert names[0] == names[1] != names[2]
