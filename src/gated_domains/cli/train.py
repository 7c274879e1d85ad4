"""``gated-domains train``: one model, from a recipe or straight from data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli.one_voice import one_voice
from gated_domains.cli.options import (
    DataDir,
    Track,
    takes_hardware,
    takes_protocol,
    takes_reading,
    takes_training,
)
from gated_domains.data.labels import Reading


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
    from gated_domains.experiments.train import print_run
    from gated_domains.experiments.train import train as run_training
    from gated_domains.training.engine import Hardware

    run = run_training(
        what,
        reading=reading,
        method=method,
        hold_out=hold_out,
        body=body,
        seed=seed,
        training=training,
        config=protocol,
        out=out,
        data_dir=data_dir,
        hardware=Hardware(**hardware),
        checkpoint_seconds=checkpoint_seconds,
        track=track,
    )
    console = Console()
    print_run(run, console)
    for command in run.tracked:
        console.print(Text(f"tracked; look at it with: {command}"), soft_wrap=True)
    console.print(Text(f"next: gated-domains predict {run.path} NEW_DATA --out predictions.csv"), soft_wrap=True)
