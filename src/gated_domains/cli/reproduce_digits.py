"""``gated-domains reproduce digits``: the paper's table of Digits-5, with our settings and the controls it lacks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli.making import end, run_all, tell_tracked, watched, write_report
from gated_domains.cli.one_voice import one_voice
from gated_domains.cli.options import Report, Track, takes_executor, takes_hardware
from gated_domains.data.errors import DataError
from gated_domains.runs.folder import refuse_file
from gated_domains.runs.provenance import first_process

if TYPE_CHECKING:  # torch is imported when a command begins to work, not when the shell asks for help
    from gated_domains.paper.digits import Setup
    from gated_domains.training.engine import Hardware


@takes_executor
@takes_hardware
@one_voice()
def digits(
    hardware: dict[str, Any],
    executing: dict[str, Any],
    data: Annotated[
        Path | None, typer.Option(help="Where digits5 lies; else $GATED_DOMAINS_DATA, else the cache.")
    ] = None,
    small: Annotated[bool, typer.Option("--small", help="On digits5-small: 1,500 images a domain.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Every row in minutes on a CPU: small data and network, two targets.")
    ] = False,
    targets: Annotated[str | None, typer.Option(help="Some of the columns: mnist,mnistm,svhn,usps,syn.")] = None,
    methods: Annotated[str | None, typer.Option(help="Some of the rows (see --list): erm,ft_cosine,gdu.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each cell; 10, with --quick 1.", min=1)] = None,
    first_seed: Annotated[int, typer.Option(help="The first of these: a part of them on each machine.", min=0)] = 0,
    epochs: Annotated[int | None, typer.Option(help="At most so many, in every row.", min=1)] = None,
    precision: Annotated[str | None, typer.Option(help="32 or bf16; bf16 on a GPU by default.")] = None,
    light: Annotated[bool, typer.Option("--light", help="Keep results and curves, not weights.")] = False,
    done: Annotated[
        Path | None,
        typer.Option(
            help="A table.csv of earlier runs: those with the same row, target, seed and settings are not run."
        ),
    ] = None,
    train: Annotated[bool, typer.Option(help="Without: train nothing, make the table of what is done.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs and the table; out/digits by default.")] = None,
    track: Track = None,
    report: Report = True,
    show: Annotated[bool, typer.Option("--list", help="Name the rows and stop.")] = False,
) -> None:
    """Run the table of Digits-5: the paper's settings to the letter, ours, and controls, on each domain in turn.

    Runs are kept: the same command again skips finished runs and resumes interrupted ones. A cell that cannot be run
    says why and stops no other.
    """
    if show:
        _list()
        return
    from gated_domains.experiments.tracking import Tracking, check_trackers
    from gated_domains.paper.digits import chosen_rows, chosen_targets, plan
    from gated_domains.paper.run_list import other_settings, read_done, settings_hash
    from gated_domains.paper.running import Reproducing
    from gated_domains.training.engine import Hardware

    trackers = check_trackers(track)
    chosen = Hardware(**hardware)
    if "compile" not in hardware and chosen.accelerator == "cuda" and not (small or quick):
        chosen = replace(chosen, compile=True)  # hundreds of trainings of a few architectures
    setup = _setup(chosen, data, small=small, quick=quick, epochs=epochs, precision=precision)
    rows, columns = chosen_rows(methods), chosen_targets(targets, setup)
    root = out or Path("out") / ("digits-quick" if quick else "digits-small" if small else "digits")
    refuse_file(root)
    console = Console()
    wanted = range(first_seed, first_seed + (seeds or setup.seeds))
    grid = plan(setup, rows, columns, wanted)
    known = {} if done is None else read_done(done, grid)
    if done is not None:
        others = other_settings(done, grid, known)
        differ = f"; {others} are listed with other settings (--precision, --epochs, data)" if others else ""
        console.print(Text(f"{done}: {len(known)} of the {len(grid.jobs)} runs are done{differ}"), soft_wrap=True)
    tracking = Tracking(trackers if first_process() else (), root)
    work = Reproducing(
        grid,
        root,
        make=partial(watched, tracking=tracking) if train else None,
        data_dir=data,
        hardware=chosen,
        executing=executing,
        say=lambda line: console.print(Text(line), soft_wrap=True),
        light=light and first_process(),
        known=known,
    )
    stopped = run_all(work, tracking)
    if not first_process():
        return
    from gated_domains.reports.digits_numbers import DigitsNumbers
    from gated_domains.reports.digits_picture import draw_digits
    from gated_domains.reports.digits_table import DigitsTable
    from gated_domains.reports.published_digits import ROWS

    table = DigitsTable(
        DigitsNumbers(
            rows=rows,
            targets={name: setup.targets[name] for name in columns},
            cells=work.cells(),
            machine=work.machines(),
            published=setup.published,
            about=setup.about,
            how=setup.how(),
            settings={(job.row, job.column): settings_hash(job) for job in grid.jobs},
            made_on={(job.row, job.column, job.recipe.seed): where for job, where in work.made_on.items()},
        )
    )
    console.print(table)
    written = [*table.write(root), *draw_digits(table.numbers, root / "dots.png", title=table.title)]
    console.print(Text("wrote " + ", ".join(str(path) for path in written)), soft_wrap=True)
    if report:
        write_report(work, {name: ROWS[name].label for name in rows}, root, console)
    tell_tracked(tracking, console)
    end(stopped, work, console)


def _setup(
    hardware: Hardware, data: Path | None, *, small: bool, quick: bool, epochs: int | None, precision: str | None
) -> Setup:
    """On what the table is run."""
    from gated_domains.paper import digits

    if small and quick:
        raise DataError("--quick is on small data already; leave --small out")
    numbers = precision or ("bf16" if hardware.accelerator == "cuda" else "32")
    if quick:
        return digits.quick(data, epochs=epochs, precision=numbers)
    return digits.full(small=small, epochs=epochs, precision=numbers)


def _list() -> None:
    from gated_domains.reports.published_digits import ROWS

    for name, row in ROWS.items():
        print(f"{name:18}{row.block:10}{row.label}")
