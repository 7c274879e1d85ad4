"""The grid behind the table: every cell as often as WILDS asks for, Camelyon17 ten times, PovertyMap on five folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.paper.cells import NO_SETTINGS, Change, dataset_of, goes_on_from_erm, recipe_of
from gated_domains.reports.published import BENCHMARKS
from gated_domains.runs.recipe import Recipe


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """One run of a cell. ``starts_on`` is the run whose network it goes on from."""

    row: str
    column: str
    recipe: Recipe
    starts_on: Recipe | None = None

    @property
    def data(self) -> tuple[str, Reading]:
        """Which data, and how they are read: what has this in common is loaded once."""
        return self.recipe.data.what, self.recipe.data.reading


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All jobs, and the cells that have none with the reason."""

    jobs: tuple[Job, ...]
    without: dict[tuple[str, str], str]

    def by_data(self) -> dict[tuple[str, Reading], list[Job]]:
        """The jobs of each data set, or fold of one, in order."""
        found: dict[tuple[str, Reading], list[Job]] = {}
        for job in self.jobs:
            found.setdefault(job.data, []).append(job)
        return found


def plan(
    rows: Sequence[str], columns: Sequence[str], *, seeds: int | None = None, change: Change | None = None
) -> Grid:
    """The grid of these rows and columns; ``seeds`` runs each (folds, where there are some), None: as WILDS asks for.

    A whole run of a data set comes before the next run of it: whoever stops in between has something to look at.
    """
    if seeds is not None and seeds < 1:
        raise DataError(f"there must be at least one run of each cell, got {seeds}")
    jobs: list[Job] = []
    without: dict[tuple[str, str], str] = {}
    for column in columns:
        for fold, seed in runs_of(column, seeds):
            for row in rows:
                recipe = recipe_of(row, column)
                if recipe is None:
                    without[row, column] = NO_SETTINGS
                    continue
                start = recipe_of("erm", column) if goes_on_from_erm(row, column) else None
                ours, under = (one and _placed(one, column, fold, seed, change) for one in (recipe, start))
                assert ours is not None
                jobs.append(Job(row=row, column=column, recipe=ours, starts_on=under))
    return Grid(jobs=tuple(jobs), without=without)


def runs_of(column: str, seeds: int | None = None) -> list[tuple[str, int]]:
    """Fold (empty where there are none) and seed of each run of a cell."""
    benchmark = BENCHMARKS[dataset_of(column)]
    count = benchmark.runs if seeds is None else seeds
    if not benchmark.folds:
        return [("", seed) for seed in range(count)]
    folds = len(benchmark.folds)
    return [(benchmark.folds[number % folds], number // folds) for number in range(count)]


def _placed(recipe: Recipe, column: str, fold: str, seed: int, change: Change | None) -> Recipe:
    """The recipe of one run: its fold, its seed, and what is changed for miniatures."""
    what = f"{recipe.data.what}:{fold}" if fold else recipe.data.what
    recipe = recipe.replace(data=recipe.data.model_copy(update={"what": what}), seed=seed)
    return recipe if change is None else change(recipe, column)
