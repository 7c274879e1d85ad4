"""Making the runs of a reproduced table while a person looks on, and how the command ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from gated_domains.data.errors import DataError

if TYPE_CHECKING:  # torch is imported when a command begins to work, not when the shell asks for help
    from gated_domains.experiments.executors import Executor
    from gated_domains.experiments.recipe import Recipe
    from gated_domains.experiments.reproducing.running import Reproducing
    from gated_domains.experiments.runner import Runner


def watched(executor: Executor, runner: Runner, recipes: Sequence[Recipe]) -> None:
    """Make runs while a person looks on."""
    from gated_domains.cli.watching import Watching

    todo, there = runner.to_train(recipes)
    with Watching(todo, done=there, workers=executor.workers) as watching:
        executor.run(recipes, watcher=watching)


def run_all(work: Reproducing) -> BaseException | None:
    """Make all runs; what stopped it in between, if anything did."""
    try:
        work.run()
    except (KeyboardInterrupt, OSError) as error:  # what is done makes a table all the same
        return error
    return None


def end(stopped: BaseException | None, work: Reproducing, console: Console) -> None:
    """Say that it goes on where a person stopped it; raise what went wrong."""
    if isinstance(stopped, KeyboardInterrupt):
        console.print("stopped; what is done is kept, and the same command goes on where it was")
        sys.exit(130)
    if stopped is not None:
        raise stopped
    if not work.results:
        why = next(iter(work.failed.values()), "nothing was trained; leave --no-train out")
        raise DataError(f"none of the {len(work.grid.jobs)} runs could be made: {why}")
