"""Runs of older versions keep their names: settings that came later are left out where they are as ever."""

from __future__ import annotations

import pytest

from gated_domains.experiments.hashing import run_hash
from gated_domains.experiments.recipe import resolved
from gated_domains.training.settings import TrainingSettings
from made_runs import images, numbers, recipe, vectors

LATER = {"pretrained", "shrunk", "backbone"}
LATER_IN_TRAINING = {"decay", "drop_after", "plateau_on", "warmup", "accumulate", "checkpoint_activations", "augment"}


def test_a_recipe_as_ever_has_none_of_the_keys_that_came_later():
    found = resolved(recipe("gdu", selection="auto"), vectors()).identity()
    assert not LATER & set(found)
    assert not LATER_IN_TRAINING & set(found["training"])
    assert found["selection"] == "source_validation"  # as it was written before there was a choice by the data
    assert found["metric"] == "accuracy"


@pytest.mark.parametrize(
    ("method", "dataset", "name"),
    [
        ("erm", vectors(), "fa6f709c1918"),
        ("gdu", vectors(), "bf469f3e89e5"),
        ("lisa", images(), "e6d90ada8ddf"),
        ("linear", numbers(), "66d7bf7a5288"),
    ],
)
def test_runs_keep_their_names(method, dataset, name):
    assert run_hash(resolved(recipe(method), dataset).identity()) == name


@pytest.mark.parametrize("setting", sorted(LATER_IN_TRAINING))
def test_a_later_setting_counts_once_it_is_changed(setting):
    others = {"decay": 0.5, "drop_after": 2, "plateau_on": "loss", "warmup": 1.0, "accumulate": 2, "augment": "flips"}
    value = others.get(setting, True)
    changed = resolved(recipe("erm", training={setting: value}), vectors()).identity()
    assert changed["training"][setting] == value
    assert set(changed["training"]) & LATER_IN_TRAINING == {setting}
    assert run_hash(changed) != run_hash(resolved(recipe("erm"), vectors()).identity())


def test_every_later_setting_is_still_there():
    assert set(TrainingSettings.model_fields) >= LATER_IN_TRAINING
