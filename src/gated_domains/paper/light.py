"""Keeping results and curves of finished runs, not their weights and predictions, which are a thousand times larger."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from gated_domains.experiments.runner import Runner
from gated_domains.paper.grid import Job
from gated_domains.paper.standing import finished, stands_on
from gated_domains.runs.folder import PREDICTIONS, WEIGHTS, RunFolder
from gated_domains.runs.provenance import SEEN

_HEAVY = (WEIGHTS, PREDICTIONS, SEEN)  # the card of the weights stays: it names them to runs that went on from them


def lighten(runner: Runner, jobs: Sequence[Job], *, unfinished: Sequence[Job]) -> int:
    """Drop what is heavy from the finished runs behind these jobs, but those that an unfinished one needs; bytes."""
    kept = {run.path for job in unfinished for run in stands_on(runner, job)}
    behind = [run for job in jobs for run in (finished(runner, job), *stands_on(runner, job)) if run is not None]
    return sum(_drop(run) for path, run in {run.path: run for run in behind}.items() if run.done and path not in kept)


def without_weights(runner: Runner, job: Job) -> str:
    """Why a job cannot begin where a finished run that it needs has lost its weights; nothing where none has."""
    gone = [run for run in stands_on(runner, job) if run.done and not (run.path / WEIGHTS).exists()]
    if not gone:
        return ""
    return f"it stands on {gone[0].path}, whose weights were dropped (--light); delete that folder to train it again"


def _drop(run: RunFolder) -> int:
    """Remove the heavy files of a finished run; bytes."""
    heavy = [path for name in _HEAVY if (path := run.path / name).exists()]
    size = sum(path.stat().st_size for path in heavy)
    for path in heavy:
        path.unlink()
    for folder in run.checkpoints:
        shutil.rmtree(folder)
    return size
