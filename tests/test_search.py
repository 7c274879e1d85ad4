"""Ranges of settings: what is drawn from them, and that every range of the package holds values it may hold."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import pytest
from pydantic import Field

from gated_domains.methods import METHODS
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.settings import Settings, parsed
from gated_domains.settings.search import Between, OneOf, drawn, search_space


class Example(Settings):
    weight: Annotated[float, Between(0.1, 10, log=True)] = Field(default=1.0, ge=0)
    layers: Annotated[int, Between(1, 4, whole=True)] = 2
    kind: Annotated[str, OneOf(("a", "b"))] = "a"
    fixed: float = Field(default=0.5, ge=0)


def draws(span: Between | OneOf, count: int = 4_000, seed: int = 0) -> list:
    rng = np.random.default_rng(seed)
    return [span.draw(rng) for _ in range(count)]


def test_a_range_stands_beside_its_default_and_what_has_none_is_not_searched():
    assert search_space(Example) == {
        "weight": Between(0.1, 10, log=True),
        "layers": Between(1, 4, whole=True),
        "kind": OneOf(("a", "b")),
    }
    assert Example().weight == 1.0
    assert list(drawn(search_space(Example), np.random.default_rng(0))) == ["weight", "layers", "kind"]


def test_numbers_are_spread_evenly_over_a_range():
    values = draws(Between(2, 6))
    assert min(values) >= 2
    assert max(values) <= 6
    shares, _ = np.histogram(values, bins=4, range=(2, 6))
    np.testing.assert_allclose(shares / len(values), 0.25, atol=0.03)


def test_with_log_every_power_of_ten_gets_the_same_share():
    values = np.log10(draws(Between(1e-4, 1e-1, log=True)))
    shares, _ = np.histogram(values, bins=3, range=(-4, -1))
    assert shares.sum() == len(values)
    np.testing.assert_allclose(shares / len(values), 1 / 3, atol=0.03)


def test_whole_numbers_are_whole_and_the_first_and_the_last_come_as_often_as_the_others():
    values = draws(Between(1, 4, whole=True))
    assert all(type(value) is int for value in values)
    assert sorted(set(values)) == [1, 2, 3, 4]
    np.testing.assert_allclose(np.bincount(values)[1:] / len(values), 0.25, atol=0.03)


def test_whole_numbers_in_logarithm_favour_small_ones_and_reach_both_ends():
    values = draws(Between(1, 100, log=True, whole=True))
    assert (min(values), max(values)) == (1, 100)
    assert all(type(value) is int for value in values)
    edges = math.log(0.5), math.log(100.5)
    expected = (math.log(10.5) - edges[0]) / (edges[1] - edges[0])
    assert np.mean(np.array(values) <= 10) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("span", [Between(0.123456, 0.123457), Between(1e-5 / 3, 2e-5 / 3, log=True)], ids=str)
def test_rounding_to_four_digits_never_leaves_the_range(span):
    assert all(span.low <= value <= span.high for value in draws(span, 200))


def test_a_drawn_number_has_four_digits():
    assert all(float(f"{value:.4g}") == value for value in draws(Between(0.1, 10, log=True), 200))


def test_one_of_some_values_comes_as_often_as_another():
    values = draws(OneOf((1, None, "x")))
    np.testing.assert_allclose([values.count(value) / len(values) for value in (1, None, "x")], 1 / 3, atol=0.03)


def test_the_same_generator_draws_the_same():
    assert draws(Between(0, 1), 20, seed=3) == draws(Between(0, 1), 20, seed=3)
    assert draws(Between(0, 1), 20, seed=3) != draws(Between(0, 1), 20, seed=4)


@pytest.mark.parametrize(
    ("bounds", "more", "words"),
    [
        ((1, 1), {}, "from a lower to a higher"),
        ((2, 1), {}, "from a lower to a higher"),
        ((math.nan, 1), {}, "from a lower to a higher"),
        ((0, 1), {"log": True}, "above 0 with log"),
        ((0.5, 3), {"whole": True}, "begins and ends with one"),
    ],
    ids=["empty", "reversed", "nan", "log of 0", "half"],
)
def test_a_range_that_is_none_is_refused(bounds, more, words):
    with pytest.raises(ValueError, match=words):
        Between(*bounds, **more)


def test_one_value_is_no_choice():
    with pytest.raises(ValueError, match="two values or more"):
        OneOf(("a",))


# -- the ranges of the package -----------------------------------------------------------------------------------------

SETTINGS = {**{name: kind.settings_type for name, kind in METHODS.items()}, "training": TrainingSettings}


def test_rate_and_weight_decay_are_searched_for_every_method():
    assert list(search_space(TrainingSettings)) == ["rate", "weight_decay"]


@pytest.mark.parametrize("name", SETTINGS)
def test_whatever_is_drawn_may_stand_in_the_settings(name):
    kind, rng = SETTINGS[name], np.random.default_rng(0)
    for _ in range(20):
        values = drawn(search_space(kind), rng)
        made = parsed(kind, values, name)
        assert {key: getattr(made, key) for key in values} == values


@pytest.mark.parametrize("name", SETTINGS)
def test_a_default_lies_in_its_range_or_switches_something_off(name):
    kind = SETTINGS[name]
    for key, span in search_space(kind).items():
        default = getattr(kind(), key)
        if isinstance(span, OneOf):
            assert default in span.values, key
        else:
            assert default == 0 or span.low <= default <= span.high, key


@pytest.mark.parametrize("name", METHODS)
def test_no_setting_of_a_method_is_called_like_one_of_training(name):
    assert not set(METHODS[name].settings_type.model_fields) & set(TrainingSettings.model_fields)
