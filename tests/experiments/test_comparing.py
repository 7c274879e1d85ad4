"""The main job as a list of recipes, and its pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gated_domains.data.errors import DataError
from gated_domains.data.splits import hold_outs
from gated_domains.experiments import comparing
from gated_domains.experiments.comparing import BASELINE, draw, every_method, named_as_asked, plan
from gated_domains.experiments.recipe import DataSettings, Frame, MethodChoice, Recipe, methods_written
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.experiments.runner import Runner
from gated_domains.methods import METHODS
from gated_domains.reports.results import read_results
from gated_domains.reports.table import Comparison
from gated_domains.training.settings import TrainingSettings
from made_runs import runner, vectors

FRAME = Frame(
    data=DataSettings(what="made in a test"),
    body="mlp",
    training=TrainingSettings(epochs=1),
    validation=0.3,
    split_seed=4,
)


def planned(maker: Runner, methods: list[MethodChoice], seeds: int, which: str = "each") -> list[Recipe]:
    splits = hold_outs(maker.dataset, which, validation=0.3, seed=4)
    return plan(maker, splits, methods, seeds, frame=FRAME)


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_every_method_is_planned_on_every_hold_out_a_whole_seed_before_the_next(tmp_path):
    recipes = planned(runner(vectors(), tmp_path), methods_written("gdu,erm"), 2, "north,west")
    assert [(recipe.seed, recipe.hold_out, recipe.method.name) for recipe in recipes] == [
        (seed, hold_out, method) for seed in (0, 1) for hold_out in ("north", "west") for method in ("gdu", "erm")
    ]
    assert {(recipe.body, recipe.validation, recipe.split_seed) for recipe in recipes} == {("mlp", 0.3, 4)}
    assert list(tmp_path.iterdir()) == []


def test_the_splits_of_a_plan_are_those_that_are_run_under_the_names_they_have(tmp_path):
    maker = runner(vectors(), tmp_path)
    first, second = planned(maker, methods_written("erm"), 1, "folds:2")
    assert (maker.split(first).name, maker.split(second).name) == ("fold 1", "fold 2")
    together = second if "+" in str(second.hold_out) else first
    assert set(str(together.hold_out).split("+")) == set(maker.split(together).held_out)


def test_a_method_with_settings_of_its_own_is_trained_by_them_and_the_others_are_not(tmp_path):
    first, second = planned(runner(vectors(), tmp_path), methods_written("erm,erm[rate=0.5,swad=true]"), 1, "north")
    assert first.training == FRAME.training
    assert second.training == FRAME.training.model_copy(update={"rate": 0.5, "swad": True})


def test_what_cannot_be_run_is_refused_before_anything_is_trained(tmp_path):
    data = vectors()
    two = replace(data, domains=data.domains % 2, domain_names=("east", "west"))
    with pytest.raises(
        DataError, match=r"CORAL compares source domains in training, and there is one only.*leave coral"
    ):
        planned(runner(two, tmp_path), methods_written("erm,coral"), 1)
    assert list(tmp_path.iterdir()) == []


def test_all_methods_are_those_that_the_data_allow_and_why_the_others_are_not(tmp_path):
    maker = runner(vectors(), tmp_path)
    able, unable = every_method(maker, hold_outs(maker.dataset), frame=FRAME)
    assert {choice.name for choice in able} == set(METHODS)
    assert {"ERM + MixStyle", "ERM + EMA", "ERM + SWAD", "GDU + MixStyle"} <= {choice.label for choice in able}
    assert unable == {}

    data = maker.dataset
    two = runner(replace(data, domains=data.domains % 2, domain_names=("east", "west")), tmp_path)
    able, unable = every_method(two, hold_outs(two.dataset), frame=FRAME)
    told = {choice.name for choice in able if choice.kind.uses_domains}
    assert told == set()
    assert {"CORAL", "IRM", "Group DRO", "Fish", "LISA", "CGD", "ARM-BN", "ERM + MixStyle"} <= set(unable)
    assert all("one only" in why for why in unable.values())

    without_norms = FRAME.model_copy(update={"body": "identity"})
    able, unable = every_method(maker, hold_outs(maker.dataset), frame=without_norms)
    assert set(unable) == {"ARM-BN"}


def test_an_out_of_domain_plan_validates_on_the_next_source_or_on_the_one_asked_for(tmp_path):
    maker = runner(vectors(), tmp_path)
    splits = hold_outs(maker.dataset, validation=0.3, seed=4)
    frame = FRAME.model_copy(update={"selection": "out_of_domain"})
    recipes = plan(maker, splits, methods_written("erm"), 1, frame=frame)
    assert [(r.hold_out, r.validation_domain) for r in recipes] == [
        ("north", "south"), ("south", "west"), ("west", "north")
    ]  # fmt: skip
    asked = frame.model_copy(update={"validation_domain": "west"})
    recipes = plan(maker, splits, methods_written("erm"), 1, frame=asked)
    assert [r.validation_domain for r in recipes] == ["west", "west", "north"]


def test_results_go_by_the_names_asked_for_whatever_they_were_called_when_they_were_made(tmp_path):
    maker = runner(vectors(), tmp_path)
    first, second = planned(maker, methods_written("erm,erm[rate=0.001]"), 1, "north")
    runs = [maker.run(first), maker.run(second)]
    assert runs[0].path == runs[1].path  # the default, written out
    results = [read_results([run.path])[0] for run in runs]
    named = named_as_asked(results, [first, second], hold_outs(maker.dataset, "north"))
    assert [result.label for result in named] == ["ERM", "ERM [rate=0.001]"]


def test_there_must_be_a_seed(tmp_path):
    with pytest.raises(DataError, match="at least one seed, got 0"):
        planned(runner(vectors(), tmp_path), methods_written("erm"), 0)


# -- pictures ----------------------------------------------------------------------------------------------------------


def made(root: Path, method: str, hold_out: str, **others: Any) -> RunFolder:
    """A finished run as a training would leave it, its gates by chance."""
    run = RunFolder.open(root, {"method": method, "hold_out": hold_out}, data={"name": "vectors"})
    rng = np.random.default_rng(0)
    gates = {} if method == "erm" else {"beta": rng.dirichlet(np.ones(3), 60).astype(np.float32)}
    run.write_predictions(domains=np.arange(60) % 3, **gates, **others)
    scores = {"metric": "accuracy", "by_domain": {"north": 0.5}, "overall": 0.5}
    run.finish(
        {
            **{"data": "vectors", "method": method, "label": method.upper(), "seed": 0, "hold_out": hold_out},
            **{"held_out": ["north"], "sources": ["south", "west"], "metric": "accuracy", "higher_is_better": True},
            **{"test": scores, "validation": scores, "selection": "by hand", "protocol": "none", "best_epoch": 0},
            **{"epochs": 1, "stopped": "early", "seconds": 1.0, "parameters": {"trained": 1, "all": 1}},
            **{"uses_domains": False, "notes": []},
        }
    )
    return run


def drawn(runs: list[RunFolder], root: Path) -> list[Path]:
    comparison = Comparison(read_results([run.path for run in runs]), BASELINE)
    return draw(comparison, runs, runner(vectors(), root), root)


@pytest.mark.usefixtures("without_shape_checks")
def test_scores_and_the_gates_of_every_hold_out_are_drawn(tmp_path):
    runs = [made(tmp_path, method, hold_out) for hold_out in ("north", "west") for method in ("erm", "gdu")]
    written = drawn(runs, tmp_path)
    assert [path.name for path in written] == ["scores.png", "gates-north.png", "gates-west.png"]
    for path in written:
        with Image.open(path) as picture:
            picture.load()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is asked to be drawn, in place of drawing it."""
    found: list[dict[str, Any]] = []

    def keep(beta: Any, path: Path, **others: Any) -> Path:
        found.append({"path": path, "beta": beta, **others})
        return path

    monkeypatch.setattr(comparing, "draw_gates", keep)
    monkeypatch.setattr(comparing, "draw_comparison", lambda comparison, path: path)
    return found


