"""What jobs stand on: the network that one goes on from, and all the runs that must be there before it begins."""

from __future__ import annotations

from collections.abc import Iterator

from gated_domains.data.errors import DataError
from gated_domains.experiments.runner import Runner
from gated_domains.paper.grid import Job
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe


def started(runner: Runner, job: Job) -> Recipe | None:
    """The recipe of a job, with the network that it goes on from where it does; None where that is not trained."""
    if job.starts_on is None:
        return job.recipe
    under = runner.find(job.starts_on)
    return job.recipe.replace(backbone=str(under.path)) if under is not None and under.done else None


def finished(runner: Runner, job: Job) -> RunFolder | None:
    """The finished run of a job; None where there is none."""
    try:
        recipe = started(runner, job)
        run = None if recipe is None else runner.find(recipe)
    except DataError:  # weights that it would start from are not to be had
        return None
    return run if run is not None and run.done else None


def stands_on(runner: Runner, job: Job) -> Iterator[RunFolder]:
    """The existing runs that a job needs before it can begin, to the last."""
    first = job.recipe if job.starts_on is None else job.starts_on
    plan = runner.planner.plan([first], check=False)
    for run in plan.runs.values():
        folder = RunFolder.find(runner.root, run.identity, data=run.data)
        if folder is not None and (job.starts_on is not None or run.name not in plan.asked):
            yield folder
