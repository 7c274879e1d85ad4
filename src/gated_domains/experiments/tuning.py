"""Tuning: trials of every method's settings as ordinary runs, and the choice by the rule that selects epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.experiments.proposals import TUNERS, Proposal, Proposals, searched
from gated_domains.runs.folder import TUNING, RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.result import RunResult
from gated_domains.runs.storage import run_hash
from gated_domains.settings import parsed, plain

TRIAL_SEED = 0
_FORMAT = 1
_MOST_NAMED = 6  # hold-outs whose settings stand under a table

RunAll = Callable[[Sequence[Recipe]], Sequence[RunFolder]]
"""Makes runs and returns their folders, in order; one whose loss became NaN or infinite is not done."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One set of settings, the run that tried it, and what the selection rule made of that; None where it broke off."""

    settings: Proposal
    run: str
    score: float | None


@dataclass(frozen=True, kw_only=True)
class Search:
    """The trials of one method on one hold-out; ``asked`` is the recipe that a person asked for, with seed 0."""

    asked: Recipe
    ranges: dict[str, Any]
    trials: tuple[Trial, ...]

    @property
    def chosen(self) -> int | None:
        """The trial with the best score, of equals the first, and so rather the defaults; None if all failed."""
        scores = [trial.score for trial in self.trials]
        known = [score for score in scores if score is not None and math.isfinite(score)]
        return scores.index(max(known)) if known else None

    @property
    def settings(self) -> Proposal:
        """The settings that were chosen; refused if every trial failed."""
        if self.chosen is None:
            raise DataError(
                f"{self.asked.label}, {self.asked.hold_out} held out: none of {len(self.trials)} trials came to a "
                "score; lower the rate, or fix it (--rate)"
            )
        return self.trials[self.chosen].settings


