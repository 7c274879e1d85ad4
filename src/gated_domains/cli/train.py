"""``gated-domains train``: one model, from a recipe or straight from data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gated_domains.cli.making import tell_tracked
from gated_domains.cli.one_voice import first_process, one_voice
from gated_domains.cli.options import (
    DataDir,
    Track,
    refuse_file,
    takes_hardware,
    takes_protocol,
    takes_reading,
    takes_training,
)
from gated_domains.data.errors import DataError
from gated_domains.data.readers.reading import Reading


@takes_hardware
@takes_protocol
@takes_training
@takes_reading
@one_voice()
def train(
    what: Annotated[str, typer.Argument(metavar="RECIPE|DATA", help="A recipe (.yaml), or data as for compare.")],
    reading: Reading,
    training: dict[str, Any],
    protocol: dict[str, Any],
    hardware: dict[str, Any],
    hold_out: Annotated[
        str | None, typer.Option(help="Domain never seen, A+B for two; none: all are trained on, as without it.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="With settings in brackets: gdu\\[num_bases=8].")] = None,
    body: Annotated[
        str | None,
        typer.Option(
            help="small, digits, resnet18, resnet50, densenet121, efficientnet-lite0 (images), mlp, identity "
            "(vectors), distilbert, distilbert-classifier (texts), gin (molecules)."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; runs/DATA by default.")] = None,
    data_dir: DataDir = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="Between two checkpoints at least.", min=0)] = 20.0,
    track: Track = None,
) -> None:
    """Train one model, from a recipe or straight from data. Options override what a recipe says."""
    from gated_domains import recipes
    from gated_domains.cli.watching import Watching
    from gated_domains.data.loading import load_data
    from gated_domains.experiments.recipe_parsing import is_recipe, read_recipe
    from gated_domains.experiments.runner import Runner
    from gated_domains.experiments.tracking import Tracking, check_trackers, tracked
    from gated_domains.training.engine import Hardware

    trackers = check_trackers(track)
    what = recipes.located(what)
    written = read_recipe(what) if is_recipe(what) else None
    if written is not None and reading != Reading():
        raise DataError(f"{what} says how its data are read; change it there")
    data = written.data if written is not None else None
    dataset = load_data(
        data.what if data else what, data.reading if data else reading, data_dir=data_dir, seed=data.seed if data else 0
    )
    recipe = _recipe(written, what, reading, dataset, training, protocol, hold_out, method, body, seed)
    root = out or Path("runs") / Path(dataset.name).stem
    refuse_file(root)
    runner = Runner(dataset, root, hardware=Hardware(**hardware), checkpoint_seconds=checkpoint_seconds)
    runner.check(recipe)
    todo, there = runner.to_train([recipe])
    with (
        Tracking(trackers if first_process() else (), root) as tracking,
        Watching(todo, done=there) as watching,
        tracked(tracking, runner, [recipe], watching) as runner.watcher,
    ):
        run = runner.run(recipe)
    _print_result(run.result(), run.path)
    tell_tracked(tracking, Console())


def _recipe(
    written: Any,
    what: str,
    reading: Reading,
    dataset: Any,
    training: dict[str, Any],
    protocol: dict[str, Any],
    hold_out: str | None,
    method: str | None,
    body: str | None,
    seed: int | None,
) -> Any:
    """The recipe that the file and the options come to."""
    from gated_domains.experiments.recipe_parsing import (
        checked_body,
        choose_method,
        default_training,
        parse_methods,
        validate_config,
    )
    from gated_domains.runs.recipe import DataSettings, Recipe, RunConfig
    from gated_domains.settings import parsed, plain
    from gated_domains.training.settings import TrainingSettings

    changes: dict[str, Any] = {
        "body": None if body is None else checked_body(body),
        "seed": seed,
    }
    if method is not None:
        chosen = parse_methods(method, option="--method")
        if len(chosen) != 1:
            raise DataError(f"--method names one method, got {method!r}; `compare` takes several")
        chosen[0].refuse_contradiction(training)
        changes["method"] = chosen[0]
    changes = {name: value for name, value in changes.items() if value is not None}
    if hold_out is not None:
        changes["hold_out"] = _one_hold_out(hold_out, dataset.domain_names)
    if written is not None:
        # What the recipe's own method changes in the training goes with it.
        base = written.training if method is None else parsed(RunConfig, _frame_of(what), what).training
        settings = parsed(TrainingSettings, {**plain(base), **training}, "training")
        data = written.data
    else:
        settings, data = default_training(dataset, training), DataSettings.of(what, reading)
    config = validate_config(protocol, data=data, body="auto", training=settings)
    changes |= {name: getattr(config, name) for name in protocol}
    if written is not None:
        recipe = written.replace(**changes, training=settings)
        if method is not None:
            return recipe.with_method(recipe.method)
        left = {name: value for name, value in recipe.method.training.items() if name not in training}
        return recipe.replace(method=recipe.method.model_copy(update={"training": left}))
    changes.setdefault("method", choose_method("gdu"))
    recipe = Recipe(data=data, training=settings, **changes)
    return recipe.with_method(recipe.method)


def _frame_of(path: str) -> dict[str, Any]:
    """What a recipe says beside its method."""
    from gated_domains.settings import from_yaml

    return {name: value for name, value in from_yaml(Path(path)).items() if name != "method"}


def _one_hold_out(written: str, domains: Sequence[str]) -> str | None:
    """What is held out; ``none``, unless a domain is called so, is nothing."""
    if written not in domains and (written in ("each", "default") or written.startswith("folds:")):
        raise DataError(f"--hold-out {written} is more than one training; name a domain, or use `compare`")
    return None if written == "none" and written not in domains else written


def _print_result(result: dict[str, Any], path: Path) -> None:
    from gated_domains.evaluation.scores import METRICS

    metric = METRICS[result["metric"]]
    console = Console()
    console.print(Text(f"{result['label']} on {result['data']}, {_held_out(result)}, seed {result['seed']}"))
    table = Table("", "domain", box=None, header_style="bold", pad_edge=False)
    table.add_column(metric.label, justify="right")
    for part, words in (("validation", "source, validation rows"), ("test", "held out")):
        for name, value in ((result[part] or {}).get("by_domain", {})).items():
            table.add_row(words, Text(name), metric.shown(value))
    console.print(table)
    console.print(
        Text(
            f"selected by {result['selection']}: epoch {result['best_epoch'] + 1} of {result['epochs']} "
            f"({result['stopped']}); {result['seconds']:.1f} s, {result['parameters']['trained']:,} weights trained"
        )
    )
    for note in result["notes"]:
        console.print(Text(f"note: {note}"))
    console.print(Text(f"run: {path}"), soft_wrap=True)


def _held_out(result: dict[str, Any]) -> str:
    if result["held_out"]:
        return f"{result['hold_out']} held out"
    return "trained on all domains" if result["sources"] else "trained on all rows"
