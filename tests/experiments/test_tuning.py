"""Tuning: what is tried, what is chosen and by what, and that trials are runs like all others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.experiments import proposals
from gated_domains.experiments.compare import run_despite_failures
from gated_domains.experiments.proposals import Proposal, random_proposals, searched
from gated_domains.experiments.recipe_checks import choose_method, parse_methods
from gated_domains.experiments.runner import Runner
from gated_domains.experiments.tuning import Search, Trial, Tuning, tune, with_settings
from gated_domains.methods import ERM, METHODS
from gated_domains.methods.erm import ERMSettings
from gated_domains.reports.table import Comparison
from gated_domains.runs.folder import RunFolder, all_runs
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.result import read_results
from gated_domains.runs.storage import write_json
from gated_domains.settings.search import Between, OneOf
from gated_domains.training.callbacks.stopping import NotFiniteError
from made_runs import NothingIsTrained, Watcher, made_up_result, recipe, runner, vectors


class RangedSettings(ERMSettings):
    weight: Annotated[float, Between(0.1, 10, log=True)] = 1.0
    kind: Annotated[str, OneOf(("a", "b"))] = "a"
    other: float = 0.5


class Ranged(ERM):
    name, label, settings_type = "ranged", "Ranged", RangedSettings


@pytest.fixture(autouse=True)
def _with_a_method_that_has_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "ranged", Ranged)


class Made:
    """Runs that nobody trains: folders with a score that a function gives for each recipe; None leaves one undone."""

    def __init__(self, root: Path, score: Callable[[Recipe], float | None]) -> None:
        self.root, self.score = root, score
        self.rounds: list[list[Recipe]] = []

    def __call__(self, recipes: Sequence[Recipe]) -> list[RunFolder]:
        self.rounds.append(list(recipes))
        return [self._run(recipe) for recipe in recipes]

    def _run(self, recipe: Recipe) -> RunFolder:
        run = RunFolder.open(self.root, recipe.identity(), data={"name": "none"})
        if (score := self.score(recipe)) is not None and not run.done:
            run.finish(made_up_result(selection_score=score))
        return run


def tuned(methods: str, count: int, run_all: Any, *, hold_outs: str = "north", seeds: int = 1, **more: Any) -> Tuning:
    return tune(asked(methods, hold_outs, seeds), count, seed=more.pop("seed", 0), run_all=run_all, **more)


def asked(methods: str, hold_outs: str = "north", seeds: int = 1) -> list[Recipe]:
    chosen = parse_methods(methods)
    grid = [(seed, name, method) for seed in range(seeds) for name in hold_outs.split(",") for method in chosen]
    return [recipe(hold_out=name, seed=seed).with_method(method) for seed, name, method in grid]


# -- what is tried -----------------------------------------------------------------------------------------------------


def test_a_methods_own_ranges_are_searched_and_the_rate_and_weight_decay_of_every_method():
    assert list(searched(choose_method("erm"))) == ["rate", "weight_decay"]
    assert list(searched(choose_method("ranged"))) == ["weight", "kind", "rate", "weight_decay"]


def test_the_defaults_come_first_and_the_others_lie_in_their_ranges():
    first, *others = random_proposals(choose_method("ranged"), 30, seed=0)
    assert first == {}
    assert len(others) == 29
    for proposal in others:
        assert list(proposal) == ["weight", "kind", "rate", "weight_decay"]
        assert 0.1 <= proposal["weight"] <= 10
        assert 1e-4 <= proposal["rate"] <= 1e-2
    assert len({proposal["rate"] for proposal in others}) == 29


def test_what_a_person_has_set_is_not_searched_and_moves_no_other_draw():
    free = random_proposals(choose_method("ranged"), 5, seed=0)
    bound = random_proposals(choose_method("ranged", {"weight": 3.0, "rate": 1e-3}), 5, seed=0, fixed=["kind"])
    assert bound == [{name: trial[name] for name in trial if name == "weight_decay"} for trial in free]


def test_even_a_default_is_fixed_by_writing_it_down():
    assert "weight" not in searched(choose_method("ranged", {"weight": 1.0}))


def test_draws_hang_on_seed_method_and_number_alone():
    few, many = (random_proposals(choose_method("erm"), count, seed=0) for count in (3, 8))
    assert many[:3] == few
    assert random_proposals(choose_method("erm"), 3, seed=1)[1:] != few[1:]
    other = random_proposals(choose_method("linear"), 3, seed=0)
    assert [trial.keys() for trial in other] == [trial.keys() for trial in few]
    assert other[1:] != few[1:]


def test_every_hold_out_gets_the_same_draws_whatever_stands_beside(tmp_path):
    alone, beside = Made(tmp_path, lambda recipe: 0.0), Made(tmp_path, lambda recipe: 0.0)
    tuned("ranged", 4, alone, hold_outs="north")
    tuned("erm,ranged", 4, beside, hold_outs="west,north")
    (one,), (both,) = alone.rounds, beside.rounds
    rates = {
        name: [trial.training.rate for trial in both if (trial.method.name, trial.hold_out) == ("ranged", name)]
        for name in ("north", "west")
    }
    assert rates["north"] == rates["west"] == [trial.training.rate for trial in one]


def test_trials_are_made_with_one_seed_however_many_are_asked_for(tmp_path):
    made = Made(tmp_path, lambda recipe: 0.0)
    tuned("erm", 4, made, hold_outs="north,west", seeds=5)
    (all_at_once,) = made.rounds
    assert len(all_at_once) == 2 * 4
    assert {trial.seed for trial in all_at_once} == {0}


def test_the_same_trial_is_never_run_twice_at_a_time(tmp_path):
    made = Made(tmp_path, lambda recipe: 0.0)
    tuning = tuned("ranged[weight=2,kind=a]", 4, made, fixed=["rate", "weight_decay"])
    (search,) = tuning.searches.values()
    assert (len(search.trials), len(made.rounds[0])) == (1, 1)  # nothing is left to search
    tuned("ranged[weight=2]", 8, made, fixed=["rate", "weight_decay"])
    assert len(made.rounds[1]) == 2  # a, the default, and b


def test_settings_go_where_they_belong():
    found = with_settings(recipe("ranged", settings={"other": 2.0}), {"weight": 3.0, "rate": 5e-3})
    assert (found.method.settings.weight, found.method.settings.other) == (3.0, 2.0)
    assert (found.training.rate, found.training.epochs) == (5e-3, 2)
    assert found.method.training == {"rate": 5e-3}
    assert with_settings(recipe("ranged"), {}).identity() == recipe("ranged").identity()


# -- what is chosen ----------------------------------------------------------------------------------------------------


def search(*scores: float | None) -> Search:
    trials = tuple(Trial(settings={"rate": 0.1 * at}, run=str(at), score=score) for at, score in enumerate(scores))
    return Search(asked=recipe("erm"), ranges={}, trials=trials)


def test_the_highest_number_is_chosen_and_the_first_of_equals():
    assert search(0.5, 0.7, 0.6).chosen == 1
    assert search(0.5, 0.5, 0.4).chosen == 0
    assert search(None, -2.0, float("nan"), -1.0).chosen == 3


def test_where_no_trial_came_to_an_end_nothing_is_chosen_and_the_settings_are_refused():
    assert search(None, None).chosen is None
    with pytest.raises(DataError, match="ERM, north held out: none of 2 trials came to a score"):
        _ = search(None, None).settings


def test_each_hold_out_gets_the_settings_that_did_best_there_for_every_seed(tmp_path):
    recipes = asked("erm", "north,west", seeds=2)
    made = Made(tmp_path, lambda r: r.training.rate if r.hold_out == "north" else -r.training.rate)
    tuning = tune(recipes, 6, seed=0, run_all=made)
    settled = [tuning.settled(recipe) for recipe in recipes]
    tried = {trial.training.rate for trial in made.rounds[0]}
    assert [(r.hold_out, r.seed, r.training.rate) for r in settled] == [
        (name, seed, best) for seed in (0, 1) for name, best in (("north", max(tried)), ("west", min(tried)))
    ]
    assert {r.identity()["method"]["name"] for r in settled} == {"erm"}


def test_a_trial_that_broke_off_is_never_chosen(tmp_path):
    made = Made(tmp_path, lambda r: None if r.training.rate > 1e-3 else r.training.rate)
    tuning = tuned("erm", 8, made)
    (search,) = tuning.searches.values()
    assert 0 < sum(trial.score is None for trial in search.trials) < 8
    assert tuning.settled(recipe()).training.rate <= 1e-3


class Halving:
    """Proposals in rounds: of two rates the better one, then half of it."""

    def __init__(self, method: Any, count: int, *, seed: int, fixed: Sequence[str] = ()) -> None:
        self.left, self.best, self.asked = count, 1.0, []

    def ask(self) -> list[Proposal]:
        self.asked = [{"rate": self.best}, {"rate": self.best / 2}][: self.left]
        self.left -= len(self.asked)
        return list(self.asked)

    def tell(self, scores: Sequence[float | None]) -> None:
        if scores:
            self.best = self.asked[int(np.argmax(scores))]["rate"]


def test_a_tuner_that_learns_hears_of_each_round_before_the_next(tmp_path, monkeypatch):
    monkeypatch.setitem(proposals.TUNERS, "halving", Halving)
    made = Made(tmp_path, lambda r: -abs(r.training.rate - 0.2) if r.hold_out == "north" else r.training.rate)
    tuning = tuned("erm", 6, made, hold_outs="north,west", tuner="halving")
    rates = [[(r.hold_out, r.training.rate) for r in some] for some in made.rounds]
    assert rates == [
        [("north", 1.0), ("north", 0.5), ("west", 1.0), ("west", 0.5)],
        [("north", 0.5), ("north", 0.25), ("west", 1.0), ("west", 0.5)],
        [("north", 0.25), ("north", 0.125), ("west", 1.0), ("west", 0.5)],
    ]
    assert tuning.settled(recipe()).training.rate == 0.25
    assert [len(search.trials) for search in tuning.searches.values()] == [6, 6]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"count": 1}, "2 trials or more, got 1"),
        ({"tuner": "rnadom"}, "did you mean 'random'"),
        ({"selection": "last"}, "another --selection"),
    ],
    ids=["one trial", "unknown tuner", "last epoch"],
)
def test_what_cannot_be_tuned_is_refused_before_anything_runs(more, words, tmp_path):
    made = Made(tmp_path, lambda recipe: 0.0)
    recipes = [found.replace(selection=more.get("selection", "source_validation")) for found in asked("erm")]
    with pytest.raises(DataError, match=words):
        tune(recipes, more.get("count", 3), seed=0, tuner=more.get("tuner", "random"), run_all=made)
    assert made.rounds == []


def test_without_optuna_the_command_that_installs_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(DataError, match=r"pip install 'gated-domains\[tune\]'"):
        tuned("erm", 3, Made(tmp_path, lambda recipe: 0.0), tuner="optuna")


# -- with trainings ----------------------------------------------------------------------------------------------------


def poisoned() -> DomainDataset:
    """The same data, but for nonsense in the domain that is held out."""
    clean = vectors()
    values, targets, away = clean.inputs.values.copy(), clean.targets.copy(), clean.rows_of("north")
    values[away], targets[away] = 50 * values[away] ** 2, 1 - targets[away]
    names = {"name": clean.name, "class_names": clean.class_names, "domain_names": clean.domain_names}
    return DomainDataset.from_arrays(values, targets, clean.domains, **names)


def by(maker: Runner) -> Callable[[Sequence[Recipe]], list[RunFolder]]:
    return lambda recipes: [maker.run(recipe) for recipe in recipes]


def told(tuning: Tuning) -> list[Any]:
    return [
        [(trial.settings, trial.score) for trial in search.trials] + [search.chosen]
        for search in tuning.searches.values()
    ]


def test_the_held_out_domain_chooses_nothing(tmp_path):
    makers = [runner(vectors(), tmp_path / "clean"), runner(poisoned(), tmp_path / "poisoned")]
    clean, other = (tuned("erm", 3, by(maker)) for maker in makers)
    assert told(clean) == told(other)
    tests = [[run.result().to_json()["test"]["overall"] for run in all_runs(maker.root)] for maker in makers]
    assert sorted(tests[0]) != sorted(tests[1])  # the poison works


def test_a_trial_is_chosen_by_the_number_that_selects_its_epoch(tmp_path):
    maker = runner(vectors(), tmp_path)
    tuning = tuned("erm", 3, by(maker))
    (search,) = tuning.searches.values()
    for trial in search.trials:
        result = RunFolder(tmp_path / trial.run).result().to_json()
        assert trial.score == result["selection_score"] == pytest.approx(result["validation"]["overall"])
    assert search.chosen == int(np.argmax([trial.score for trial in search.trials]))


def test_what_was_tried_is_found_again_and_the_chosen_one_is_not_trained_twice(tmp_path):
    callback = Watcher()
    tuning = tuned("erm", 3, by(runner(vectors(), tmp_path, callback=callback)))
    assert len(callback.began) == len(all_runs(tmp_path)) == 3
    again = runner(vectors(), tmp_path, callback=NothingIsTrained())
    assert told(tuned("erm", 3, by(again))) == told(tuning)
    again.run(tuning.settled(recipe()))


def test_a_loss_that_becomes_no_number_ends_one_trial_and_not_the_search(tmp_path):
    maker = runner(vectors(), tmp_path, callback=(callback := Watcher()))
    wild = {"rate": 1e30}

    class Wild(Halving):
        def ask(self) -> list[Proposal]:
            self.left, left = 0, self.left
            return [{}, wild, {"rate": 1e-3}] if left else []

        def tell(self, scores: Sequence[float | None]) -> None:
            pass

    proposals.TUNERS["wild"] = Wild
    try:
        run_all = run_despite_failures(maker, by(maker))
        tuning = tuned("linear", 3, run_all, tuner="wild")
        (search,) = tuning.searches.values()
        assert [trial.score is None for trial in search.trials] == [False, True, False]
        began = len(callback.began)
        tuned("linear", 3, run_all, tuner="wild")
        assert len(callback.began) == began  # neither what is done nor what broke is tried again
    finally:
        del proposals.TUNERS["wild"]
    with pytest.raises(NotFiniteError):
        maker.run(with_settings(recipe("linear"), wild))  # asked for by itself it is


def test_an_error_of_another_kind_is_passed_on(tmp_path):
    maker = runner(vectors(), tmp_path)

    def fails(recipes: Sequence[Recipe]) -> None:
        raise NotFiniteError("of a run that nobody asked for")

    with pytest.raises(NotFiniteError, match="nobody asked for"):
        run_despite_failures(maker, fails)(asked("erm"))


# -- what is said of it ------------------------------------------------------------------------------------------------


def test_a_table_names_tuned_rows_says_how_and_keeps_all_trials_in_a_file(tmp_path):
    maker = runner(vectors(), tmp_path)
    recipes = asked("erm,ranged[weight=2]", "north,west")
    tuning = tune(recipes, 2, seed=0, fixed=["weight_decay"], run_all=by(maker))
    results = [tuning.label_result(found, read_results(maker.run(tuning.settled(found)).path)[0]) for found in recipes]
    assert [result.label for result in results] == 2 * ["ERM (tuned)", "Ranged [weight=2] (tuned)"]
    text = Comparison(results).markdown()
    assert "| ERM (tuned) |" in text
    assert "of 2 trials for each method and hold-out" in text
    assert "by mean source validation accuracy" in text
    assert text.count("tuning.json") == 1
    assert "chosen settings: north: " in text

    write_json(tmp_path / "tuning.json", tuning.as_json())
    kept = json.loads((tmp_path / "tuning.json").read_text())
    assert (kept["tuner"], kept["trials"], kept["seed"]) == ("random", 2, 0)
    assert [(s["method"], s["hold_out"]) for s in kept["searches"]] == [
        (method, name) for name in ("north", "west") for method in ("erm", "ranged")
    ]
    ranged = kept["searches"][1]
    assert list(ranged["ranges"]) == list(ranged["trials"][1]["settings"]) == ["kind", "rate"]
    assert ranged["settings"] == ranged["trials"][ranged["chosen"]]["settings"]
    assert {trial["run"] for s in kept["searches"] for trial in s["trials"]} == {run.name for run in all_runs(tmp_path)}


def test_a_note_says_for_each_hold_out_what_was_chosen_and_how_many_trials_broke_off(tmp_path):
    result = read_results(runner(vectors(), tmp_path / "one").run(recipe()).path)[0]
    names = [f"site {number}" for number in range(1, 8)]
    recipes = [recipe(hold_out=name) for name in [*names, "a+b"]]

    def score(trial: Recipe) -> float | None:
        if trial.hold_out == "a+b":
            return None if trial.method.training else 0.0
        return trial.training.rate if trial.hold_out == "site 1" else 0.0

    tuning = tune(recipes, 4, seed=0, fixed=["weight_decay"], run_all=Made(tmp_path / "many", score))
    rate = max(trial["rate"] for trial in random_proposals(choose_method("erm"), 4, seed=0)[1:])
    found = tuning.label_result(recipes[0], replace(result, label="ERM [rate=0.1]"))
    assert found.label == "ERM (tuned)"
    how, chosen = found.notes[len(result.notes) :]
    assert "of 4 trials" in how
    others = "".join(f"; site {number}: the defaults" for number in range(2, 7))
    assert chosen == f"chosen settings: site 1: rate={rate}{others}; and so on for 2 more; 3 trials broke off"


def test_a_method_that_has_nothing_left_to_search_keeps_its_name(tmp_path):
    maker = runner(vectors(), tmp_path)
    (found,) = asked("erm")
    tuning = tune([found], 3, seed=0, fixed=["rate", "weight_decay"], run_all=by(maker))
    result = read_results(maker.run(tuning.settled(found)).path)[0]
    assert tuning.label_result(found, result) == result
