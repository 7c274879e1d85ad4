"""``compare``: hold each domain out in turn, train every method on the others, and compare them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.data.labels import Reading
from gated_domains.data.loading import read_data
from gated_domains.evaluation.metrics import check_margin
from gated_domains.experiments.executors import EXECUTOR_OPTIONS, Executor, choose_executor
from gated_domains.experiments.grid import BASELINE, Grid, MethodLike, named_as_asked, plan_grid
from gated_domains.experiments.insights import look_at
from gated_domains.experiments.progress import ProgressBar
from gated_domains.experiments.recipe_checks import check_body, default_training, validate_config
from gated_domains.experiments.runner import Runner
from gated_domains.experiments.tracking import Tracking, check_trackers, tracked
from gated_domains.experiments.tuning import RunAll, Tuning, tune
from gated_domains.reports import Comparison
from gated_domains.runs.folder import TUNING, RunFolder, refuse_file
from gated_domains.runs.provenance import first_process, machine
from gated_domains.runs.recipe import DataSettings, Recipe
from gated_domains.runs.storage import write_json
from gated_domains.training.callbacks.stopping import NotFiniteError
from gated_domains.training.engine import Hardware


def compare(
    data: str | os.PathLike[str] | DomainDataset,
    *,
    target: str | None = None,
    domain: str | None = None,
    positive: Sequence[object] | None = None,
    reading: Reading | None = None,
    methods: str | Sequence[MethodLike] | None = None,
    hold_out: str = "default",
    seeds: int | None = None,
    body: str = "auto",
    training: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    tune_trials: int | None = None,
    tuner: str = "random",
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    data_seed: int = 0,
    hardware: Hardware | None = None,
    workers: int | None = None,
    executor: Mapping[str, Any] | None = None,
    margin: float | None = None,
    track: str | None = None,
    progress: bool = True,
    announce: Callable[[str], None] | None = None,
    allow_partial: bool = False,
) -> Comparison:
    """Hold each domain out in turn, train every method on the others, and compare the methods.

    Runs are kept in ``out``: the same call again skips finished runs and resumes interrupted ones. Trainings run in
    worker processes: in a script, call it under ``if __name__ == "__main__":``.

    Parameters
    ----------
    data
        A data set, the name of one (``"digits"``), or a file or folder.
    target, domain, positive
        For a table: the column that is predicted, the column that names the domain, and the target values that make up
        the positive class.
    reading
        Everything else about how the data are read; instead of the three arguments above.
    methods
        Names with settings in brackets (``"gdu[num_bases=8],erm"``, or a list of these), or subclasses of ``Method``.
        By default ``gdu``, ``erm`` and ``linear``; on images also ``recommended`` and ``erm`` with Fourier mixing.
        ``"all"`` stands for every method that the data allow.
    hold_out
        ``"each"``, names (``"a,b"`` in turn, ``"a+b"`` together), ``"folds:5"`` or ``"official"``.
    seeds
        Trainings of each method on each hold-out; by default 5 on small tables, else 2.
    body
        The network below the head; by default chosen by the data.
    training
        Settings of the training, such as ``{"epochs": 20, "rate": 1e-3}``.
    config
        Other settings that the runs share: ``selection``, ``metric``, ``score_by``, ``validation`` and so on.
    tune_trials, tuner
        How many settings to try for each method and hold-out, chosen on the sources alone, and what proposes them.
    out
        Folder of the runs; ``runs/NAME`` by default.
    data_dir, data_seed
        Where named data sets lie, and the random seed of generated ones.
    hardware, workers, executor
        Where trainings run, how many at a time, and other options of ``choose_executor``.
    margin
        Difference within which two methods are practically equal, in printed units.
    track
        ``"tensorboard"``, ``"mlflow"``, or both.
    progress, announce
        Whether to show progress on standard error, and a function that gets a summary of the planned trainings.
    allow_partial
        Return what is finished when trainings fail or are interrupted; ``Comparison.failure`` says why.

    Returns
    -------
    Comparison

    Raises
    ------
    DataError
        If the data or settings cannot be used, or if trainings failed.

    Examples
    --------
    >>> import gated_domains as gd
    >>> chosen = {"methods": ["gdu", "erm"], "hold_out": "domain 1,domain 2", "seeds": 1, "training": {"epochs": 1}}
    >>> result = gd.compare("synthetic", **chosen, workers=1, progress=False)
    >>> print(result)  # doctest: +ELLIPSIS
    synthetic: accuracy on held-out domains
    ...
    >>> result.verdicts
    {'GDU': 'no verdict'}
    """
    check_margin(margin)
    trackers = () if track is None else check_trackers(track)
    check_body(body)
    dataset, reading = read_data(data, target, domain, positive, reading, data_dir=data_dir, seed=data_seed)
    what = "" if isinstance(data, DomainDataset) else os.fspath(data)  # data in memory have no path to be read from
    fixed = dict(training or {})
    shared = validate_config(
        config or {},
        data=DataSettings.of(what, reading, data_seed),
        body=body,
        training=default_training(dataset, fixed),
    )
    root = Path("runs") / Path(dataset.name).stem if out is None else Path(out)
    refuse_file(root)
    runner = Runner(dataset, root, hardware=hardware)
    grid = plan_grid(runner.planner, methods, hold_out=hold_out, seeds=seeds, config=shared)
    progress = progress and first_process()
    say = announce or (lambda text: print(text, file=sys.stderr) if progress else None)
    say(grid.summary(root, tune_trials))
    todo, _ = grid.plan.missing(root)
    trials = 0 if tune_trials is None else len(grid.splits) * len(grid.methods) * (tune_trials - 1)
    options = {**(executor or {}), **({} if workers is None else {"workers": workers})}
    for name in options:
        if name not in EXECUTOR_OPTIONS:
            raise DataError(f"executor has no option {name!r}{did_you_mean(name, EXECUTOR_OPTIONS)}")
    with (
        Tracking(trackers, root) if trackers and first_process() else nullcontext() as tracking,
        choose_executor(runner, len(todo) + trials, **options) as chosen,
    ):
        runs = _Runs(grid, runner, chosen, tracking, progress=progress)
        failure = runs.make(tune_trials, tuner=tuner, fixed=fixed)
    if failure is not None and not (allow_partial and runs.finished()):
        raise failure
    return runs.comparison(margin=margin, failure=failure)


class _Runs:
    """The runs of a comparison: those asked for, or with tuning those with the settings that were chosen."""

    def __init__(
        self, grid: Grid, runner: Runner, executor: Executor, tracking: Tracking | None, *, progress: bool
    ) -> None:
        self.grid, self.runner, self.executor, self.tracking = grid, runner, executor, tracking
        self.progress = progress
        self.tuning: Tuning | None = None
        self.settled: list[tuple[Recipe, Recipe]] = []  # recipes as asked for and with the settings that were chosen

    def make(self, trials: int | None, *, tuner: str, fixed: Collection[str]) -> BaseException | None:
        """Make all runs; what ended it early or failed, if anything did."""
        make, why = run_despite_failures(self.runner, self._run), ""
        try:
            if trials is not None:
                seed = self.grid.config.split_seed
                self.tuning = tune(self.grid.recipes, trials, seed=seed, tuner=tuner, fixed=fixed, run_all=make)
                if first_process():
                    write_json(self.runner.root / TUNING, self.tuning.as_json())
            for recipe in self.grid.recipes:
                try:
                    self.settled.append((recipe, recipe if self.tuning is None else self.tuning.settled(recipe)))
                except DataError as error:  # every trial of one search failed
                    why = str(error)
            made = make([settled for _, settled in self.settled])
        except (KeyboardInterrupt, Exception) as error:  # what is finished makes a table all the same
            return error
        failed = [(recipe, run) for (_, recipe), run in zip(self.settled, made, strict=True) if not run.done]
        whys = [why] * bool(why) + [_describe_failed(failed)] * bool(failed)
        return DataError("; ".join(whys)) if whys else None

    def finished(self) -> list[tuple[Recipe, RunFolder]]:
        """Every finished run, beside the recipe that asked for it."""
        pairs = [(asked, self.runner.folder(settled)) for asked, settled in self.settled]
        return [(asked, folder) for asked, folder in pairs if folder.done]

    def comparison(self, *, margin: float | None, failure: BaseException | None) -> Comparison:
        """The comparison of what is finished."""
        done = self.finished()
        recipes, runs = [recipe for recipe, _ in done], [run for _, run in done]
        results = named_as_asked([run.result() for run in runs], recipes, self.grid.splits)
        if self.tuning is not None:
            pairs = zip(recipes, results, strict=True)
            results = [self.tuning.label_result(recipe, result) for recipe, result in pairs]
        return Comparison(
            results,
            BASELINE,
            margin=margin,
            machine=machine(self.runner.device),
            runs=[(run.path, result) for run, result in zip(runs, results, strict=True)],
            add_insights=lambda say: look_at(runs, self.runner, recipes, say=say).notes,
            folder=self.runner.root,
            tracked=() if self.tracking is None else self.tracking.look,
            failure=failure,
        )

    def _run(self, recipes: Sequence[Recipe]) -> list[RunFolder]:
        plan = self.runner.planner.plan(recipes)
        todo, done = plan.missing(self.runner.root)
        if not self.progress and self.tracking is None:
            return self.executor.run(plan)
        with ProgressBar(todo, done=done, workers=self.executor.workers, quiet=not self.progress) as bar:
            if self.tracking is None:
                return self.executor.run(plan, callback=bar)
            with tracked(self.tracking, plan, self.runner.root, bar) as callback:
                return self.executor.run(plan, callback=callback)


def _describe_failed(failed: Sequence[tuple[Recipe, RunFolder]]) -> str:
    named = [
        f"{recipe.label} with {recipe.hold_out} held out, seed {recipe.seed} ({run.why})" for recipe, run in failed
    ]
    counted = "1 training failed and is" if len(failed) == 1 else f"{len(failed)} trainings failed and are"
    return (
        f"{counted} not in the table: {listing(named, 3)}; change the settings of the method, or delete "
        f"{listing((str(run.path) for _, run in failed), 3)} to try again"
    )


def run_despite_failures(runner: Runner, run: Callable[[Sequence[Recipe]], object]) -> RunAll:
    """Runs as ``run`` makes them; one whose loss becomes NaN or infinite is skipped, now and in later calls."""

    def run_all(recipes: Sequence[Recipe]) -> list[RunFolder]:
        whole = [recipe for recipe in recipes if not _broken(runner, recipe)]
        while whole:
            try:
                run(whole)
                break
            except NotFiniteError:
                before, whole = whole, [recipe for recipe in whole if not _broken(runner, recipe)]
                if len(whole) == len(before):  # of something else
                    raise
        return [runner.folder(recipe) for recipe in recipes]

    return run_all


def _broken(runner: Runner, recipe: Recipe) -> bool:
    """Whether this run, or one that it needs, has failed."""
    plan = runner.planner.plan([recipe], check=False)
    return plan.failed(plan.asked[0], runner.root)
