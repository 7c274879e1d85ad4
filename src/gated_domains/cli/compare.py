"""``gated-domains compare``: hold each domain out in turn, the gated model beside its rivals, one table."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli.one_voice import first_process, one_voice
from gated_domains.cli.options import (
    DataDir,
    Margin,
    Report,
    Track,
    refuse_file,
    takes_executor,
    takes_hardware,
    takes_protocol,
    takes_reading,
    takes_training,
)
from gated_domains.data.errors import DataError, listing
from gated_domains.data.readers.reading import Reading

if TYPE_CHECKING:  # torch is imported when a command begins to work, not when the shell asks for help
    from gated_domains.data.splits import HoldOut
    from gated_domains.experiments.executors import Executor
    from gated_domains.experiments.runner import Runner
    from gated_domains.experiments.tracking import Tracking
    from gated_domains.experiments.tuning import Tuning
    from gated_domains.reports import Comparison, RunResult
    from gated_domains.runs.folder import RunFolder
    from gated_domains.runs.recipe import Recipe


@takes_executor
@takes_hardware
@takes_protocol
@takes_training
@takes_reading
@one_voice()
def compare(
    what: Annotated[
        list[str],
        typer.Argument(metavar="DATA...", help="Names (see `data list`), files, folders, .yaml cards: a table each."),
    ],
    reading: Reading,
    training: dict[str, Any],
    protocol: dict[str, Any],
    hardware: dict[str, Any],
    executing: dict[str, Any],
    hold_out: Annotated[
        str,
        typer.Option(
            help="each, NAME, A,B (in turn), A+B (together), folds:K, official (the publisher's division); default: "
            "official where there is one, else each, many in folds."
        ),
    ] = "default",
    methods: Annotated[
        str | None,
        typer.Option(
            help="all, or names separated by commas; settings in brackets: gdu\\[num_bases=8,mixstyle=0.5]. By default "
            "gdu,erm,linear; on images also recommended and erm with Fourier mixing."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Trainings of each method on each hold-out; 5 on small tables, else 2.", min=1),
    ] = None,
    tune: Annotated[
        int | None, typer.Option(help="Settings to try for each method and hold-out, chosen on the sources alone.")
    ] = None,
    tuner: Annotated[str, typer.Option(help="What proposes them: random, or optuna.")] = "random",
    body: Annotated[
        str,
        typer.Option(
            help="small, digits, resnet18, resnet50, densenet121, efficientnet-lite0 (images), mlp, identity "
            "(vectors), distilbert, distilbert-classifier (texts), gin (molecules); by the data."
        ),
    ] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder of the runs and the table; runs/DATA by default.")] = None,
    data_dir: DataDir = None,
    data_seed: Annotated[int, typer.Option(help="For data made in code.", min=0)] = 0,
    margin: Margin = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the whole caption: protocol, tests, and notes on data and runs.")
    ] = False,
    track: Track = None,
    report: Report = True,
) -> None:
    """Hold each domain out in turn, train every method on the others, and print the answer and one table.

    Runs are kept: the same command again skips finished runs and resumes interrupted ones. Three data sets or more are
    also analysed together.
    """
    from gated_domains.evaluation.metrics import check_margin

    check_margin(margin)
    compared = []
    roots = [Path(name).stem for name in what]
    for place, (name, stem) in enumerate(zip(what, roots, strict=True)):
        if stem in roots[:place]:
            raise DataError(f"two of these data would go to a folder {stem}; compare {name} by itself, with --out")
        # Each in a folder of its own, also below one that was named.
        found = _compare(
            name,
            reading=reading,
            training=training,
            protocol=protocol,
            hardware=hardware,
            executing=executing,
            hold_out=hold_out,
            methods=methods,
            seeds=seeds,
            tune=tune,
            tuner=tuner,
            body=body,
            out=out if out is None or len(what) == 1 else out / stem,
            data_dir=data_dir,
            data_seed=data_seed,
            margin=margin,
            explain=explain,
            track=track,
            report=report,
        )
        compared += [] if found is None else [found]
    if len(compared) > 1:
        _together(compared, out or Path("runs"), margin=margin, report=report)


@dataclass(frozen=True)
class _Compared:
    """A comparison on one data set, and the run folders behind it."""

    comparison: Comparison
    runs: list[tuple[Path, RunResult]]


def _compare(
    what: str,
    *,
    reading: Reading,
    training: dict[str, Any],
    protocol: dict[str, Any],
    hardware: dict[str, Any],
    executing: dict[str, Any],
    hold_out: str,
    methods: str | None,
    seeds: int | None,
    tune: int | None,
    tuner: str,
    body: str,
    out: Path | None,
    data_dir: Path | None,
    data_seed: int,
    margin: float | None,
    explain: bool,
    track: str | None,
    report: bool,
) -> _Compared | None:
    """The comparison on one data set; None in all processes but the first."""
    from gated_domains.data.loading import load_data
    from gated_domains.data.splits import OFFICIAL, hold_outs
    from gated_domains.experiments.comparing import default_methods, default_seeds, every_method, plan, split_varies
    from gated_domains.experiments.executors import choose_executor
    from gated_domains.experiments.recipe_parsing import checked_body, default_training, parse_methods, validate_config
    from gated_domains.experiments.runner import Runner
    from gated_domains.experiments.tracking import Tracking, check_trackers
    from gated_domains.runs.recipe import DataSettings
    from gated_domains.training.engine import Hardware

    trackers = check_trackers(track)
    named = None if methods is None or methods.strip() == "all" else parse_methods(methods)
    checked_body(body)
    loading = partial(load_data, what, reading, data_dir=data_dir, seed=data_seed)
    dataset = loading()
    seeds = seeds or default_seeds(dataset)
    config = validate_config(
        protocol,
        data=DataSettings.of(what, reading, data_seed),
        body=body,
        training=default_training(dataset, training),
    )
    splits = hold_outs(dataset, hold_out, validation=config.validation, seed=config.split_seed)
    root = out or Path("runs") / Path(dataset.name).stem
    refuse_file(root)
    runner = Runner(dataset, root, hardware=Hardware(**hardware))
    unable: dict[str, str] = {}
    if named is not None:
        chosen = named
    else:
        choosing = default_methods if methods is None else every_method
        chosen, unable = choosing(runner, splits, config=config)
    recipes = plan(runner, splits, chosen, seeds, config=config)
    todo, there = runner.to_train(recipes)
    official = splits[0].key == OFFICIAL
    in_folds = hold_out == "default" and len(splits) < len(dataset.domain_names) and not official
    console = Console()
    console.print(
        Text(
            f"{dataset.name}: {len(dataset):,} rows, {dataset.inputs.describe()}, {len(dataset.domain_names)} domains\n"
            f"{len(todo) + there} training{'s' * (len(todo) + there != 1)} ({_grid(len(splits), len(chosen), seeds)}"
            + ", and those that they stand on" * (len(todo) + there > len(recipes))
            + ")"
            + f", {there} of them done already" * bool(there)
            + "; every seed draws its own train/validation split"
            * (seeds > 1 and split_varies(dataset, splits[0], config))
            + f"; before them, {tune} trials of settings for each method and hold-out" * (tune is not None)
            + f"\n{len(dataset.domain_names)} domains are many: they are held out in folds" * in_folds
            + "\nheld out as published: train trains, val selects, test is scored" * official
            + "".join(f"\nleft out: {why}" for why in unable.values())
        ),
        soft_wrap=True,
    )
    trials = 0 if tune is None else len(splits) * len(chosen) * (tune - 1)
    with (
        Tracking(trackers if first_process() else (), root) as tracking,
        choose_executor(runner, len(todo) + trials, data=loading, **executing) as executor,
    ):
        grid = _Grid(
            runner,
            executor,
            recipes,
            count=tune,
            tuner=tuner,
            fixed=training,
            seed=config.split_seed,
            tracking=tracking,
        )
        stopped = grid.run()
    if not first_process():
        return None
    return _tell(grid, splits, root, console, stopped, margin=margin, explain=explain, report=report)


class _Grid:
    """The runs of a comparison: those asked for, or with tuning those whose settings were chosen."""

    def __init__(
        self,
        runner: Runner,
        executor: Executor,
        recipes: list[Recipe],
        *,
        count: int | None,
        tuner: str,
        fixed: Collection[str],
        seed: int,
        tracking: Tracking,
    ) -> None:
        self.runner, self.executor, self.asked, self.tracking = runner, executor, recipes, tracking
        self.count, self.tuner, self.fixed, self.seed = count, tuner, fixed, seed
        self.tuning: Tuning | None = None

    def run(self) -> BaseException | None:
        """Make all runs; what stopped it in between, if anything did."""
        from gated_domains.experiments.tuning import TUNING, outlasting, tune
        from gated_domains.runs.json_files import write_json

        try:
            if self.count is not None:
                run_all = outlasting(self.runner, self._made)
                self.tuning = tune(
                    self.asked, self.count, seed=self.seed, tuner=self.tuner, fixed=self.fixed, run_all=run_all
                )
                if first_process():
                    write_json(self.runner.root / TUNING, self.tuning.as_json())
            settled = [self._settled(recipe) for recipe in self.asked]
            made = outlasting(self.runner, self._made)(settled)
        except (KeyboardInterrupt, DataError) as error:  # what is done makes a table all the same
            return error
        broken = [(recipe, run) for recipe, run in zip(settled, made, strict=True) if not run.done]
        return None if not broken else DataError(_broken_words(broken))

    def results(self) -> list[tuple[Recipe, RunFolder]]:
        """Every run that is done, beside the recipe that asked for it."""
        if self.count is not None and self.tuning is None:
            return []
        found = [(recipe, self.runner.find(self._settled(recipe))) for recipe in self.asked]
        return [(recipe, folder) for recipe, folder in found if folder is not None and folder.done]

    def _settled(self, recipe: Recipe) -> Recipe:
        return recipe if self.tuning is None else self.tuning.settled(recipe)

    def _made(self, recipes: Sequence[Recipe]) -> list[RunFolder]:
        from gated_domains.cli.watching import Watching
        from gated_domains.experiments.tracking import tracked

        todo, there = self.runner.to_train(recipes)
        with (
            Watching(todo, done=there, workers=self.executor.workers) as watching,
            tracked(self.tracking, self.runner, recipes, watching) as watcher,
        ):
            return self.executor.run(recipes, watcher=watcher)


def _tell(
    grid: _Grid,
    splits: Sequence[HoldOut],
    root: Path,
    console: Console,
    stopped: BaseException | None,
    *,
    margin: float | None,
    explain: bool,
    report: bool,
) -> _Compared:
    """Print and write the table of what is done, and the page."""
    from gated_domains.cli.making import tell_tracked
    from gated_domains.experiments.comparing import BASELINE, named_as_asked
    from gated_domains.experiments.tuning import TUNING
    from gated_domains.reports.table import Comparison
    from gated_domains.runs.environment import machine
    from gated_domains.runs.result import read_results

    done = grid.results()
    if stopped is not None and not done:
        _end(stopped, console, "interrupted before the first training was finished; the same command resumes it")
    runs = [folder for _, folder in done]
    results = named_as_asked([read_results([run.path])[0] for run in runs], [recipe for recipe, _ in done], splits)
    if grid.tuning is not None:
        results = [grid.tuning.told(recipe, result) for (recipe, _), result in zip(done, results, strict=True)]
    comparison = Comparison(results, BASELINE, margin=margin, machine=machine(grid.runner.device))
    console.print()
    console.print(comparison.rich(explain=explain))
    tuning = [root / TUNING] if grid.tuning is not None else []
    written = [*comparison.write(root), *tuning]
    console.print(Text("wrote " + ", ".join(str(path) for path in written)), soft_wrap=True)
    if report:
        _write_report(grid.runner, done, results, comparison, console, margin=margin)
    tell_tracked(grid.tracking, console)
    if stopped is not None:
        _end(stopped, console, "interrupted; finished runs are kept, and the same command resumes the others")
    return _Compared(comparison, [(run.path, result) for run, result in zip(runs, results, strict=True)])


def _together(compared: Sequence[_Compared], root: Path, *, margin: float | None, report: bool) -> None:
    """Print the analysis over all data sets, where there are enough of them, and write one page of everything."""
    from gated_domains.cli.report import progress, tell
    from gated_domains.experiments.comparing import BASELINE
    from gated_domains.reports import Gathered, write_page
    from gated_domains.reports.across import across_datasets

    console = Console()
    across = across_datasets([found.comparison.numbers for found in compared])
    if across is not None:
        console.print()
        console.print(across)
    if report:
        gathered = Gathered([run for found in compared for run in found.runs])
        with progress() as say:
            page = write_page(gathered, root / "report.html", baseline=BASELINE, margin=margin, say=say)
        tell(page, gathered, console)


def _write_report(
    runner: Runner,
    done: Sequence[tuple[Recipe, RunFolder]],
    results: Sequence[RunResult],
    comparison: Comparison,
    console: Console,
    *,
    margin: float | None,
) -> None:
    """Look into a few gated runs, and write the page of all."""
    from gated_domains.cli.report import progress, tell
    from gated_domains.experiments.comparing import BASELINE
    from gated_domains.experiments.looking import look_at
    from gated_domains.reports import Gathered, write_page

    runs = [folder for _, folder in done]
    gathered = Gathered((run.path, result) for run, result in zip(runs, results, strict=True))
    with progress() as say:
        looked = look_at(runs, runner, [recipe for recipe, _ in done], say=say)
        path = runner.root / "report.html"
        page = write_page(gathered, path, baseline=BASELINE, margin=margin, machine=comparison.machine, say=say)
    tell(page, gathered, console, notes=looked.notes)


def _broken_words(broken: Sequence[tuple[Recipe, RunFolder]]) -> str:
    said = [f"{recipe.label} with {recipe.hold_out} held out, seed {recipe.seed} ({run.why})" for recipe, run in broken]
    return (
        f"{len(broken)} trainings broke off, and are not in the table: {listing(said, 3)}; change the settings of the "
        f"method, or delete {listing((str(run.path) for _, run in broken), 3)} to try again"
    )


def _end(why: BaseException, console: Console, words: str) -> NoReturn:
    """Stopped by a person: say that it goes on. Stopped by bad input: say what is wrong with it."""
    if not isinstance(why, KeyboardInterrupt):
        raise why
    console.print(words)
    sys.exit(130)


def _grid(hold_outs: int, methods: int, seeds: int) -> str:
    counted = (("hold-out", hold_outs), ("method", methods), ("seed", seeds))
    return " x ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counted)
