"""The recipes that the package ships: as their generator writes them, readable, and reached by name."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from gated_domains import recipes
from gated_domains.common.paper import paper_setting
from gated_domains.data.errors import DataError
from gated_domains.data.wilds.sets import WILDS
from gated_domains.experiments.recipe_checks import read_recipe
from gated_domains.reports.published import BENCHMARKS, MAIN
from gated_domains.runs.recipe import Recipe
from made_runs import assert_refused, call

ROOT = Path(__file__).parent.parent
SHIPPED = recipes.names("wilds")
GDU = [f"{mode}_{gate}" for mode in ("ft", "e2e") for gate in ("cosine", "mmd", "projection")]


def shipped(name: str) -> Recipe:
    return read_recipe(recipes.located(f"recipes/wilds/{name}.yaml"))


def test_the_files_are_what_their_generator_writes() -> None:
    wanted = dict(runpy.run_path(str(ROOT / "benchmarks" / "make_wilds_recipes.py"))["recipes"]())
    there = {path.name: path.read_text("utf-8") for path in recipes.folder("wilds").glob("*.yaml")}
    assert there == wanted


@pytest.mark.parametrize("name", SHIPPED)
def test_every_recipe_is_read_and_is_official(name: str) -> None:
    recipe = read_recipe(recipes.located(name))
    assert (recipe.hold_out, recipe.selection, recipe.metric) == ("official", "official", "auto")
    assert recipe.data.what.removeprefix("wilds/") in WILDS
    assert not recipe.shrunk


def test_there_is_a_recipe_for_every_cell_of_the_paper_and_our_own() -> None:
    names = {Path(name).stem for name in SHIPPED}
    for column in [*BENCHMARKS, "camelyon17-digits"]:
        assert {f"{column}_{row}" for row in ["erm", "erm_ensemble", *GDU, "gdu"]} <= names


def test_every_number_of_a_rival_in_the_paper_has_a_recipe() -> None:
    names = {Path(name).stem for name in SHIPPED}
    missing = [(row, column) for column, found in MAIN.items() for row in found if f"{column}_{row}" not in names]
    assert missing == []


@pytest.mark.parametrize(
    ("dataset", "body", "pretrained", "training"),
    [
        ("camelyon17", "densenet121", "false", ("sgd", 1e-3, 0.01, 5, 32, "constant")),
        ("fmow", "densenet121", "true", ("adam", 1e-4, 0.0, 50, 64, "step")),
        ("amazon", "distilbert-classifier", "true", ("adamw", 1e-5, 0.01, 3, 8, "linear")),
        ("iwildcam", "resnet50", "true", ("adam", 3e-5, 0.0, 12, 16, "constant")),
        ("rxrx1", "resnet50", "true", ("adamw", 1e-4, 1e-5, 90, 75, "cosine")),
        ("ogb-molpcba", "gin", "false", ("adam", 1e-3, 0.0, 100, 32, "constant")),
        ("civilcomments", "distilbert-classifier", "true", ("adamw", 1e-5, 0.01, 5, 16, "linear")),
        ("poverty", "resnet18", "false", ("adam", 1e-3, 0.0, 200, 64, "step")),
        ("camelyon17-digits", "digits", "false", ("adam", 1e-3, 0.0, 250, 512, "plateau")),
    ],
)
def test_settings_are_those_of_the_appendix(dataset: str, body: str, pretrained: str, training: tuple) -> None:
    for row in ("erm", "e2e_mmd", "gdu"):
        recipe = shipped(f"{dataset}_{row}")
        found = recipe.training
        assert (recipe.body, recipe.pretrained) == (body, pretrained)
        fields = ("optimizer", "rate", "weight_decay", "epochs", "batch_size", "schedule")
        assert tuple(getattr(found, name) for name in fields) == training


def test_what_a_few_data_sets_have_of_their_own() -> None:
    assert shipped("rxrx1_erm").training.warmup == 10
    assert shipped("fmow_erm").training.decay == shipped("poverty_erm").training.decay == 0.96
    assert (shipped("amazon_erm").data.tokens, shipped("civilcomments_erm").data.tokens) == (512, 300)
    assert shipped("iwildcam_erm").data.image_size == 448
    assert {shipped(f"{name}_coral").body for name in ("amazon", "civilcomments")} == {"distilbert"}  # as in WILDS
    second = shipped("camelyon17-digits_erm").training
    assert (second.decay, second.drop_after, second.plateau_on) == (0.2, 10, "loss")


def test_the_papers_layer_has_the_papers_parameters() -> None:
    for row in GDU:
        method = shipped(f"camelyon17_{row}").method
        assert method.mode == ("fine_tune" if row.startswith("ft") else "end_to_end")
        settings = method.settings
        assert (settings.num_bases, settings.basis_size, settings.setting) == (5, 10, "wilds")
        assert "\n  num_bases: 5\n" in Path(recipes.located(f"recipes/wilds/camelyon17_{row}.yaml")).read_text("utf-8")
        assert paper_setting("wilds", settings.gate).lambda_ols == 1e-3


def test_fine_tuning_stands_on_the_very_run_of_erm() -> None:
    for dataset in BENCHMARKS:
        erm, tuned = shipped(f"{dataset}_erm"), shipped(f"{dataset}_ft_cosine")
        assert tuned.training == erm.training
        assert (tuned.body, tuned.pretrained, tuned.data) == (erm.body, erm.pretrained, erm.data)


def test_rivals_have_what_was_published() -> None:
    weights = {name: shipped(f"{name}_coral").method.settings.weight for name in BENCHMARKS}
    assert weights == {
        "camelyon17": 0.1,
        "fmow": 0.1,
        "amazon": 1.0,
        "iwildcam": 10.0,
        "rxrx1": 0.1,
        "ogb-molpcba": 0.1,
        "civilcomments": 10.0,
        "poverty": 0.1,
    }
    assert shipped("fmow_irm").training.groups_per_batch == 8
    assert shipped("camelyon17_group_dro").training.sampling == "balanced"


def test_fish_goes_as_far_as_its_authors_whose_rate_is_divided_by_the_inner_steps() -> None:
    columns = ("camelyon17", "fmow", "amazon", "iwildcam", "civilcomments", "poverty")
    rates = [shipped(f"{name}_fish").method.settings.meta_rate for name in columns]
    assert rates == pytest.approx([0.01 / 3, 0.01 / 5, 0.01 / 5, 0.01 / 10, 0.05 / 5, 0.1 / 5], abs=1e-6)


def test_a_file_here_of_that_name_is_taken_before_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "recipes/wilds/fmow_erm.yaml"
    assert Path(recipes.located(name)).parent == recipes.folder("wilds")
    Path(name).parent.mkdir(parents=True)
    Path(name).write_text("method: erm\n")
    assert recipes.located(name) == name
    assert recipes.located("other.yaml") == "other.yaml"


@pytest.mark.parametrize("name", ["recipes/wilds/fmow_ermm.yaml", "recipes/wild/fmow_erm.yaml", "recipes/wilds/"])
def test_a_name_that_is_none_of_them_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="no recipe"):
        recipes.located(name)


def test_the_nearest_name_is_told() -> None:
    with pytest.raises(DataError, match=r"did you mean 'recipes/wilds/fmow_erm\.yaml'"):
        recipes.located("recipes/wilds/fmow_ermm.yaml")


def test_train_reaches_them_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("train", "recipes/wilds/camelyon17_e2e_cosine.yaml", "--data-dir", tmp_path)
    assert_refused(done, "Camelyon17 is not in")  # the recipe was found and read: what is missing are the data
    assert_refused(call("train", "recipes/wilds/camelyon_e2e.yaml"), "no recipe", "did you mean")
