"""A recipe: read and written the same, told apart by all that decides a run, refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import made_runs
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import DATASETS
from gated_domains.experiments.recipe_checks import (
    PRESETS,
    choose_method,
    default_training,
    is_recipe,
    parse_methods,
    parse_recipe,
    read_recipe,
    resolve,
)
from gated_domains.methods import METHODS
from gated_domains.runs.recipe import DataSettings, Recipe, TrainingSettings
from gated_domains.runs.storage import run_hash
from gated_domains.settings import from_yaml, to_yaml

GDU: dict[str, Any] = {"data": {"what": "heart.csv"}, "method": {"name": "gdu"}}


def refused(fields: dict[str, Any]) -> str:
    with pytest.raises(DataError) as caught:
        parse_recipe(fields, where="recipe.yaml")
    said = str(caught.value)
    assert said.startswith("recipe.yaml")
    return said


def with_entry(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The recipe above with one entry more, or another."""
    fields = {name: dict(entry) if isinstance(entry, dict) else entry for name, entry in GDU.items()}
    place = fields
    for name in path[:-1]:
        place = place.setdefault(name, {})
    place[path[-1]] = value
    return fields


# -- YAML --------------------------------------------------------------------------------------------------------------

words = st.text(min_size=1, max_size=12)
names = st.lists(words, max_size=3).map(tuple)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    method = draw(st.sampled_from(sorted(METHODS)))
    mode = draw(st.sampled_from(METHODS[method].modes))
    settings = {"num_bases": draw(st.integers(1, 9))} if method.startswith("gdu") else {}
    data = DataSettings(
        what=draw(words),
        target=draw(st.none() | words),
        positive=draw(st.none() | names),
        drop=draw(names),
        image_size=draw(st.none() | st.integers(1, 512)),
    )
    return Recipe(
        data=data,
        hold_out=draw(st.none() | words),
        validation=draw(st.floats(0, 1, exclude_min=True, exclude_max=True)),
        method=choose_method(method, {**settings, "mode": mode}),
        training=TrainingSettings(
            rate=draw(st.floats(0, 10, exclude_min=True)),
            schedule="constant",
            patience=draw(st.none() | st.integers(1, 99)),
            class_weights=draw(st.booleans()),
        ),
        seed=draw(st.integers(0, 2**40)),
    )


@given(recipes())
def test_a_recipe_written_as_yaml_is_read_back_the_same(tmp_path_factory, recipe):
    path = tmp_path_factory.mktemp("recipes") / "recipe.yaml"
    path.write_text(to_yaml(recipe.plain()), encoding="utf-8")
    again = parse_recipe(from_yaml(path), where=str(path))
    assert again == recipe
    assert again.plain() == recipe.plain()


def test_the_method_and_its_settings_stand_together_in_yaml():
    written = parse_recipe(with_entry(("method", "num_bases"), 8), where="").plain()
    assert list(written["method"])[:3] == ["name", "mode", "gate"]
    assert written["method"]["num_bases"] == 8


def test_a_method_without_settings_may_be_a_word():
    assert parse_recipe({**GDU, "method": "erm"}, where="").method == choose_method("erm")


def test_data_beside_the_recipe_are_found_from_anywhere(tmp_path, monkeypatch):
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    (there / "heart.csv").write_text("a,b\n")
    (there / "recipe.yaml").write_text(to_yaml(GDU))
    monkeypatch.chdir(here)
    assert Path(read_recipe(there / "recipe.yaml").data.what) == there / "heart.csv"
    (there / "heart.csv").unlink()
    assert read_recipe(there / "recipe.yaml").data.what == "heart.csv"


def test_the_name_of_a_data_set_is_no_folder_that_happens_to_be_called_so(tmp_path):
    (tmp_path / "digits").mkdir()
    (tmp_path / "recipe.yaml").write_text(to_yaml({**GDU, "data": {"what": "digits"}}))
    assert read_recipe(tmp_path / "recipe.yaml").data.what == "digits"


