"""Making the runs of a grid: data by data, each loaded once; what cannot be run says why and stops nothing else."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gated_domains.data.errors import DataError, explain
from gated_domains.data.loading import load_data
from gated_domains.experiments.executors import Executor, choose_executor
from gated_domains.experiments.recipe import Recipe
from gated_domains.experiments.reproducing.grid import Grid, Job
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.experiments.runner import Runner
from gated_domains.reports.reproduced import Cell
from gated_domains.training.engine import Hardware

RUNS = "runs"
_FULL = (errno.ENOSPC, errno.EDQUOT)  # a full disk is full for all runs
Make = Callable[[Executor, Runner, Sequence[Recipe]], object]
"""Makes the runs of some recipes by an executor; a person may be watching."""
After = Callable[[str, Runner, Sequence[Recipe]], None]
"""What is done once the runs of one data set are there: its name, and the recipes of its ERM runs."""


class Reproducing:
    """Makes the runs of a grid below one folder, and tells what came of them."""

    def __init__(
        self,
        grid: Grid,
        root: Path,
        *,
        make: Make,
        data_dir: str | os.PathLike[str] | None = None,
        hardware: Hardware | None = None,
        executing: dict[str, Any] | None = None,
        say: Callable[[str], None] = lambda line: None,
        after: After | None = None,
    ) -> None:
        self.grid, self.root, self.make, self.data_dir = grid, root, make, data_dir
        self.hardware, self.executing = hardware or Hardware(), executing or {}
        self.say, self.after = say, after
        self.results: dict[Job, dict[str, Any]] = {}
        self.failed: dict[Job, str] = {}

    def run(self) -> None:
        """All of them; what was done before is found."""
        for (what, _), jobs in self.grid.by_data().items():
            loading = partial(load_data, what, jobs[0].recipe.data.reading, data_dir=self.data_dir)
            try:
                dataset = loading()
                runner = Runner(dataset, self.root / RUNS / folder_of(what), hardware=self.hardware)
            except (DataError, OSError) as error:
                why = explain(error) if isinstance(error, OSError) else str(error)
                self.say(f"{what}: {why}")
                self.failed |= dict.fromkeys(jobs, why)
                continue
            self.say(f"{what}: {len(dataset):,} rows, {dataset.inputs.describe()}, {len(jobs)} runs")
            self._run_data(what, runner, jobs, loading)

    def cells(self) -> dict[tuple[str, str], Cell]:
        """What came of every cell so far."""
        found: dict[tuple[str, str], Cell] = {place: Cell(why=reason) for place, reason in self.grid.without.items()}
        for job in self.grid.jobs:
            place = (job.row, job.column)
            before = found.get(place, Cell())
            result = self.results.get(job)
            why = "" if result is not None else self.failed.get(job, "not run yet; the same command goes on")
            found[place] = Cell(
                results=(*before.results, *([result] if result is not None else [])),
                asked=before.asked + 1,
                why=before.why or why,
            )
        return found

    def _run_data(self, what: str, runner: Runner, jobs: list[Job], loading: Callable[[], Any]) -> None:
        able = [job for job in jobs if self._can(runner, job)]
        first = [(job, job.starts_on or job.recipe) for job in able]
        todo = len(runner.to_train([recipe for _, recipe in first])[0])
        later = [job for job in able if job.starts_on is not None]
        try:
            with choose_executor(runner, todo + len(later), data=loading, **self.executing) as executor:
                making = partial(self.make, executor, runner)
                self._attempt(runner, making, first)
                started = [(job, recipe) for job in later if (recipe := self._started(runner, job)) is not None]
                self._attempt(runner, making, started)
        finally:
            self._collect(runner, able)
        if self.after is not None:
            self.after(what, runner, [job.recipe for job in able if job.row == "erm" and job in self.results])

    def _can(self, runner: Runner, job: Job) -> bool:
        """Whether a job can be run on these data; why not is kept."""
        try:
            runner.check(job.recipe)
        except DataError as error:
            self.failed[job] = str(error)
            return False
        return True

    def _attempt(
        self, runner: Runner, making: Callable[[list[Recipe]], object], jobs: list[tuple[Job, Recipe]]
    ) -> None:
        """Make these runs. Where one fails, the others are made without it: halves, until it is alone."""
        jobs = [(job, recipe) for job, recipe in jobs if not self._done(runner, recipe) and job not in self.failed]
        if not jobs:
            return
        try:
            making([recipe for _, recipe in jobs])
        except Exception as error:  # whatever it is: the other cells can do nothing for it
            if isinstance(error, OSError) and error.errno in _FULL:
                raise
            broken = [(job, recipe) for job, recipe in jobs if _broke_off(runner, recipe)]
            for job, recipe in broken:
                self.failed[job] = runner.folder(recipe).why
            if not broken and len(jobs) == 1:
                self.failed[jobs[0][0]] = in_short(error)
            half = (len(jobs) + 1) // 2
            if len(jobs) > 1:
                self._attempt(runner, making, jobs[:half])
                self._attempt(runner, making, jobs[half:])

    def _started(self, runner: Runner, job: Job) -> Recipe | None:
        """The recipe of a job with the network that it goes on from; None where there is none."""
        assert job.starts_on is not None
        run = runner.find(job.starts_on)
        if run is None or not run.done:
            self.failed.setdefault(job, "the ERM network that it starts from could not be trained")
            return None
        return job.recipe.but(backbone=str(run.path))

    def _collect(self, runner: Runner, jobs: Sequence[Job]) -> None:
        """Take the results of what is done."""
        for job in jobs:
            recipe: Recipe | None = job.recipe
            if job.starts_on is not None:
                under = runner.find(job.starts_on)
                recipe = job.recipe.but(backbone=str(under.path)) if under is not None and under.done else None
            run = None if recipe is None else self._run_of(runner, recipe)
            if run is not None and run.done:
                self.results[job] = run.result()

    def _run_of(self, runner: Runner, recipe: Recipe) -> RunFolder | None:
        try:
            return runner.find(recipe)
        except DataError:  # weights that it would start from are not to be had
            return None

    def _done(self, runner: Runner, recipe: Recipe) -> bool:
        run = runner.find(recipe)
        return run is not None and run.done


def _broke_off(runner: Runner, recipe: Recipe) -> bool:
    """Whether the loss of this run, or of one that it needs, became no number: it would again."""
    run = runner.find(recipe)
    if run is not None and (run.done or run.broken):
        return not run.done
    return any(_broke_off(runner, needed) for needed in runner.needs(recipe))


def folder_of(what: str) -> str:
    """``wilds/poverty:B`` as a folder: ``poverty-B``."""
    return re.sub(r"[^\w.-]+", "-", what.removeprefix("wilds/"))


def in_short(error: BaseException) -> str:
    """The last line of what went wrong, which names it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1] if lines else "nothing was said"
    return said if isinstance(error, DataError) else f"it failed: {said[:300]}"
