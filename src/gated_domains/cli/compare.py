"""``gated-domains compare``: hold each domain out in turn, the gated model beside its rivals, one table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli.one_voice import first_process, one_voice
from gated_domains.cli.options import DataDir, What, refuse_file, takes_hardware, takes_reading, takes_training
from gated_domains.data.errors import DataError
from gated_domains.data.readers.reading import Reading

_METHODS = "gdu,erm,linear"


@takes_hardware
@takes_training
@takes_reading
@one_voice()
def compare(
    what: What,
    reading: Reading,
    training: dict[str, Any],
    hardware: dict[str, Any],
    hold_out: Annotated[
        str, typer.Option(help="each, NAME, A,B (in turn), A+B (together), folds:K; default: each, many in folds.")
    ] = "default",
    methods: Annotated[
        str, typer.Option(help="Separated by commas; settings in brackets: gdu\\[num_bases=8,coverage=false].")
    ] = _METHODS,
    seeds: Annotated[int, typer.Option(help="Trainings of each method on each hold-out.", min=1)] = 2,
    body: Annotated[str, typer.Option(help="small, digits (images), mlp, identity (vectors); by the data.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder of the runs and the table; runs/DATA by default.")] = None,
    validation: Annotated[float, typer.Option(help="Share of the source rows to validate on.")] = 0.2,
    split_seed: Annotated[int, typer.Option(help="For drawing those.", min=0)] = 0,
    data_dir: DataDir = None,
    data_seed: Annotated[int, typer.Option(help="For data made in code.", min=0)] = 0,
) -> None:
    """Hold each domain out in turn, train every method on the others, and print one table.

    Runs are kept: the same command again skips what is done and goes on with what was cut.
    """
    from gated_domains.cli.watching import Watching
    from gated_domains.data.loading import load_data
    from gated_domains.data.splits import hold_outs
    from gated_domains.experiments.comparing import BASELINE, draw, named_as_asked, plan
    from gated_domains.experiments.environment import machine
    from gated_domains.experiments.recipe import DataSettings, checked_body, default_training, methods_written
    from gated_domains.experiments.runner import Runner
    from gated_domains.reports.results import read_results
    from gated_domains.reports.table import Comparison
    from gated_domains.training.engine import Hardware

    chosen = methods_written(methods)
    checked_body(body)
    dataset = load_data(what, reading, data_dir=data_dir, seed=data_seed)
    settings = default_training(dataset, training)
    splits = hold_outs(dataset, hold_out, validation=validation, seed=split_seed)
    root = out or Path("runs") / Path(dataset.name).stem
    refuse_file(root)
    runner = Runner(dataset, root, hardware=Hardware(**hardware))
    recipes = plan(
        runner,
        splits,
        chosen,
        seeds,
        data=DataSettings.of(what, reading, data_seed),
        body=body,
        training=settings,
        validation=validation,
        split_seed=split_seed,
    )
    todo, there = runner.to_train(recipes)
    in_folds = hold_out == "default" and len(splits) < len(dataset.domain_names)
    console = Console()
    console.print(
        Text(
            f"{dataset.name}: {len(dataset):,} rows, {dataset.inputs.describe()}, {len(dataset.domain_names)} domains\n"
            f"{len(todo) + there} trainings ({_grid(len(splits), len(chosen), seeds)}"
            + ", and those that they stand on" * (len(todo) + there > len(recipes))
            + ")"
            + f", {there} of them done already" * bool(there)
            + f"\n{len(dataset.domain_names)} domains are many: they are held out in folds" * in_folds
        ),
        soft_wrap=True,
    )
    runs = []
    stopped: BaseException | None = None
    with Watching(todo, done=there) as watching:
        runner.watcher = watching
        try:
            runs = [runner.run(recipe) for recipe in recipes]
        except (KeyboardInterrupt, DataError) as error:  # what is done makes a table all the same
            stopped = error
            runs = [folder for recipe in recipes if (folder := runner.find(recipe)) is not None and folder.done]
    if not first_process():
        return  # the first writes the table
    if stopped is not None and not runs:
        _end(stopped, console, "stopped before the first training was done; the same command goes on where it was")
    results = named_as_asked(read_results([run.path for run in runs]), splits)
    comparison = Comparison(results, BASELINE, machine=machine(runner.device))
    console.print(comparison.rich())
    console.print(Text(comparison.verdict(), style="bold"))
    written = [*comparison.write(root), *draw(comparison, runs, runner, root)]
    console.print(Text("wrote " + ", ".join(str(path) for path in written)), soft_wrap=True)
    if stopped is not None:
        _end(stopped, console, "stopped; what is done is kept, and the same command goes on where it was")


def _end(why: BaseException, console: Console, words: str) -> NoReturn:
    """Stopped by a person: say that it goes on. Stopped by bad input: say what is wrong with it."""
    if not isinstance(why, KeyboardInterrupt):
        raise why
    console.print(words)
    sys.exit(130)


def _grid(hold_outs: int, methods: int, seeds: int) -> str:
    counted = (("hold-out", hold_outs), ("method", methods), ("seed", seeds))
    return " x ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counted)
