"""Making the runs of a reproduced table while a person looks on, and how the command ends."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from gated_domains.data.errors import DataError

if TYPE_CHECKING:  # torch is imported when a command begins to work, not when the shell asks for help
    from gated_domains.experiments.executors import Executor
    from gated_domains.experiments.runner import Runner
    from gated_domains.experiments.tracking import Tracking
    from gated_domains.paper.running import Reproducing
    from gated_domains.runs.recipe import Recipe


def watched(executor: Executor, runner: Runner, recipes: Sequence[Recipe], *, tracking: Tracking | None = None) -> None:
    """Make runs while a person looks on, and have them tracked."""
    from gated_domains.experiments.progress import ProgressBar
    from gated_domains.experiments.tracking import tracked

    plan = runner.planner.plan(recipes)
    todo, there = plan.missing(runner.root)
    with (
        ProgressBar(todo, done=there, workers=executor.workers) as watching,
        tracked(tracking, plan, runner.root, watching) as callback,
    ):
        executor.run(plan, callback=callback)


def run_all(work: Reproducing, tracking: Tracking | None = None) -> BaseException | None:
    """Make all runs; what stopped it in between, if anything did. Those that are found done are tracked too."""
    from gated_domains.runs.folder import RunFolder

    try:
        with tracking or nullcontext():
            work.run()
            if tracking:
                tracking.catch_up(RunFolder(path) for path in work.folders.values())
    except (KeyboardInterrupt, OSError) as error:  # what is done makes a table all the same
        return error
    return None


def write_report(work: Reproducing, labels: Mapping[str, str], root: Path, console: Console) -> None:
    """Write the page of what was made, rows under these labels; nothing where nothing was."""
    from gated_domains.cli.report import progress, tell
    from gated_domains.reports.page import write_page
    from gated_domains.runs.collection import RunCollection
    from gated_domains.runs.result import RESULT_FILE, read_result

    results = [
        (path, replace(read_result(path / RESULT_FILE), label=labels[job.row])) for job, path in work.folders.items()
    ]
    scored = [(path, result) for path, result in results if result.test]
    if not scored:
        return
    gathered = RunCollection(scored)
    with progress() as say:
        page = write_page(gathered, root / "report.html", machine=work.machines(), say=say)
    tell(page, gathered, console)


def tell_tracked(tracking: Tracking, console: Console) -> None:
    """Say how to look at what was tracked."""
    for command in tracking.look:
        console.print(Text(f"tracked; look at it with: {command}"), soft_wrap=True)


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
