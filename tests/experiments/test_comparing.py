"""The main job as a list of recipes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.splits import hold_outs
from gated_domains.experiments import grid as comparing
from gated_domains.experiments import planner as planning
from gated_domains.experiments.grid import default_methods, every_method, named_as_asked, plan_grid
from gated_domains.experiments.recipe_checks import parse_methods
from gated_domains.experiments.runner import Runner
from gated_domains.methods import METHODS
from gated_domains.runs.recipe import DataSettings, MethodChoice, Recipe, RunConfig, TrainingSettings
from gated_domains.runs.result import read_results
from made_runs import images, runner, vectors

FRAME = RunConfig(
    data=DataSettings(what="made in a test"),
    body="mlp",
    training=TrainingSettings(epochs=1),
    validation=0.3,
    split_seed=4,
)


def planned(
    maker: Runner, methods: list[MethodChoice], seeds: int, which: str = "each", config: RunConfig = FRAME
) -> list[Recipe]:
    return list(plan_grid(maker.planner, methods, hold_out=which, seeds=seeds, config=config).recipes)


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_every_method_is_planned_on_every_hold_out_a_whole_seed_before_the_next(tmp_path):
    recipes = planned(runner(vectors(), tmp_path), parse_methods("gdu,erm"), 2, "north,west")
    assert [(recipe.seed, recipe.hold_out, recipe.method.name) for recipe in recipes] == [
        (seed, hold_out, method) for seed in (0, 1) for hold_out in ("north", "west") for method in ("gdu", "erm")
    ]
    assert {(recipe.body, recipe.validation) for recipe in recipes} == {("mlp", 0.3)}
    assert list(tmp_path.iterdir()) == []


def test_on_small_data_every_seed_draws_its_own_split_under_the_same_name(tmp_path):
    maker = runner(vectors(), tmp_path)
    recipes = planned(maker, parse_methods("erm,linear"), 3, "folds:2")
    assert [recipe.split_seed for recipe in recipes[::4]] == [4, 5, 6]
    splits = {(recipe.seed, recipe.hold_out): maker.planner.split(recipe) for recipe in recipes}
    for fold in {hold_out for _, hold_out in splits}:
        found = [splits[seed, fold] for seed in range(3)]
        assert len({split.name for split in found}) == len({split.held_out for split in found}) == 1
        assert len({tuple(split.test) for split in found}) == 1
        assert len({tuple(split.validation) for split in found}) == 3


def test_large_or_divided_data_keep_one_split(tmp_path, monkeypatch):
    data = vectors()
    aside = np.arange(len(data)) % 5 == 0
    divided = planned(runner(replace(data, official_test=aside), tmp_path), parse_methods("erm"), 2, "north")
    assert {recipe.split_seed for recipe in divided} == {4}
    monkeypatch.setattr(comparing, "SMALL_ROWS", len(data))
    large = planned(runner(data, tmp_path), parse_methods("erm"), 2, "north")
    assert {recipe.split_seed for recipe in large} == {4}
    assert comparing.default_seeds(data) == 2


def test_a_split_that_cannot_be_scored_is_refused_before_the_first_training(tmp_path, monkeypatch):
    maker, checked = runner(vectors(), tmp_path), []
    monkeypatch.setattr(planning, "check_scoring", lambda recipe, *_: checked.append(recipe.split_seed))
    planned(maker, parse_methods("erm"), 3, "north")
    assert checked == [4, 5, 6]


def test_small_tables_get_five_seeds():
    assert comparing.default_seeds(vectors()) == 5


def test_the_splits_of_a_plan_are_those_that_are_run_under_the_names_they_have(tmp_path):
    maker = runner(vectors(), tmp_path)
    first, second = planned(maker, parse_methods("erm"), 1, "folds:2")
    assert (maker.planner.split(first).name, maker.planner.split(second).name) == ("fold 1", "fold 2")
    together = second if "+" in str(second.hold_out) else first
    assert set(str(together.hold_out).split("+")) == set(maker.planner.split(together).held_out)


def test_a_method_with_settings_of_its_own_is_trained_by_them_and_the_others_are_not(tmp_path):
    first, second = planned(runner(vectors(), tmp_path), parse_methods("erm,erm[rate=0.5,swad=true]"), 1, "north")
    assert first.training == FRAME.training
    assert second.training == FRAME.training.model_copy(update={"rate": 0.5, "swad": True})


def test_what_cannot_be_run_is_refused_before_anything_is_trained(tmp_path):
    data = vectors()
    two = replace(data, domains=data.domains % 2, domain_names=("east", "west"))
    with pytest.raises(
        DataError, match=r"CORAL compares source domains in training, and there is one only.*leave coral"
    ):
        planned(runner(two, tmp_path), parse_methods("erm,coral"), 1)
    assert list(tmp_path.iterdir()) == []


def test_all_methods_are_those_that_the_data_allow_and_why_the_others_are_not(tmp_path):
    maker = runner(vectors(), tmp_path)
    able, unable = every_method(maker.planner, hold_outs(maker.dataset), config=FRAME)
    assert {choice.name for choice in able} == set(METHODS)
    assert {"ERM + MixStyle", "ERM + EMA", "ERM + SWAD", "GDU + MixStyle"} <= {choice.label for choice in able}
    assert unable == {}

    data = maker.dataset
    two = runner(replace(data, domains=data.domains % 2, domain_names=("east", "west")), tmp_path)
    able, unable = every_method(two.planner, hold_outs(two.dataset), config=FRAME)
    told = {choice.name for choice in able if choice.kind.uses_domains}
    assert told == set()
    assert {"CORAL", "IRM", "Group DRO", "Fish", "LISA", "CGD", "ARM-BN", "ERM + MixStyle"} <= set(unable)
    assert all("one only" in why for why in unable.values())

    without_norms = FRAME.model_copy(update={"body": "identity"})
    able, unable = every_method(maker.planner, hold_outs(maker.dataset), config=without_norms)
    assert set(unable) == {"ARM-BN"}


def test_an_out_of_domain_plan_validates_on_the_next_source_or_on_the_one_asked_for(tmp_path):
    maker = runner(vectors(), tmp_path)
    config = FRAME.model_copy(update={"selection": "out_of_domain"})
    recipes = planned(maker, parse_methods("erm"), 1, config=config)
    assert [(r.hold_out, r.validation_domain) for r in recipes] == [
        ("north", "south"), ("south", "west"), ("west", "north")
    ]  # fmt: skip
    asked = config.model_copy(update={"validation_domain": "west"})
    recipes = planned(maker, parse_methods("erm"), 1, config=asked)
    assert [r.validation_domain for r in recipes] == ["west", "west", "north"]


def test_results_go_by_the_names_asked_for_whatever_they_were_called_when_they_were_made(tmp_path):
    maker = runner(vectors(), tmp_path)
    first, second = planned(maker, parse_methods("erm,erm[rate=0.001]"), 1, "north")
    runs = [maker.run(first), maker.run(second)]
    assert runs[0].path == runs[1].path  # the default, written out
    results = [read_results([run.path])[0] for run in runs]
    named = named_as_asked(results, [first, second], hold_outs(maker.dataset, "north"))
    assert [result.label for result in named] == ["ERM", "ERM [rate=0.001]"]


def test_there_must_be_a_seed(tmp_path):
    with pytest.raises(DataError, match="at least one seed, got 0"):
        planned(runner(vectors(), tmp_path), parse_methods("erm"), 0)


def default_labels(
    data: DomainDataset, folder: Path, *, config: RunConfig = FRAME, **training: object
) -> tuple[list[str], dict[str, str]]:
    maker = runner(data, folder)
    asked = config.model_copy(update={"body": "auto", "training": TrainingSettings(**training)})
    able, unable = default_methods(maker.planner, hold_outs(data, "north"), config=asked)
    return [choice.label for choice in able], unable


def test_by_default_images_are_also_mixed_and_get_the_recommended_recipe(tmp_path):
    mixed = "ERM + EMA 0.995 + Fourier"
    assert default_labels(vectors(), tmp_path) == (["GDU", "ERM", "retrained linear head"], {})
    assert default_labels(images(), tmp_path) == (["recommended", "GDU", mixed, "ERM", "retrained linear head"], {})


def test_defaults_give_way_to_the_options_for_all_methods(tmp_path):
    labels, unable = default_labels(images(), tmp_path, swad=True)
    assert labels == ["GDU", "ERM", "retrained linear head"]
    assert list(unable) == ["ERM + EMA 0.995 + Fourier", "recommended"]
    assert "swad and ema are two averages" in unable["recommended"]
    labels, _ = default_labels(images(), tmp_path, ema=0.995, fourier_mix=0.9)
    assert labels == ["recommended", "GDU", "ERM", "retrained linear head"]


def test_a_default_method_that_cannot_be_run_here_is_left_out_with_the_reason(tmp_path):
    start = runner(images(), tmp_path).run(
        Recipe(**{**dict(FRAME), "body": "small", "hold_out": "north"}, method=parse_methods("erm")[0])
    )
    config = FRAME.model_copy(update={"backbone": str(start.path)})
    labels, unable = default_labels(images(), tmp_path, config=config, ema=0.995, fourier_mix=0.9)
    assert labels == ["recommended", "GDU", "ERM"]
    assert list(unable) == ["retrained linear head"]
    assert "set it for the run that trains the network" in unable["retrained linear head"]


def test_where_no_default_method_can_be_run_the_reason_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"^fourier_mix 0\.9 mixes the spectra of images, and these are"):
        default_labels(vectors(), tmp_path, fourier_mix=0.9)


def test_all_methods_give_way_to_the_options_for_all_methods(tmp_path):
    maker = runner(images(), tmp_path)
    splits = hold_outs(maker.dataset, "north")
    config = RunConfig(data=DataSettings(what="x"), training=TrainingSettings(ema=0.995, fourier_mix=0.9))
    able, unable = every_method(maker.planner, splits, config=config)
    labels = [recipe.label for recipe in planned(maker, able, 1, "north", config)]
    assert labels.count("ERM + EMA 0.995 + Fourier") == 1
    assert list(unable) == ["ERM + SWAD"]


def test_two_names_for_one_training_are_refused_before_anything_is_trained(tmp_path):
    maker = runner(images(), tmp_path)
    config = RunConfig(data=DataSettings(what="x"), training=TrainingSettings(ema=0.995))
    twice = parse_methods("erm,erm[ema=0.995]")
    with pytest.raises(DataError, match=r"ERM and ERM \+ EMA 0\.995 are the same training with the options for all"):
        planned(maker, twice, 1, "north", config)


def test_the_recommended_recipe_is_refused_on_tables_with_what_to_take(tmp_path):
    with pytest.raises(DataError, match=r"recommended is for images, and these are .*; choose erm or gdu"):
        planned(runner(vectors(), tmp_path), parse_methods("recommended"), 1, "north")
