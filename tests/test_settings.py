"""Settings: what is given is what is meant, and what is wrong is said in words, all of it at once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError, field_validator, model_validator

from gated_domains.data.errors import DataError
from gated_domains.settings import Settings, from_yaml, parsed, plain, to_yaml


class Cosine(Settings):
    name: Literal["cosine"] = "cosine"
    kappa: float = Field(2.0, gt=0)
    how: Literal["projection", "sharp"] = "sharp"


class Projection(Settings):
    name: Literal["projection"] = "projection"
    ridge: float | None = None


class Training(Settings):
    epochs: int = Field(8, ge=1, le=1000)
    rate: float = Field(1e-3, gt=0)
    ema: bool = False
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"


class Recipe(Settings):
    data: str
    seed: int = 0
    training: Training = Training()
    gate: Annotated[Cosine | Projection, Field(discriminator="name")] = Cosine()
    sigma: float | Literal["median", "auto"] = "auto"
    hold_out: tuple[str, ...] = ()
    span: tuple[int, int] = (2, 10)
    widths: int | list[int] = 3
    methods: dict[str, Training] = {}  # noqa: RUF012
    stages: list[Training] = []  # noqa: RUF012
    gates: tuple[Annotated[Cosine | Projection, Field(discriminator="name")], ...] = ()
    warm: Training | int = 0
    either: Cosine | Training = Cosine()
    weights: dict[str, Annotated[float, Field(ge=0)]] = {}  # noqa: RUF012

    @field_validator("data")
    @classmethod
    def a_name(cls, value: str) -> str:
        if " " in value:
            raise ValueError(f"{value!r} has a space in it; give a name or a path")
        return value

    @model_validator(mode="after")
    def in_order(self) -> Recipe:
        if self.span[0] > self.span[1]:
            raise ValueError(f"span must rise, got {list(self.span)}")
        return self


def complaint(**fields: Any) -> str:
    with pytest.raises(DataError) as caught:
        parsed(Recipe, {"data": "digits", **fields}, "recipe.yaml")
    return str(caught.value)


def test_fields_become_settings_with_their_defaults():
    recipe = parsed(
        Recipe,
        {
            "data": "digits",
            "training": {"epochs": 3, "rate": 1},
            "gate": {"name": "projection"},
            "hold_out": ["mnist", "svhn"],
            "widths": [1, 2],
        },
        "recipe.yaml",
    )
    assert recipe.training == Training(epochs=3, rate=1.0)
    assert isinstance(recipe.training.rate, float)
    assert recipe.gate == Projection()
    assert recipe.hold_out == ("mnist", "svhn")
    assert recipe.seed == 0


def test_settings_may_be_given_among_plain_fields():
    fields = {"data": "digits", "training": Training(epochs=2), "gates": (Cosine(kappa=1), {"name": "projection"})}
    recipe = parsed(Recipe, fields, "here")
    assert recipe.training.epochs == 2
    assert recipe.gates == (Cosine(kappa=1), Projection())


def test_settings_cannot_be_changed():
    with pytest.raises(ValidationError):
        Training().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sead": 1}, "recipe.yaml: sead is not known; did you mean 'seed'?"),
        ({"training": {"epoch": 1}}, "recipe.yaml: training.epoch is not known; did you mean 'epochs'?"),
        ({"epochs": 1}, "recipe.yaml: epochs is not known; did you mean 'training.epochs'?"),
        ({"training": {"xyz": 1}}, "training.xyz is not known; there are ema, epochs, optimiser, rate"),
        ({"gate": {"name": "cosine", "kapa": 1}}, "recipe.yaml: gate.kapa is not known; did you mean 'kappa'?"),
        ({"methods": {"erm": {"epoch": 1}}}, "methods.erm.epoch is not known; did you mean 'epochs'?"),
        ({"stages": [{}, {"epoch": 1}]}, "stages[1].epoch is not known; did you mean 'epochs'?"),
    ],
)
def test_an_unknown_key_is_refused_with_its_path_and_the_nearest_known_one(fields, said):
    assert said in complaint(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seed": "ten"}, "recipe.yaml: seed must be a whole number, got 'ten'"),
        ({"seed": "3"}, "seed must be a whole number, got '3'"),
        ({"seed": True}, "seed must be a whole number, got true"),
        ({"seed": 3.0}, "seed must be a whole number, got 3.0"),
        ({"seed": None}, "seed must be a whole number, got null"),
        ({"training": {"ema": 1}}, "training.ema must be true or false, got 1"),
        ({"training": {"rate": "fast"}}, "training.rate must be a number above 0, got 'fast'"),
        ({"training": {"rate": True}}, "training.rate must be a number above 0, got true"),
        ({"training": 3}, "training must be a group of settings (epochs, rate, ema, optimiser), got 3"),
        ({"hold_out": "mnist"}, "hold_out must be a list, each text, got 'mnist'"),
        ({"hold_out": ["mnist", 5]}, "hold_out[1] must be text, got 5"),
        ({"span": ["a", 2]}, "span[0] must be a whole number, got 'a'"),
        ({"widths": [1, "b"]}, "widths[1] must be a whole number, got 'b'"),
        ({"widths": "b"}, "widths must be a whole number or a list, each a whole number, got 'b'"),
        ({"methods": [1]}, "methods must be a mapping of names, each to a group of settings"),
        ({"warm": {"epochs": "x"}}, "warm.epochs must be a whole number of at least 1 and of at most 1000, got 'x'"),
        (
            {"either": {"epochs": "x"}},
            "either.epochs must be a whole number of at least 1 and of at most 1000, got 'x'",
        ),
        ({"gate": {"name": "projection", "ridge": "x"}}, "gate.ridge must be a number or null, got 'x'"),
    ],
)
def test_a_wrong_type_is_said_with_path_value_and_what_is_expected(fields, said):
    assert said in complaint(**fields)
    assert "\n" not in complaint(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"training": {"epochs": 0}},
            "training.epochs must be a whole number of at least 1 and of at most 1000, got 0",
        ),
        ({"gate": {"name": "cosine", "kappa": -1}}, "gate.kappa must be a number above 0, got -1"),
        ({"weights": {"a": -0.5}}, "weights.a must be a number of at least 0, got -0.5"),
        ({"training": {"rate": math.nan}}, "training.rate must be finite, got nan"),
        ({"sigma": math.inf}, "sigma must be finite, got inf"),
    ],
)
def test_a_value_out_of_range_is_said_with_the_range(fields, said):
    assert said in complaint(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"training": {"optimiser": "adamv"}},
            "training.optimiser must be one of 'adam', 'adamw', 'sgd', got 'adamv'; did you mean",
        ),
        ({"sigma": "medan"}, "must be a number or one of 'median', 'auto', got 'medan'; did you mean 'median'?"),
        ({"gate": {"name": "cosin"}}, "recipe.yaml: gate.name: 'cosin' is not known; did you mean 'cosine'?"),
        ({"gate": {"kappa": 1}}, "recipe.yaml: gate.name is missing; it is one of cosine, projection"),
        ({"gates": [{"name": "x"}]}, "gates[0].name: 'x' is not known; there are cosine, projection"),
        ({"gate": "cosine"}, "gate must be a group of settings (name, kappa, how) or a group"),
    ],
)
def test_a_choice_that_is_not_there_is_said_with_the_nearest_one(fields, said):
    assert said in complaint(**fields)


def test_a_missing_setting_is_named():
    with pytest.raises(DataError, match=r"^recipe.yaml: data is missing; it must be text$"):
        parsed(Recipe, {}, "recipe.yaml")


def test_a_validator_of_ones_own_keeps_its_words():
    assert complaint(data="my data") == "recipe.yaml: data: 'my data' has a space in it; give a name or a path"
    assert complaint(span=[3, 1]) == "recipe.yaml: span must rise, got [3, 1]"


def test_all_that_is_wrong_is_said_at_once_up_to_eight():
    several = complaint(sead=1, seed="x", training={"epochs": 0}).splitlines()
    assert several[0] == "recipe.yaml: 3 settings are wrong"
    assert sorted(line.split()[0] for line in several[1:]) == ["sead", "seed", "training.epochs"]
    many = complaint(hold_out=list(range(20))).splitlines()
    assert len(many) == 1 + 8 + 1
    assert many[-1].strip() == "and 12 more"


def test_what_is_no_setting_at_all_is_refused():
    assert "is of the kind object; settings are text" in complaint(seed=object())
    circle: list[Any] = []
    circle.append(circle)
    assert "recipe.yaml" in complaint(widths=circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "recipe.yaml" in complaint(widths=deep)


def test_a_long_value_is_cut_and_kept_on_one_line():
    said = complaint(seed="x\n" * 5000)
    assert len(said) < 300
    assert "\n" not in said


def test_plain_writes_out_all_defaults_as_json_knows_them():
    fields = plain(parsed(Recipe, {"data": "digits", "hold_out": ["a"]}, "here"))
    assert fields["training"] == {"epochs": 8, "rate": 1e-3, "ema": False, "optimiser": "adam"}
    assert fields["hold_out"] == ["a"]
    assert fields["span"] == [2, 10]
    assert parsed(Recipe, fields, "here") == parsed(Recipe, {"data": "digits", "hold_out": ["a"]}, "here")


def test_plain_keeps_what_a_kind_adds_to_the_kind_it_stands_for():
    class Method(Settings):
        method: Settings

    assert plain(Method(method=Training(epochs=2)))["method"]["epochs"] == 2


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "recipe.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("-2e+3", -2e3),
        ("1.5e3", 1.5e3),
        (".5e1", 5.0),
        ("1.", 1.0),
        ("0.1", 0.1),
        ("12", 12),
        ("-12", -12),
        ("1_000", 1000),
        ("0", 0),
        ("true", True),
        ("False", False),
        ("", None),
        ("null", None),
        ("~", None),
        (".inf", math.inf),
        ("'1e-3'", "1e-3"),
        ("no", "no"),
        ("on", "on"),
        ("007", "007"),
        ("1:30", "1:30"),
        ("2024-05-01", "2024-05-01"),
        ("1e", "1e"),
        ("e3", "e3"),
        ("1e-3x", "1e-3x"),
        ("[1e-2, a]", [1e-2, "a"]),
        ("{1: a, true: b, no: c}", {"1": "a", "true": "b", "no": "c"}),
    ],
)
def test_yaml_values_are_what_they_look_like(tmp_path, text, value):
    found = from_yaml(written(tmp_path, f"key: {text}\n"))["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "recipe.yaml: the file is empty"),
        ("# only a comment\n", "recipe.yaml: the file is empty"),
        ("- a\n- b\n", "got a list"),
        ("hello\n", "got a line of text"),
        ("3\n", "got a single value"),
        ("a: 1\nb: [1, 2\nc: 3\n", "recipe.yaml, line 3: "),
        ("a: 1\nb:\n\tc: 3\n", "recipe.yaml, line 3: a tab where spaces are needed"),
        ("a: 1\nb: 2\na: 3\n", "recipe.yaml, line 3: 'a' is there twice"),
        ("a:\n  b: 2\n  b: 3\n", "recipe.yaml, line 3: 'b' is there twice"),
        ("a: 1\n? [1, 2]\n: 3\n", "recipe.yaml, line 2: a name must be one word"),
        ("a: &x [1]\nb: *x\n", "recipe.yaml, line 2: anchors and aliases"),
        ("a: !!python/object/apply:os.getcwd []\n", "recipe.yaml, line 1: could not determine a constructor"),
        ("a: 1\n---\nb: 2\n", "recipe.yaml, line 2: "),
        ("a: !!int x\n", "recipe.yaml: "),
        ("a: " + "[" * 1000, "recipe.yaml: nested too deeply"),
        (b"a: \xff\xfe\n", "recipe.yaml: "),
        (b"a: \x00\n", "recipe.yaml: "),
        (b"a: 1\n" * 300_000, "bytes are too many"),
    ],
)
def test_damaged_yaml_is_refused_with_file_and_line(tmp_path, text, said):
    with pytest.raises(DataError) as caught:
        from_yaml(written(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_an_error_of_the_disk(tmp_path):
    with pytest.raises(FileNotFoundError):
        from_yaml(tmp_path / "none.yaml")


words = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words
values = st.recursive(
    scalars | st.sampled_from(["1e-3", "no", "007", "1_0", "0x1f", "~", "<<", "=", "1:30", "2024-05-01", ".5", "- a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(fields=st.dictionaries(words, values, min_size=1, max_size=4))
def test_what_is_written_as_yaml_is_read_back_the_same(tmp_path_factory, fields):
    path = tmp_path_factory.mktemp("yaml") / "recipe.yaml"
    path.write_text(to_yaml(fields), "utf-8", newline="")
    assert from_yaml(path) == fields


def test_yaml_keeps_the_order_given():
    assert to_yaml({"b": 1, "a": [1e-5, "x"]}).splitlines()[0] == "b: 1"
