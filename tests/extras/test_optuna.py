"""Tuning by Optuna: the defaults first, the same seed the same trials, and draws near what did well."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gated_domains.experiments.optuna_search import ROUND, OptunaSearch
from gated_domains.experiments.recipe_checks import choose_method
from gated_domains.experiments.tuning import tune
from gated_domains.settings.search import Between, OneOf
from made_runs import Watcher, recipe, runner, vectors

pytestmark = pytest.mark.extras

optuna = pytest.importorskip("optuna")

SPACE = {
    "rate": Between(1e-4, 1e-2, log=True),
    "layers": Between(1, 8, whole=True),
    "kind": OneOf((None, "b", "c")),
    "decay": Between(1e-6, 1e-2, log=True),
}
DEFAULTS = {"rate": 1e-3, "layers": 2, "kind": None, "decay": 0.0}


def searched(score: Callable[[dict[str, Any]], float | None], count: int, *, seed: int = 0) -> list[list[dict]]:
    """The rounds of a search with this score; of the first trial, which is not written out, the defaults'."""
    search = OptunaSearch(SPACE, DEFAULTS, count, seed=seed)
    rounds = []
    while asked := search.ask():
        rounds.append(asked)
        search.tell([score({**DEFAULTS, **settings}) for settings in asked])
    return rounds


def test_the_defaults_come_first_though_one_lies_beyond_its_range():
    rounds = searched(lambda settings: 0.0, 10)
    assert rounds[0][0] == {}
    assert [len(some) for some in rounds] == [ROUND, ROUND, 2]


def test_values_lie_in_their_ranges_and_are_of_their_kind():
    first, *others = [settings for some in searched(lambda settings: 0.0, 30) for settings in some]
    assert first == {}
    for settings in others:
        assert list(settings) == list(SPACE)
        assert 1e-4 <= settings["rate"] <= 1e-2
        assert settings["rate"] == float(f"{settings['rate']:.4g}")
        assert type(settings["layers"]) is int
        assert 1 <= settings["layers"] <= 8
        assert settings["kind"] in (None, "b", "c")


def test_the_same_seed_proposes_the_same_after_the_same_scores_and_another_something_else():
    def score(settings: dict[str, Any]) -> float:
        return -abs(np.log(settings["rate"] / 5e-3))

    assert searched(score, 12) == searched(score, 12)
    assert searched(score, 12) != searched(score, 12, seed=1)
    assert searched(score, 12) != searched(lambda settings: -score(settings), 12)


def test_it_draws_near_what_did_well():
    def away(settings: dict[str, Any]) -> float:
        return abs(np.log10(settings["rate"] / 5e-3)) + 0.1 * (settings["kind"] != "c")

    last = [
        np.mean([away(settings) for some in searched(lambda s: -away(s), 48, seed=seed)[-3:] for settings in some])
        for seed in range(3)
    ]
    rng = np.random.default_rng(0)
    by_chance = np.mean([away({name: span.draw(rng) for name, span in SPACE.items()}) for _ in range(500)])
    assert max(last) < 0.6 * by_chance


def test_trials_that_broke_off_are_no_trouble():
    rounds = searched(lambda settings: None if settings["rate"] > 1e-3 else 1.0, 12)
    assert sum(len(some) for some in rounds) == 12


def test_where_nothing_is_left_to_search_the_defaults_are_the_one_trial():
    search = OptunaSearch({}, {}, 8, seed=0)
    assert search.ask() == [{}]
    search.tell([0.5])
    assert search.ask() == []


def test_no_word_of_it_reaches_the_person(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        searched(lambda settings: 0.0, 6)
    assert capsys.readouterr() == ("", "")


def test_a_tuning_goes_on_where_it_was_and_finds_the_same(tmp_path):
    def tuned(callback: Watcher) -> list[Any]:
        maker = runner(vectors(), tmp_path, callback=callback)
        asked = [recipe(hold_out=name).with_method(choose_method("erm")) for name in ("north", "west")]
        found = tune(asked, 6, seed=3, tuner="optuna", run_all=lambda some: [maker.run(trial) for trial in some])
        return [(s.chosen, [(trial.settings, trial.score) for trial in s.trials]) for s in found.searches.values()]

    first, again = Watcher(), Watcher()
    whole = tuned(first)
    assert len(first.began) == 12
    assert tuned(again) == whole
    assert again.began == []
