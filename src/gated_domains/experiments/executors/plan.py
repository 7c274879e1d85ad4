"""Runs to be made, each once, and which of them may be begun: the part that all executors share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gated_domains.data.errors import DataError
from gated_domains.data.splits import HoldOut
from gated_domains.experiments.recipe_parsing import resolved
from gated_domains.experiments.runner import Runner, only_joins
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.json_files import run_hash
from gated_domains.runs.recipe import Recipe
from gated_domains.utils.locks import BusyError


@dataclass(frozen=True, eq=False, kw_only=True)
class Work:
    """One run: its recipe and rows, and the names of the runs that it needs."""

    name: str
    recipe: Recipe
    split: HoldOut
    needs: tuple[str, ...]

    @property
    def trains(self) -> bool:
        """Whether something is trained for it; else it puts others together."""
        return not only_joins(self.recipe)

    def __str__(self) -> str:
        return in_words(self.recipe)


class Plan:
    """The runs of some recipes and of what those need, and how far each of them is."""

    def __init__(self, runner: Runner, recipes: Sequence[Recipe]) -> None:
        self.runner = runner
        self.works: dict[str, Work] = {}
        self._asked = [self._add(recipe) for recipe in recipes]
        self.done: dict[str, RunFolder] = {}
        self.under_way: set[str] = set()
        self.busy: dict[str, BusyError] = {}
        self._lost: Counter[str] = Counter()

    def _add(self, recipe: Recipe) -> str:
        name = run_hash(resolved(recipe, self.runner.dataset).identity())
        if name not in self.works:
            needs = tuple([self._add(needed) for needed in self.runner.needs(recipe)])
            self.works[name] = Work(name=name, recipe=recipe, split=self.runner.split(recipe), needs=needs)
        return name

    def find_done(self) -> None:
        """Take what is there already."""
        for work in self.works.values():
            found = self.runner.find(work.recipe)
            if found is not None and found.done:
                self.done[work.name] = self.runner.folder(work.recipe)

    @property
    def left(self) -> list[Work]:
        """What is not done, in order."""
        return [work for work in self.works.values() if work.name not in self.done]

    @property
    def ready(self) -> list[Work]:
        """What may be begun, in order: all that it needs is done, and nobody is at work on it."""
        taken = self.under_way | self.busy.keys()
        return [work for work in self.left if work.name not in taken and all(need in self.done for need in work.needs)]

    @property
    def waits(self) -> bool:
        """Whether nothing can be done but to wait for other processes."""
        return bool(self.busy) and not self.under_way and not self.ready

    def begin(self, work: Work) -> None:
        self.under_way.add(work.name)

    def take_over(self, works: Iterable[Work]) -> None:
        """Count those of these works as under way that are part of this plan: somebody is at them since an earlier."""
        self.under_way |= {work.name for work in works} & {work.name for work in self.left}

    def finish(self, work: Work, folder: RunFolder) -> None:
        self.under_way.discard(work.name)
        self.done[work.name] = folder

    def put_back(self, work: Work, busy: BusyError) -> None:
        """Leave a run to the process that is at work on it, until ``look_again``."""
        self.under_way.discard(work.name)
        self.busy[work.name] = busy

    def take_back(self, work: Work) -> None:
        """Nobody is at it any more, and it may be begun again."""
        self.under_way.discard(work.name)

    def look_again(self) -> None:
        """Try once more what others were at work on."""
        self.busy.clear()

    def lose(self, work: Work, why: str, *, retries: int) -> None:
        """Its process is gone: it may be begun again, so many times."""
        if work.name not in self.under_way:  # left from an earlier plan, and nothing to this one
            return
        self.under_way.discard(work.name)
        self._lost[work.name] += 1
        if self._lost[work.name] > retries:
            times = self._lost[work.name]
            raise DataError(
                f"{work}: the process that trained it was lost {times} time{'s' * (times != 1)}; the last one {why}. "
                "What it has done is kept; where memory was short, try fewer at a time"
            )

    def folders(self) -> list[RunFolder]:
        """The finished runs, in the order of the recipes."""
        return [self.done[name] for name in self._asked]


def in_words(recipe: Recipe) -> str:
    """``ERM, north held out, seed 0``."""
    held_out = "all domains" if recipe.hold_out is None else f"{recipe.hold_out} held out"
    left_out = "" if recipe.validation_domain is None else f", validated on {recipe.validation_domain}"
    return f"{recipe.label}, {held_out}{left_out}, seed {recipe.seed}"