def with_settings(recipe: Recipe, proposal: Proposal) -> Recipe:
    """The recipe with some settings of its method and of its training changed."""
    method = recipe.method
    own = {name: value for name, value in proposal.items() if name in type(method.settings).model_fields}
    training = {name: value for name, value in proposal.items() if name not in own}
    settings = parsed(type(method.settings), {**plain(method.settings), **own}, f"method {method.name}")
    changed = method.model_copy(update={"settings": settings, "training": {**method.training, **training}})
    return recipe.with_method(changed)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What was searched, and how: a search for each method on each hold-out, by what tells those apart."""

    tuner: str
    count: int
    seed: int
    searches: dict[str, Search]

    def settled(self, recipe: Recipe) -> Recipe:
        """A recipe that was asked for, of whatever seed, with the settings chosen for its method and hold-out."""
        return with_settings(recipe, self.searches[_key(recipe)].settings)

    def label_result(self, recipe: Recipe, result: RunResult) -> RunResult:
        """The result of a settled recipe as it stands in a table: by the name of what was asked for, with notes."""
        search = self.searches[_key(recipe)]
        if len(search.trials) == 1:
            return result
        return replace(result, label=f"{recipe.label} (tuned)", notes=(*result.notes, *self._notes(search, result)))

    def _notes(self, search: Search, result: RunResult) -> list[str]:
        how = "drawn from its ranges" if self.tuner == "random" else f"proposed by {self.tuner}"
        ours = [other for other in self.searches.values() if other.asked.method == search.asked.method]
        known = [other for other in ours if other.chosen is not None]
        chosen = [f"{_named(other.asked)}: {_written(other.settings)}" for other in known[:_MOST_NAMED]]
        chosen += [f"and so on for {len(known) - _MOST_NAMED} more"] * (len(known) > _MOST_NAMED)
        broken = sum(trial.score is None for other in ours for trial in other.trials)
        return [
            f"tuned: of {self.count} trials for each method and hold-out (its defaults, and settings {how}), each made "
            f"once, with seed {TRIAL_SEED}, the best by {result.selection} was chosen; all of them are in {TUNING}",
            f"chosen settings: {'; '.join(chosen)}" + f"; {broken} trials broke off" * bool(broken),
        ]

    def as_json(self) -> dict[str, Any]:
        """What ``tuning.json`` holds."""
        return {
            "format": _FORMAT,
            "tuner": self.tuner,
            "trials": self.count,
            "seed": self.seed,
            "searches": [
                {
                    "method": search.asked.method.name,
                    "label": search.asked.label,
                    "hold_out": search.asked.hold_out,
                    "selection": search.asked.selection,
                    "ranges": search.ranges,
                    "trials": [asdict(trial) for trial in search.trials],
                    "chosen": search.chosen,
                    "settings": None if search.chosen is None else search.settings,
                }
                for search in self.searches.values()
            ],
        }


def tune(
    recipes: Sequence[Recipe],
    count: int,
    *,
    seed: int,
    tuner: str = "random",
    fixed: Collection[str] = (),
    run_all: RunAll,
) -> Tuning:
    """Try ``count`` settings for each method and hold-out among the recipes, all with the same seed, and choose.

    ``fixed`` names settings of training that a person has set for all methods.
    """
    if count < 2:
        raise DataError(f"the first trial is the defaults: tune with 2 trials or more, got {count}")
    if tuner not in TUNERS:
        raise DataError(f"there is no tuner {tuner!r}{did_you_mean(tuner, TUNERS)}")
    if any(recipe.selection == "last" for recipe in recipes):
        raise DataError("the last epoch is kept whatever it scores, so that chooses no trial; give another --selection")
    asked: dict[str, Recipe] = {}
    for recipe in recipes:
        asked.setdefault(_key(recipe), recipe.replace(seed=TRIAL_SEED))
    under_way = [
        _Open(recipe, TUNERS[tuner](recipe.method, count, seed=seed, fixed=fixed)) for recipe in asked.values()
    ]
    while due := [recipe for search in under_way for recipe in search.ask()]:
        runs = _run_once(due, run_all)
        for search in under_way:
            search.tell(runs)
    ended = [search.ended(fixed) for search in under_way]
    return Tuning(tuner=tuner, count=count, seed=seed, searches=dict(zip(asked, ended, strict=True)))


class _Open:
    """A search under way."""

    def __init__(self, asked: Recipe, proposals: Proposals) -> None:
        self.asked, self.proposals = asked, proposals
        self.proposed: list[Proposal] = []
        self.trials: list[Trial] = []

    def ask(self) -> list[Recipe]:
        """The recipes of the next round, none when it is over."""
        self.proposed = self.proposals.ask()
        return self._recipes()

    def tell(self, runs: Mapping[str, RunFolder]) -> None:
        """What came of the round: its runs by identity, among others."""
        found = [runs[_identity(recipe)] for recipe in self._recipes()]
        scores = [_score(run) for run in found]
        self.proposals.tell(scores)
        self.trials += [
            Trial(settings=proposal, run=run.name, score=score)
            for proposal, run, score in zip(self.proposed, found, scores, strict=True)
        ]

    def ended(self, fixed: Collection[str]) -> Search:
        ranges = {name: asdict(span) for name, span in searched(self.asked.method, fixed).items()}
        return Search(asked=self.asked, ranges=ranges, trials=tuple(self.trials))

    def _recipes(self) -> list[Recipe]:
        return [with_settings(self.asked, proposal) for proposal in self.proposed]


def _run_once(recipes: Sequence[Recipe], run_all: RunAll) -> dict[str, RunFolder]:
    """The runs of all recipes by identity; two that are the same are one run."""
    once = {_identity(recipe): recipe for recipe in recipes}
    return dict(zip(once, run_all(list(once.values())), strict=True))


def _score(run: RunFolder) -> float | None:
    return run.result().selection_score if run.done else None


def _identity(recipe: Recipe) -> str:
    return run_hash(recipe.identity())


def _key(recipe: Recipe) -> str:
    """What is searched once: a method on a hold-out, with whatever seed and whatever split goes with it."""
    return _identity(recipe.replace(seed=TRIAL_SEED, split_seed=0))


def _named(recipe: Recipe) -> str:
    first, *others = str(recipe.hold_out).split("+")
    return f"{first} and {len(others)} more" if others else first


def _written(settings: Proposal) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "the defaults"
