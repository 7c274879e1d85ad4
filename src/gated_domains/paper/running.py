"""Making the runs of a grid: data by data, each loaded once; what cannot be run says why and stops nothing else."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gated_domains.data.errors import DataError, explain
from gated_domains.data.loading import load_data
from gated_domains.experiments.executors import Executor, choose_executor
from gated_domains.experiments.runner import Runner
from gated_domains.paper.grid import Grid, Job
from gated_domains.paper.light import lighten, without_weights
from gated_domains.paper.run_list import Known
from gated_domains.paper.standing import finished, started
from gated_domains.reports.reproduced import Cell
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.provenance import machine, machine_of
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import run_hash
from gated_domains.training.engine import Hardware

RUNS = "runs"
_UNKNOWN = "a machine that was not noted"
_FULL = (errno.ENOSPC, errno.EDQUOT)  # a full disk is full for all runs
Make = Callable[[Executor, Runner, Sequence[Recipe]], object]
"""Makes the runs of some recipes by an executor; a person may be watching."""
After = Callable[[str, Runner, Sequence[Recipe]], None]
"""What is done once the runs of one data set are there: its name, and the recipes of its ERM runs."""


class Reproducing:
    """Makes the runs of a grid below one folder, and tells what came of them.

    ``make`` None trains nothing: what is done is found. ``light`` keeps results alone of what no other run needs.
    ``known`` has the results of jobs that were run before, elsewhere: they are neither looked for nor run.
    """

    def __init__(
        self,
        grid: Grid,
        root: Path,
        *,
        make: Make | None,
        data_dir: str | os.PathLike[str] | None = None,
        hardware: Hardware | None = None,
        executing: dict[str, Any] | None = None,
        say: Callable[[str], None] = lambda line: None,
        after: After | None = None,
        light: bool = False,
        known: Mapping[Job, Known] | None = None,
    ) -> None:
        self.grid, self.root, self.make, self.data_dir = grid, root, make, data_dir
        self.hardware, self.executing = hardware or Hardware(), executing or {}
        self.say, self.after, self.light = say, after, light
        self.known = dict(known or {})
        self.results: dict[Job, dict[str, Any]] = {job: one.result for job, one in self.known.items()}
        self.folders: dict[Job, Path] = {}
        self.made_on: dict[Job, str] = {job: one.machine for job, one in self.known.items()}
        self.failed: dict[Job, str] = {}
        self._checked: set[str] = set()

    def run(self) -> None:
        """All of them; what was done before is found."""
        for (what, _), planned in self.grid.by_data().items():
            jobs = [job for job in planned if job not in self.known]
            if not jobs:
                continue
            try:
                dataset = load_data(what, jobs[0].recipe.data.reading, data_dir=self.data_dir)
                runner = Runner(dataset, self.root / RUNS / folder_of(what), hardware=self.hardware)
            except (DataError, OSError) as error:
                why = explain(error) if isinstance(error, OSError) else str(error)
                self.say(f"{what}: {why}")
                self.failed |= dict.fromkeys(jobs, why)
                continue
            self.say(f"{what}: {len(dataset):,} rows, {dataset.inputs.describe()}, {len(jobs)} runs")
            self._run_data(what, runner, jobs)

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

    def machines(self) -> str:
        """What the runs were made on, whichever machine asks; this one where there are none."""
        made_on = [self.made_on[job] for job in self.grid.jobs if job in self.made_on]
        return "; ".join(dict.fromkeys(made_on)) or machine(self.hardware.accelerator)

    def _run_data(self, what: str, runner: Runner, jobs: list[Job]) -> None:
        self._collect(runner, jobs)
        if self.make is None:
            return
        able = [job for job in jobs if job in self.results or self._can(runner, job)]
        todo = len(
            runner.planner.plan([job.starts_on or job.recipe for job in able], check=False).missing(runner.root)[0]
        )
        later = sum(job.starts_on is not None and job not in self.results for job in able)
        with choose_executor(runner, todo + later, **self.executing) as executor:
            making = partial(self.make, executor, runner)
            # Column by column: what is begun there is finished before the next, and only then made light.
            for column in dict.fromkeys(job.column for job in able):
                part = [job for job in able if job.column == column]
                try:
                    self._run_part(runner, making, part)
                finally:
                    self._collect(runner, part)
                    if self.light:
                        lighten(runner, part, unfinished=[job for job in able if job not in self.results])
        if self.after is not None:
            self.after(what, runner, [job.recipe for job in able if job.row == "erm" and job in self.results])

    def _run_part(self, runner: Runner, making: Callable[[list[Recipe]], object], jobs: list[Job]) -> None:
        """Make these runs: first what can begin by itself, then what goes on from the networks of those."""
        self._attempt(runner, making, [(job, job.starts_on or job.recipe) for job in jobs])
        later = [job for job in jobs if job.starts_on is not None]
        self._attempt(runner, making, [(job, recipe) for job in later if (recipe := self._started(runner, job))])

    def _can(self, runner: Runner, job: Job) -> bool:
        """Whether a job can be run on these data; why not is kept."""
        alike = run_hash(job.recipe.replace(seed=0).plain())
        try:
            if alike not in self._checked:  # whatever the seed
                runner.planner.plan([job.recipe])
                self._checked.add(alike)
            why = without_weights(runner, job)
        except DataError as error:
            why = str(error)
        if why:
            self.failed[job] = why
        return not why

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
        recipe = started(runner, job)
        if recipe is None:
            self.failed.setdefault(job, "the ERM network that it starts from could not be trained")
        return recipe

    def _collect(self, runner: Runner, jobs: Sequence[Job]) -> None:
        """Take the results of what is done."""
        for job in jobs:
            run = finished(runner, job)
            if run is not None:
                self.results[job], self.made_on[job], self.folders[job] = (
                    run.result().to_json(),
                    _made_on(run),
                    run.path,
                )

    def _done(self, runner: Runner, recipe: Recipe) -> bool:
        run = runner.find(recipe)
        return run is not None and run.done


def _made_on(run: RunFolder) -> str:
    """The machine of a run in one line."""
    try:
        return machine_of(run.environment() or {})
    except (DataError, KeyError):  # its numbers stand, whatever became of the note
        return _UNKNOWN


def _broke_off(runner: Runner, recipe: Recipe) -> bool:
    """Whether the loss of this run, or of one that it needs, became NaN or infinite: it would again."""
    plan = runner.planner.plan([recipe], check=False)
    return plan.failed(plan.asked[0], runner.root)


def folder_of(what: str) -> str:
    """``wilds/poverty:B`` as a folder: ``poverty-B``."""
    return re.sub(r"[^\w.-]+", "-", what.removeprefix("wilds/"))


def in_short(error: BaseException) -> str:
    """The last line of what went wrong, which names it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1] if lines else "nothing was said"
    return said if isinstance(error, DataError) else f"it failed: {said[:300]}"