def test_data_without_a_name_are_not_the_folder_of_the_recipe(tmp_path):
    (tmp_path / "recipe.yaml").write_text(to_yaml({**GDU, "data": {"what": ""}}))
    assert read_recipe(tmp_path / "recipe.yaml").data.what == ""


def test_written_into_a_folder_it_names_the_way_to_the_data(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "heart.csv").write_text("a,b\n")
    runs = tmp_path / "runs" / "0a1b"
    runs.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "data")
    written = parse_recipe(GDU, where="").relative_to(Path("..", "runs", "0a1b"))
    assert written.data.what == str(Path("..", "..", "data", "heart.csv"))
    (runs / "recipe.yaml").write_text(to_yaml(written.plain()))
    monkeypatch.chdir("/")
    assert Path(read_recipe(runs / "recipe.yaml").data.what).samefile(tmp_path / "data" / "heart.csv")


def test_data_behind_a_link_keep_the_name_of_the_link(tmp_path):
    """A run is named by the name of its data too, and a store's names say nothing of what is in a file."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "5f3a91").write_text("a,b\n")
    (tmp_path / "heart.csv").symlink_to(tmp_path / "store" / "5f3a91")
    linked = parse_recipe({**GDU, "data": {"what": str(tmp_path / "heart.csv")}}, where="")
    assert linked.relative_to(tmp_path / "runs").data.what == str(Path("..", "heart.csv"))


@pytest.mark.parametrize("what", ["digits", "made in a test"])
def test_what_is_no_file_is_written_as_it_is(tmp_path, monkeypatch, what):
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    recipe = parse_recipe({**GDU, "data": {"what": what}}, where="")
    assert recipe.relative_to(tmp_path / "runs", named=DATASETS) == recipe


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("recipe.yaml", to_yaml(GDU), True),
        ("recipe.YML", to_yaml(GDU), True),
        ("recipe.txt", to_yaml(GDU), False),
        ("card.yaml", "path: heart.csv\ntarget: num\n", False),
        ("misspelt.yaml", "data: {what: heart.csv}\nmetod: gdu\n", True),
    ],
)
def test_a_recipe_is_told_from_a_card(tmp_path, name, text, answer):
    (tmp_path / name).write_text(text)
    assert is_recipe(str(tmp_path / name)) is answer


def test_what_is_not_there_is_no_recipe(tmp_path):
    assert not is_recipe(str(tmp_path / "recipe.yaml"))
    assert not is_recipe("digits")


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        (("hold_outs",), "'hold_out'"),
        (("epochs",), "'training.epochs'"),
        (("data", "targt"), "'target'"),
        (("training", "epoch"), "'epochs'"),
        (("method", "num_base"), "'num_bases'"),
    ],
    ids=lambda part: ".".join(part) if isinstance(part, tuple) else None,
)
def test_an_unknown_key_at_any_level_is_refused_with_the_nearest_name(path, meant):
    said = refused(with_entry(path, 1))
    assert f"{path[-1]} is not known; did you mean {meant}?" in said


@pytest.mark.parametrize(
    ("path", "value", "must"),
    [
        (("seed",), "one", "seed must be a whole number"),
        (("seed",), -1, "seed must be a whole number of at least 0"),
        (("validation",), 1.0, "validation must be a number above 0 and below 1"),
        (("hold_out",), ["north"], "hold_out must be text or null"),
        (("data", "what"), 3, "data.what must be text"),
        (("data", "drop"), "age", "data.drop must be a list"),
        (("training", "epochs"), 2.5, "training.epochs must be a whole number of at least 1"),
        (("training", "epochs"), "30", "training.epochs must be a whole number"),
        (("training", "class_weights"), "yes", "training.class_weights must be true or false"),
        (("training",), 5, "training must be a group of settings"),
        (("method", "coverage"), 1, "coverage must be true or false"),
        (("method", "entropy"), 1.5, "entropy must be a number above 0 and below 1"),
        (("selection",), "test", "selection must be one of 'auto', 'official', 'source_validation', 'source_pooled'"),
    ],
    ids=lambda part: ".".join(part) if isinstance(part, tuple) else None,
)
def test_a_value_of_a_wrong_kind_is_refused_with_what_may_stand_there(path, value, must):
    said = refused(with_entry(path, value))
    assert must in said
    assert f"got {value!r}" in said


@pytest.mark.parametrize(
    ("path", "value", "meant"),
    [
        (("method", "name"), "gdu-papre", "no method 'gdu-papre'; did you mean 'gdu-paper'?"),
        (("method", "gate"), "cosin", "did you mean 'cosine'?"),
        (("method", "gating"), "stile", "did you mean 'style'?"),
        (("method", "mode"), "finetune", "gdu has no mode 'finetune'; did you mean 'fine_tune'?"),
        (("body",), "digit", "there is no body 'digit'; did you mean 'digits'?"),
        (("training", "optimizer"), "adamm", "got 'adamm'; did you mean"),
        (("training", "schedule"), "cosin", "did you mean 'cosine'?"),
    ],
    ids=lambda part: ".".join(part) if isinstance(part, tuple) else None,
)
def test_an_unknown_choice_is_refused_with_the_nearest(path, value, meant):
    assert meant in refused(with_entry(path, value))


@pytest.mark.parametrize("method", [None, 5, ["gdu"], {}, {"name": 5}, {"mode": "fine_tune"}])
def test_a_recipe_must_name_a_method(method):
    assert "method must name one, as in `method: {name: gdu}`" in refused({**GDU, "method": method})


def test_a_misspelt_method_key_is_found():
    fields = {"data": {"what": "heart.csv"}, "metod": "gdu"}
    assert "there is 'metod'; did you mean 'method'?" in refused(fields)


def test_a_recipe_must_name_its_data():
    assert "data is missing" in refused({"method": "gdu"})


def test_a_mode_that_a_method_does_not_have_is_refused_with_the_one_it_has():
    assert "it is always fine_tune" in refused({**GDU, "method": {"name": "linear", "mode": "end_to_end"}})


def test_all_that_is_wrong_is_said_at_once():
    said = refused({**with_entry(("training", "epochs"), 0), "seed": "x", "validation": 2})
    assert "3 settings are wrong" in said


# -- on a command line -------------------------------------------------------------------------------------------------


def test_methods_are_written_with_their_settings_in_brackets():
    first, second, third = parse_methods("erm, gdu[num_bases=8, coverage=false,sigma=1e-1],linear")
    assert (first, third) == (choose_method("erm"), choose_method("linear"))
    assert second == choose_method("gdu", {"num_bases": 8, "coverage": False, "sigma": 0.1})


def test_a_mode_is_written_like_a_setting():
    (choice,) = parse_methods("gdu[mode=fine_tune]")
    assert (choice.mode, choice.settings) == ("fine_tune", choose_method("gdu").settings)
    assert parse_methods("linear")[0].mode == "fine_tune"


def test_empty_brackets_are_no_settings():
    assert parse_methods("gdu[]") == parse_methods("gdu")


@pytest.mark.parametrize("twice", ["gdu,erm,gdu", "gdu,gdu[num_bases=5]", "gdu[kappa=2],gdu[kappa=2.0]"])
def test_a_method_twice_is_refused(twice):
    with pytest.raises(DataError, match=r"names GDU.* twice; give each once, or with other settings"):
        parse_methods(twice)


@pytest.mark.parametrize(
    "nonsense", ["", ",", "gdu,", ",gdu", "gdu,,erm", "gdu[", "gdu]", "gdu[a=1", "gdu[a=1]x", "[a=1]", "gdu[[a=1]]"]
)
def test_what_cannot_be_read_is_refused_with_how_it_is_written(nonsense):
    with pytest.raises(DataError, match=r"cannot be read; write it as gdu,erm or gdu\[num_bases=8"):
        parse_methods(nonsense)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("gdu[num_bases]", "--methods gdu[num_bases]: settings are written name=value, got 'num_bases'"),
        ("gdu[num_bases=4,num_bases=5]", "num_bases is set twice; keep one of them"),
        ("gdu[num_base=4]", "did you mean 'num_bases'?"),
        ("gdu[gate=cosin]", "did you mean 'cosine'?"),
        ("gdu[num_bases=four]", "num_bases must be a whole number"),
        ("gduu", "there is no method 'gduu'; did you mean 'gdu'?"),
        (" ", "there is no method ''"),
        ("erm[mode=fast]", "erm has no mode 'fast'"),
        ("gdu[kappa={a: 1}]", "kappa must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(written, said):
    with pytest.raises(DataError) as caught:
        parse_methods(written)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--methods")


def test_the_option_is_named_as_it_was_given():
    with pytest.raises(DataError, match=r"^--method: "):
        parse_methods("gduu", option="--method")


# -- labels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("gdu", "GDU"),
        ("gdu[num_bases=5]", "GDU"),
        ("gdu[num_bases=8,coverage=true]", "GDU [num_bases=8, coverage=true]"),
        ("gdu[mode=fine_tune,kappa=2]", "GDU [fine-tuned, kappa=2]"),
        ("linear", "retrained linear head"),
        ("ensemble[members=3]", "ensemble of networks [members=3]"),
    ],
)
def test_a_label_says_what_is_not_usual(written, label):
    assert parse_methods(written)[0].label == label


def test_a_preset_is_a_name_for_a_method_with_its_switches_and_settings():
    (preset,) = parse_methods("recommended")
    assert preset == parse_methods(PRESETS["recommended"])[0]
    assert preset.label == "recommended"
    assert preset.name == "erm"
    preset.refuse_contradiction({"ema": 0.995, "rate": 0.1})
    with pytest.raises(DataError, match=r"ema 0\.9 is asked for, and recommended has ema 0\.995.*write ema=0\.9 in"):
        preset.refuse_contradiction({"ema": 0.9})
    (changed,) = parse_methods("recommended[activation=tanh,fourier_mix=0.5]")
    assert changed.label == "ERM + EMA 0.995 + Fourier 0.5 + consistency [activation=tanh]"
    recipe = parse_recipe({**GDU, "method": "recommended"}, where="")
    again = parse_recipe(recipe.plain(), where="")
    assert again.label == "recommended"
    assert run_hash(again.identity()) == run_hash(recipe.identity())


def test_consistency_in_brackets_goes_with_mixing_for_all_methods():
    (choice,) = parse_methods("erm[consistency=1]")
    assert choice.trained(TrainingSettings(fourier_mix=0.9)).consistency == 1.0
    with pytest.raises(DataError, match="set fourier_mix as well"):
        choice.trained(TrainingSettings())


def test_numbers_that_differ_in_their_last_digits_have_labels_that_differ():
    one, other = parse_methods("gdu[kappa=0.12345678],gdu[kappa=0.12345679]")
    assert one.label != other.label


# -- what makes a run --------------------------------------------------------------------------------------------------

OTHER_VALUES: dict[tuple[str, ...], Any] = {
    ("hold_out",): "south",
    ("validation",): 0.3,
    ("split_seed",): 1,
    ("validation_domain",): "north",
    ("body",): "identity",
    ("selection",): "last",
    ("metric",): "f1",
    ("score_by",): ["class"],
    ("calibrate",): True,
    ("seed",): 1,
    ("training", "epochs"): 31,
    ("training", "batch_size"): 64,
    ("training", "optimizer"): "sgd",
    ("training", "rate"): 0.002,
    ("training", "weight_decay"): 0.1,
    ("training", "momentum"): 0.8,
    ("training", "schedule"): "step",
    ("training", "patience"): 7,
    ("training", "ema"): 0.99,
    ("training", "swad"): True,
    ("training", "swad_segments"): 2,
    ("training", "mixstyle"): 0.5,
    ("training", "fourier_mix"): 0.5,
    ("training", "consistency"): 2.0,
    ("training", "group_by"): ["class"],
    ("training", "groups_per_batch"): 2,
    ("training", "class_weights"): True,
    ("training", "sampling"): "balanced",
    ("training", "precision"): "64",
    ("training", "repeat_rows"): True,
    ("training", "decay"): 0.5,
    ("training", "drop_after"): 3,
    ("training", "plateau_on"): "loss",
    ("training", "warmup"): 2.0,
    ("training", "accumulate"): 2,
    ("training", "checkpoint_activations"): True,
    ("training", "augment"): "flips",
    ("shrunk",): True,
    ("method", "name"): "gdu-paper",
    ("method", "mode"): "fine_tune",
    ("method", "gate"): "mmd",
    ("method", "num_bases"): "auto",
    ("method", "max_bases"): 9,
    ("method", "basis_size"): 4,
    ("method", "gating"): "input",
    ("method", "sigma"): 2.0,
    ("method", "sigma_of_median"): 1.0,
    ("method", "kappa"): 3.0,
    ("method", "entropy"): 0.4,
    ("method", "shared"): False,
    ("method", "coverage"): True,
    ("method", "gated_norm"): False,
    ("method", "norm_statistics"): "batch",
    ("method", "test_gates"): "batch",
    ("method", "train_gates"): "batch",
    ("method", "lambda_dev"): 0.2,
    ("method", "gates"): "constant",
    ("method", "lambda_ols"): 0.1,
    ("method", "lambda_l1"): 0.1,
    ("method", "lambda_entropy"): 0.1,
    ("method", "lambda_orth"): 0.1,
}


BY_DIGEST = {("pretrained",), ("backbone",)}  # weights count by what they are, not by where they lie


def leaves(fields: dict[str, Any], path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found = [leaves(v, (*path, k)) if isinstance(v, dict) else {(*path, k)} for k, v in fields.items()]
    return set().union(*found)


def test_every_entry_but_where_the_data_lie_is_part_of_what_makes_a_run():
    base = parse_recipe(GDU, where="")
    written = {path for path in leaves(base.plain()) if path[0] != "data"}
    assert written - BY_DIGEST == set(OTHER_VALUES)  # a new one must be thought of
    hashes = {(): run_hash(base.identity())}
    for path, value in OTHER_VALUES.items():
        if path[-1] in ("patience", "consistency"):  # refused with the schedule of the others, or alone
            changed = base.replace(training=base.training.model_copy(update={path[-1]: value}))
        else:
            changed = parse_recipe(with_entry(path, value), where="")
        hashes[path] = run_hash(changed.identity())
    assert len(set(hashes.values())) == len(OTHER_VALUES) + 1


def test_where_the_data_lie_and_how_they_are_read_is_not():
    """The data themselves are: a run folder is named by their fingerprint too."""
    base = parse_recipe(GDU, where="")
    reading = Reading(target="a", domain="b", drop=("c",), image_size=4)
    moved = base.replace(data=DataSettings.of(Path("elsewhere/heart.csv"), reading, seed=3))
    assert moved.data.what == str(Path("elsewhere/heart.csv"))
    assert moved.identity() == base.identity()


def test_a_reading_comes_back_from_its_settings():
    reading = Reading(
        target="a", domain="b", positive=("1", "2"), categorical=("c",), drop=("d",), metadata=("e",),
        keep_together="f", task="classification", image_size=32,
    )  # fmt: skip
    assert DataSettings.of("heart.csv", reading).reading == reading


# -- defaults ----------------------------------------------------------------------------------------------------------


def test_the_body_follows_from_the_data():
    assert resolve(parse_recipe(GDU, where=""), made_runs.vectors()).body == "mlp"
    assert resolve(parse_recipe(GDU, where=""), made_runs.images()).body == "small"
    chosen = parse_recipe({**GDU, "body": "identity"}, where="")
    assert resolve(chosen, made_runs.vectors()).body == "identity"


def test_sampling_follows_from_the_method_and_the_metric_from_what_is_predicted():
    found = resolve(parse_recipe(GDU, where=""), made_runs.vectors())
    assert (found.training.sampling, found.metric) == ("plain", "accuracy")
    coral = parse_recipe({**GDU, "method": "coral"}, where="")
    assert resolve(coral, made_runs.vectors()).training.sampling == "groups"
    asked = parse_recipe({**GDU, "method": "coral", "training": {"sampling": "plain"}, "metric": "f1"}, where="")
    found = resolve(asked, made_runs.vectors())
    assert (found.training.sampling, found.metric) == ("plain", "f1")


def test_a_method_may_be_trained_otherwise_than_those_beside_it():
    plain_gdu, chosen = parse_methods("gdu,gdu[rate=0.01,num_bases=8,mixstyle=0.5]")
    recipe = parse_recipe(GDU, where="")
    other = recipe.with_method(chosen)
    assert other.training == recipe.training.model_copy(update={"rate": 0.01, "mixstyle": 0.5})
    assert other.method.settings.num_bases == 8
    assert chosen.label == "GDU + MixStyle [num_bases=8, rate=0.01]"
    assert recipe.with_method(plain_gdu).training == recipe.training


def test_how_a_setting_of_training_was_given_does_not_make_another_run():
    in_brackets = parse_recipe({**GDU, "method": {"name": "erm", "rate": 0.01, "ema": 0.9}}, where="")
    for_all = parse_recipe({**GDU, "method": "erm", "training": {"rate": 0.01, "ema": 0.9}}, where="")
    assert in_brackets.identity() == for_all.identity()
    assert in_brackets.label == "ERM + EMA 0.9 [rate=0.01]"
    assert for_all.label == "ERM + EMA 0.9"
    again = parse_recipe(in_brackets.plain(), where="")
    assert (again.identity(), again.training) == (in_brackets.identity(), in_brackets.training)


def test_a_wrong_setting_of_training_in_brackets_is_refused():
    with pytest.raises(DataError, match="rate must be"):
        parse_methods("erm[rate=-1]")
    with pytest.raises(DataError, match="ema"):
        parse_methods("erm[ema=2]")


@pytest.mark.parametrize(
    ("body", "dataset", "able"),
    [("small", made_runs.vectors(), "mlp, identity"), ("mlp", made_runs.images(), "digits, small")],
    ids=["vectors", "images"],
)
def test_a_body_for_other_data_is_refused_with_those_that_would_do(body, dataset, able):
    with pytest.raises(DataError, match=f"{body!r} takes .*; bodies for these data: {able}"):
        resolve(parse_recipe({**GDU, "body": body}, where=""), dataset)


def test_training_follows_from_the_data_unless_somebody_says_otherwise():
    few, many = made_runs.vectors(), made_runs.vectors(rows=3_000)
    pictures = made_runs.images()
    assert default_training(many, {}) == TrainingSettings(epochs=20, batch_size=256)
    assert default_training(few, {}) == TrainingSettings(epochs=60, batch_size=64)
    assert default_training(pictures, {}) == TrainingSettings(batch_size=64)
    said = default_training(few, {"batch_size": 8, "epochs": 3, "patience": None})
    assert (said.batch_size, said.epochs, said.patience) == (8, 3, None)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_patience_is_refused_with_a_schedule_that_anneals_to_zero(schedule):
    with pytest.raises(DataError, match=f"patience 5 may stop a training before the schedule {schedule}.*constant"):
        default_training(made_runs.images(), {"schedule": schedule, "patience": 5})
    default_training(made_runs.images(), {"schedule": "constant", "patience": 5})


def test_patience_of_one_method_is_checked_with_the_schedule_it_is_trained_with():
    (method,) = parse_methods("erm[patience=5]")
    assert method.trained(TrainingSettings(schedule="constant")).patience == 5
    with pytest.raises(DataError, match="patience 5 may stop"):
        method.trained(TrainingSettings())


def test_training_options_that_make_no_sense_are_refused():
    with pytest.raises(DataError, match="training: epochs must be a whole number of at least 1, got 0"):
        default_training(made_runs.vectors(), {"epochs": 0})
