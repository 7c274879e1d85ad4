"""The list of runs behind the table of Digits-5, ``table.csv``: written after every call, read by ``--done``."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gated_domains.data.errors import DataError, decoding
from gated_domains.evaluation.metrics import METRICS
from gated_domains.experiments.recipe_checks import identity_of
from gated_domains.paper.grid import Grid, Job
from gated_domains.reports.published_digits import ROWS
from gated_domains.runs.result import RunResult
from gated_domains.runs.storage import run_hash

_NEEDED = (
    "row", "target", "seed", "settings", "accuracy", "epochs", "seconds", "data", "selection", "protocol",
)  # fmt: skip


def settings_hash(job: Job) -> str:
    """A hash of everything that decides the result of a job but its seed: data, recipe, the network it starts from."""
    recipes = [job.recipe, *([] if job.starts_on is None else [job.starts_on])]
    parts = [{"data": recipe.data.what, **identity_of(recipe.replace(seed=0))} for recipe in recipes]
    return run_hash({"recipes": parts})


@dataclass(frozen=True)
class Known:
    """The result of a run that was made before, and on which machine."""

    result: dict[str, Any]
    machine: str


def read_done(path: str | os.PathLike[str], grid: Grid) -> dict[Job, Known]:
    """The results of the jobs of a grid that a run list has with the same row, target, seed and settings.

    The settings are a hash of the data's name and the recipe; the list does not say what the data files held.
    """
    lines: dict[tuple[str, str, str, str], Mapping[str, str]] = {}
    with decoding(path), open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise DataError(
                f"{path} is no run list of `reproduce digits`: it has no column {', '.join(missing)}; give a table.csv "
                "that the command wrote"
            )
        for line in reader:
            lines[line["row"], line["target"], line["seed"], line["settings"]] = line
    found = {}
    for job in grid.jobs:
        known = lines.get((job.row, job.column, str(job.recipe.seed), settings_hash(job)))
        if known is not None:
            found[job] = Known(_result(job, known, path), known.get("machine") or "an unnamed machine")
    return found


def other_settings(path: str | os.PathLike[str], grid: Grid, known: Mapping[Job, Known]) -> int:
    """How many jobs of a grid a run list has with other settings alone, as another ``--precision``."""
    with decoding(path), open(path, encoding="utf-8", newline="") as file:
        listed = {(line["row"], line["target"], line["seed"]) for line in csv.DictReader(file)}
    return sum(job not in known and (job.row, job.column, str(job.recipe.seed)) in listed for job in grid.jobs)


def _result(job: Job, line: Mapping[str, str], path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        accuracy, validation = float(line["accuracy"]), line.get("validation")
        result = RunResult(
            run=line.get("run") or "",
            data=line["data"],
            method=job.row,
            label=ROWS[job.row].label,
            seed=job.recipe.seed,
            hold_out=job.column,
            held_out=(job.column,),
            sources=(),
            metric="accuracy",
            higher_is_better=METRICS["accuracy"].higher_is_better,
            test={job.column: accuracy},
            validation={},
            validation_overall=float(validation) if validation else None,
            selection=line["selection"],
            protocol=line["protocol"],
            best_epoch=int(line["best_epoch"]) if line.get("best_epoch") else None,
            epochs=int(line["epochs"]),
            stopped=line.get("stopped") or "",
            seconds=float(line["seconds"]),
            parameters_trained=0,
            parameters_all=0,
            uses_domains=False,
        )
    except ValueError as error:
        where = f"{path}: the line of {job.row}, {job.column}, seed {job.recipe.seed}"
        raise DataError(f"{where}: {error}; correct the line, or delete it to run it again") from error
    return result.to_json()