def test_a_picture_of_gates_knows_which_domain_was_not_seen(tmp_path, asked):
    coverage = np.linspace(0, 1, 60)
    run = made(tmp_path, "gdu", "north", coverage=coverage)
    drawn([run], tmp_path)
    (picture,) = asked
    np.testing.assert_array_equal(picture["beta"], run.predictions()["beta"])
    np.testing.assert_array_equal(picture["domains"], np.arange(60) % 3)
    np.testing.assert_array_equal(picture["coverage"], coverage)
    assert (picture["domain_names"], picture["unseen"]) == (("north", "south", "west"), ["north"])
    assert picture["title"] == "GDU, north held out: who uses which basis"


def test_the_recommended_form_is_drawn_where_there_are_two(tmp_path, asked):
    drawn([made(tmp_path, method, "north") for method in ("gdu-paper", "gdu")], tmp_path)
    assert [picture["title"].split(",")[0] for picture in asked] == ["GDU"]


def test_without_gates_only_scores_are_drawn(tmp_path, asked):
    assert drawn([made(tmp_path, "erm", "north")], tmp_path) == [tmp_path / "scores.png"]
    assert asked == []


def test_hold_outs_whose_names_look_alike_to_a_disk_have_a_picture_each(tmp_path, asked):
    long = "a very long name of a hospital somewhere far"
    names = ["a b", "a-b", "a/b", f"{long} one", f"{long} two"]
    written = drawn([made(tmp_path, "gdu", name) for name in names], tmp_path)
    assert len(set(written)) == len(names) + 1
    assert all(path.parent == tmp_path for path in written)


def test_of_many_hold_outs_a_few_are_drawn(tmp_path, asked):
    drawn([made(tmp_path, "gdu", f"fold {place}") for place in range(10)], tmp_path)
    assert [picture["path"].name for picture in asked] == [f"gates-fold-{place}.png" for place in range(8)]
