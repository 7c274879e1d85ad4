"""``train``: one model from a recipe or straight from data, and ``open_run`` for a finished one."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data, read_data
from gated_domains.evaluation.metrics import METRICS
from gated_domains.experiments.grid import MethodLike, chosen_methods
from gated_domains.experiments.progress import ProgressBar
from gated_domains.experiments.recipe_checks import (
    check_body,
    choose_method,
    default_training,
    is_recipe,
    parse_methods,
    read_recipe,
    validate_config,
)
from gated_domains.experiments.runner import Runner
from gated_domains.experiments.tracking import Tracking, check_trackers, tracked
from gated_domains.recipes import located
from gated_domains.runs.folder import RECIPE, RunFolder, open_run_folder, refuse_file
from gated_domains.runs.provenance import first_process
from gated_domains.runs.recipe import DataSettings, MethodChoice, Recipe, RunConfig, TrainingSettings
from gated_domains.runs.result import RunResult
from gated_domains.settings import from_yaml, parsed, plain
from gated_domains.training.engine import Hardware


@dataclass(frozen=True)
class Run:
    """A finished training. Printed, it shows its scores; ``load_model(run.path)`` loads the model.

    Attributes
    ----------
    path
        The folder of the run.
    tracked
        Commands that show the curves where the run was tracked.
    """

    path: Path
    tracked: tuple[str, ...] = ()

    @property
    def folder(self) -> RunFolder:
        """The files of the run."""
        return RunFolder(self.path)

    @property
    def result(self) -> RunResult:
        """Scores, selection, cost and notes."""
        return self.folder.result()

    @property
    def recipe(self) -> Recipe:
        """Everything that decided what was computed."""
        return read_recipe(self.path / RECIPE)

    def __str__(self) -> str:
        text = io.StringIO()
        print_run(self, Console(file=text, width=100, color_system=None))
        return text.getvalue().rstrip()


def train(
    source: str | os.PathLike[str] | DomainDataset,
    *,
    target: str | None = None,
    domain: str | None = None,
    positive: Sequence[object] | None = None,
    reading: Reading | None = None,
    method: MethodLike | None = None,
    hold_out: str | None = None,
    body: str | None = None,
    seed: int | None = None,
    training: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    hardware: Hardware | None = None,
    checkpoint_seconds: float = 20.0,
    track: str | None = None,
    progress: bool = True,
) -> Run:
    """Train one model, on all domains unless some are held out.

    Parameters
    ----------
    source
        A recipe (``.yaml``), or data as for ``compare``.
    target, domain, positive, reading
        How a table is read, as for ``compare``.
    method
        A name with settings in brackets, or a subclass of ``Method``; ``gdu`` by default.
    hold_out
        The domain that is never seen, ``"a+b"`` for two; by default all are trained on.
    body, seed, training, config
        The network, the random seed, settings of the training, and other settings, as for ``compare``. They override
        those of a recipe.
    out
        Folder of the runs; ``runs/NAME`` by default. A finished run is found there, an interrupted one resumed.
    data_dir, hardware, checkpoint_seconds, track, progress
        Where named data sets lie, where the training runs, the least time between two checkpoints, where curves are
        tracked, and whether progress is shown.

    Returns
    -------
    Run
        Its ``path``, ``result`` and ``recipe``.

    Examples
    --------
    >>> import gated_domains as gd
    >>> run = gd.train("synthetic", method="erm", training={"epochs": 1}, progress=False)
    >>> run.result.epochs
    1
    """
    trackers = check_trackers(track)
    if not isinstance(source, DomainDataset):
        source = located(os.fspath(source))
    written = read_recipe(source) if isinstance(source, str) and is_recipe(source) else None
    if written is None:
        dataset, reading = read_data(source, target, domain, positive, reading, data_dir=data_dir)
    else:
        if (target, domain, positive) != (None, None, None) or (reading or Reading()) != Reading():
            raise DataError(f"{source} says how its data are read; change it there")
        dataset = load_data(written.data.what, written.data.reading, data_dir=data_dir, seed=written.data.seed)
    what = source if isinstance(source, str) else ""  # data in memory have no path to be read from
    changes = _changes(dataset, method, hold_out, body, seed, dict(training or {}))
    if written is None:
        recipe = _recipe_of_data(dataset, DataSettings.of(what, reading or Reading()), changes, training, config)
    else:
        recipe = _changed_recipe(written, what, changes, dict(training or {}), config or {})
    root = Path("runs") / Path(dataset.name).stem if out is None else Path(out)
    refuse_file(root)
    runner = Runner(dataset, root, hardware=hardware, checkpoint_seconds=checkpoint_seconds)
    plan = runner.planner.plan([recipe])
    todo, done = plan.missing(root)
    with (
        Tracking(trackers if first_process() else (), root) as tracking,
        ProgressBar(todo, done=done, quiet=not progress) as bar,
        tracked(tracking, plan, root, bar) as runner.callback,
    ):
        folder = runner.run(recipe)
    return Run(folder.path, tracking.look)


def open_run(path: str | os.PathLike[str]) -> Run:
    """A finished run by its folder, or by the first characters of its name.

    Examples
    --------
    >>> import gated_domains as gd
    >>> run = gd.train("synthetic", method="erm", training={"epochs": 1}, progress=False)
    >>> gd.open_run(run.path).result.label
    'ERM'
    """
    return Run(open_run_folder(path).path)


def print_run(run: Run, console: Console) -> None:
    """Print the scores of a run, how it was selected, and notes."""
    result = run.result
    metric = METRICS[result.metric]
    held_out = f"{result.hold_out} held out" if result.held_out else "trained on all domains"
    if not result.held_out and not result.sources:
        held_out = "trained on all rows"
    console.print(Text(f"{result.label} on {result.data}, {held_out}, seed {result.seed}"))
    table = Table("", "domain", box=None, header_style="bold", pad_edge=False)
    table.add_column(metric.label, justify="right")
    for part, scores in (("source, validation rows", result.validation), ("held out", result.test)):
        for name, value in scores.items():
            table.add_row(part, Text(name), metric.shown(value))
    console.print(table)
    epoch = 0 if result.best_epoch is None else result.best_epoch
    console.print(
        Text(
            f"selected by {result.selection}: epoch {epoch + 1} of {result.epochs} ({result.stopped}); "
            f"{result.seconds:.1f} s, {result.parameters_trained:,} weights trained"
        )
    )
    for note in result.notes:
        console.print(Text(f"note: {note}"))
    console.print(Text(f"run: {run.path}"), soft_wrap=True)


def _changes(
    dataset: DomainDataset,
    method: MethodLike | None,
    hold_out: str | None,
    body: str | None,
    seed: int | None,
    training: Mapping[str, Any],
) -> dict[str, Any]:
    """The fields of a recipe that were asked for."""
    changes: dict[str, Any] = {"body": None if body is None else check_body(body), "seed": seed}
    if method is not None:
        chosen = parse_methods(method, option="--method") if isinstance(method, str) else chosen_methods([method])
        if len(chosen) != 1:
            raise DataError(f"--method names one method, got {method!r}; `compare` takes several")
        chosen[0].refuse_contradiction(training)
        changes["method"] = chosen[0]
    changes = {name: value for name, value in changes.items() if value is not None}
    if hold_out is not None:
        changes["hold_out"] = _one_hold_out(hold_out, dataset.domain_names)
    return changes


def _recipe_of_data(
    dataset: DomainDataset,
    data: DataSettings,
    changes: Mapping[str, Any],
    training: Mapping[str, Any] | None,
    config: Mapping[str, Any] | None,
) -> Recipe:
    settings = default_training(dataset, training or {})
    shared = validate_config(config or {}, data=data, body="auto", training=settings)
    method: MethodChoice = changes.get("method") or choose_method("gdu")
    fields = {name: getattr(shared, name) for name in RunConfig.model_fields}
    return Recipe(**{**fields, **changes, "method": method}).with_method(method)


def _changed_recipe(
    written: Recipe, path: str, changes: Mapping[str, Any], training: Mapping[str, Any], config: Mapping[str, Any]
) -> Recipe:
    """A recipe from a file with some fields changed."""
    base = written.training
    if "method" in changes:  # what the recipe's own method changes in the training goes with it
        without = {name: value for name, value in from_yaml(Path(path)).items() if name != "method"}
        base = parsed(RunConfig, without, path).training
    settings = parsed(TrainingSettings, {**plain(base), **training}, "training")
    shared = validate_config(config, data=written.data, body="auto", training=settings)
    recipe = written.replace(**changes, **{name: getattr(shared, name) for name in config}, training=settings)
    if "method" in changes:
        return recipe.with_method(recipe.method)
    kept = {name: value for name, value in recipe.method.training.items() if name not in training}
    return recipe.replace(method=recipe.method.model_copy(update={"training": kept}))


def _one_hold_out(written: str, domains: tuple[str, ...]) -> str | None:
    """What is held out; ``none``, unless a domain is called so, is nothing."""
    if written not in domains and (written in ("each", "default") or written.startswith("folds:")):
        raise DataError(f"--hold-out {written} is more than one training; name a domain, or use `compare`")
    return None if written == "none" and written not in domains else written
