"""Settings that cannot be had on these data, or not together, are refused before anything is trained or written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Images
from gated_domains.data.splits import hold_outs
from gated_domains.experiments.recipe_checks import refuse_settings, resolve
from gated_domains.methods import METHODS
from gated_domains.methods.method import Method
from gated_domains.runs.recipe import Recipe
from made_published import divided
from made_runs import images, recipe, runner, vectors


class Tokens(Features):
    """Vectors that say they are tokens."""

    kind = "tokens"


def tokens() -> DomainDataset:
    data = vectors()
    return replace(data, inputs=Tokens(np.asarray(data.inputs.values)))


class Bands(Images):
    """Images that say they are bands."""

    kind = "bands"


def bands() -> DomainDataset:
    data = images()
    return replace(data, inputs=Bands(np.asarray(data.inputs.values)))


def refused(chosen: Recipe, dataset: DomainDataset) -> None:
    refuse_settings(chosen, dataset, hold_outs(dataset, [str(chosen.hold_out)])[0])


@pytest.mark.parametrize(
    ("method", "dataset", "training", "message"),
    [
        ("fish", vectors(), {"accumulate": 2}, "Fish has a step of its own, which cannot be cut into parts"),
        ("arm-bn", images(), {"accumulate": 2}, "has a step of its own"),
        ("erm", vectors(), {"accumulate": 2, "mixstyle": 0.5}, "styles are mixed over a whole batch; leave accumulate"),
        (
            "coral", vectors(), {"accumulate": 3, "groups_per_batch": 2, "sampling": "groups"},
            "a batch of 2 domains cannot be cut into 3 parts; choose groups_per_batch as a multiple of accumulate",
        ),
        ("erm", vectors(), {"augment": "flips"}, "augment flips moves images, and these are features, 4 numbers each"),
        ("erm", bands(), {"augment": "photos"}, "photos changes the brightness of pixels, and these are standardised"),
        ("erm", tokens(), {"mixstyle": 0.5}, "styles are mixed of images and of vectors, and these are"),
    ],
)  # fmt: skip
def test_a_training_that_cannot_be_is_refused(method, dataset, training, message):
    with pytest.raises(DataError, match=message):
        refused(recipe(method, training=training), dataset)


def test_a_network_that_is_kept_as_it_is_cannot_be_trained_on_mixed_images():
    training = {"fourier_mix": 0.9}
    refused(recipe("linear", training=training), images())  # the network below the head is trained on them
    with pytest.raises(DataError, match="keeps the network of runs/erm frozen; set it for the run"):
        refused(recipe("linear", training=training, backbone="runs/erm"), images())


@pytest.mark.parametrize(
    ("method", "dataset", "training"),
    [
        ("erm", vectors(), {"accumulate": 4}),
        ("coral", vectors(), {"accumulate": 2, "groups_per_batch": 4, "sampling": "groups"}),
        ("erm", images(), {"augment": "turns"}),
        ("erm", images(), {"augment": "photos"}),
        ("linear", images(), {"augment": "turns"}),  # for the network whose body is then frozen
        ("gdu", images(), {"augment": "flips", "mixstyle": 0.5}),
        ("linear", tokens(), {"mixstyle": 0.5}),  # of the features of its body
    ],
)
def test_a_training_that_can_be_is_not(method, dataset, training):
    refused(recipe(method, training=training), dataset)


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_cut_into_parts_unless_they_step_by_themselves(name):
    kind = METHODS[name]
    chosen = recipe(name, training={"accumulate": 2, "groups_per_batch": 4})
    if kind.step is Method.step:
        refused(chosen, vectors())
    else:
        with pytest.raises(DataError, match="a step of its own"):
            refused(chosen, vectors())


@pytest.mark.parametrize(
    ("dataset", "others", "message"),
    [
        (vectors(), {"selection": "out_of_domain"}, "selection out_of_domain needs validation_domain"),
        (vectors(), {"validation_domain": "south"}, "validation_domain south selects by out-of-domain validation"),
        (vectors(), {"selection": "last", "training": {"swad": True}}, "so last would choose for nothing"),
        (vectors(), {"selection": "worst_class", "training": {"swad": True}}, "worst_class would choose for nothing"),
        (
            vectors(), {"selection": "leave_one_source_out", "hold_out": "north+south"},
            "with north\\+south held out there is one source domain only",
        ),
        (vectors(), {"selection": "official"}, "selection official goes by a published division"),
        (divided(), {"selection": "official", "hold_out": "a"}, "hold out 'official', or select otherwise"),
        (divided(), {"selection": "leave_one_source_out", "hold_out": "official"}, "has nothing to keep apart"),
        (divided(), {"selection": "out_of_domain", "hold_out": "official"}, "has nothing to keep apart"),
    ],
)  # fmt: skip
def test_a_selection_that_cannot_be_is_refused(dataset: DomainDataset, others: dict[str, Any], message: str):
    hold_out = others.get("hold_out", "north")
    chosen = recipe("erm", hold_out, **{name: value for name, value in others.items() if name != "hold_out"})
    with pytest.raises(DataError, match=message):
        refused(chosen, dataset)


def test_the_division_is_selected_by_its_own_rows():
    refused(resolve(recipe("erm", "official", selection="auto"), divided()), divided())
    refused(recipe("erm", "official", selection="last"), divided())
    refused(recipe("erm", "official", selection="oracle"), divided())


def test_what_is_refused_is_refused_before_anything_is_written(tmp_path: Path):
    ours = runner(vectors(), tmp_path / "runs")
    for chosen in (recipe("fish", training={"accumulate": 2}), recipe("erm", training={"augment": "flips"})):
        for refuse in (lambda recipe: ours.planner.plan([recipe]), ours.run):
            with pytest.raises(DataError):
                refuse(chosen)
    assert not (tmp_path / "runs").exists()


def test_a_method_that_samples_groups_by_itself_is_cut_by_them_too(tmp_path: Path):
    """Sampling is filled in before: by the method where the recipe leaves it to it."""
    with pytest.raises(DataError, match="a batch of 3 domains cannot be cut into 2 parts"):
        runner(vectors(), tmp_path).planner.plan([recipe("coral", training={"accumulate": 2, "groups_per_batch": 3})])
