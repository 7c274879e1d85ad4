"""``gated-domains reproduce ablations``: the figures of the paper's ablations, each with the grid of runs behind it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli.making import end, run_all, tell_tracked, watched
from gated_domains.cli.one_voice import one_voice
from gated_domains.cli.options import Report, Track, takes_executor, takes_hardware
from gated_domains.data.errors import DataError
from gated_domains.runs.folder import refuse_file
from gated_domains.runs.provenance import first_process

if TYPE_CHECKING:  # torch is imported when a command begins to work, not when the shell asks for help
    from gated_domains.paper.ablations.setup import Setup
    from gated_domains.training.engine import Hardware


@takes_executor
@takes_hardware
@one_voice()
def ablations(
    hardware: dict[str, Any],
    executing: dict[str, Any],
    figure: Annotated[str | None, typer.Option(help="Some of them (see --list): bases,srip.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where digits5 lies; else $GATED_DOMAINS_DATA, else the cache.")
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="On digits5-small: 1,500 images a domain.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="In minutes on a CPU: digits of the package, a small network, coarse grids.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="Runs of each cell; 3, with --quick 2.", min=1)] = None,
    epochs: Annotated[int | None, typer.Option(help="At most so many, in every run.", min=1)] = None,
    precision: Annotated[str | None, typer.Option(help="32 or bf16; bf16 on a GPU by default.")] = None,
    light: Annotated[bool, typer.Option("--light", help="Keep results and curves, and weights of ERM alone.")] = False,
    train: Annotated[bool, typer.Option(help="Without: train nothing, draw what is done.")] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs and the figures; out/ablations by default.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Name the figures and stop.")] = False,
    track: Track = None,
    report: Report = True,
) -> None:
    """Run the paper's ablations on Digits-5 with MNIST-M held out, and draw a figure as soon as its runs are there.

    Runs are kept: the same command again skips what is done and goes on with what was cut. A run that fails leaves a
    hole in its figure and stops no other.
    """
    from gated_domains.paper.ablations.grids import FIGURES, chosen_figures, counted

    if show:
        for name, about in FIGURES.items():
            print(f"{name:18}{about.what}")
        return
    from gated_domains.experiments.tracking import Tracking, check_trackers
    from gated_domains.paper.ablations.making import Ablating
    from gated_domains.training.engine import Hardware

    trackers = check_trackers(track)
    chosen, names = Hardware(**hardware), chosen_figures(figure)
    if "compile" not in hardware and chosen.accelerator == "cuda" and not (small or quick):
        chosen = replace(chosen, compile=True)  # hundreds of trainings of a few architectures
    setup = _setup(chosen, small=small, quick=quick, epochs=epochs, precision=precision)
    root = out or Path("out") / ("ablations-quick" if quick else "ablations-small" if small else "ablations")
    refuse_file(root)
    console = Console()

    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    tracking = Tracking(trackers if first_process() else (), root)
    work = Ablating(
        setup,
        names,
        range(seeds or setup.seeds),
        root,
        make=partial(watched, tracking=tracking) if train else None,
        light=light and first_process(),
        writes=first_process(),
        data_dir=data,
        hardware=chosen,
        executing=executing,
        say=say,
    )
    say(f"{', '.join(names)}: {counted(work.grid)}")
    stopped = run_all(work, tracking)
    if first_process():
        page = work.report() if report else None
        written = [*([page] if page else []), *work.written]
        if written:
            say("wrote " + ", ".join(map(str, written)))
        tell_tracked(tracking, console)
        end(stopped, work, console)


def _setup(hardware: Hardware, *, small: bool, quick: bool, epochs: int | None, precision: str | None) -> Setup:
    """On what the figures are made."""
    from gated_domains.paper.ablations import setup

    if small and quick:
        raise DataError("--quick is on small data already; leave --small out")
    numbers = precision or ("bf16" if hardware.accelerator == "cuda" else "32")
    if quick:
        return setup.quick(epochs=epochs, precision=numbers)
    return setup.full(small=small, epochs=epochs, precision=numbers)
