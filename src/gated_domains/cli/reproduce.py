"""``gated-domains reproduce``: the paper's tables, run again, with the published number beside each of ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli.making import end, run_all, tell_tracked, watched, write_report
from gated_domains.cli.one_voice import one_voice
from gated_domains.cli.options import Report, Track, takes_executor, takes_hardware
from gated_domains.cli.reproduce_ablations import ablations
from gated_domains.cli.reproduce_digits import digits
from gated_domains.data.errors import DataError
from gated_domains.runs.folder import refuse_file
from gated_domains.runs.provenance import first_process

if TYPE_CHECKING:  # torch is imported when a command begins to work, not when the shell asks for help
    from gated_domains.experiments.runner import Runner
    from gated_domains.paper.curves import Curves
    from gated_domains.runs.recipe import Recipe

app = typer.Typer(help="Run the paper's tables again, with the published number beside each.", no_args_is_help=True)
app.command("digits")(digits)
app.command("ablations")(ablations)


@app.command("wilds")
@takes_executor
@takes_hardware
@one_voice()
def wilds(
    hardware: dict[str, Any],
    executing: dict[str, Any],
    data: Annotated[
        Path | None, typer.Option(help="Where the WILDS data lie; else $GATED_DOMAINS_DATA, else the cache.")
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Some of the columns: camelyon17,fmow,camelyon17-digits.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Some of the rows: erm,coral,e2e_cosine,gdu.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each cell (folds of PovertyMap); by default as WILDS asks for.", min=1)
    ] = None,
    miniature: Annotated[
        bool, typer.Option("--miniature", help="On made-up data in the same layout, with shrunk networks: minutes.")
    ] = False,
    curves: Annotated[bool, typer.Option(help="Draw the Davies-Bouldin curves of the ERM networks.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs and the table; out/wilds by default.")] = None,
    track: Track = None,
    report: Report = True,
    show: Annotated[bool, typer.Option("--list", help="Name the recipes and stop.")] = False,
) -> None:
    """Run the table of WILDS: ERM, the paper's GDU, ours, and the rivals whose settings were published.

    Runs are kept: the same command again skips what is done and goes on with what was cut. A cell that cannot be run
    says why and stops no other.
    """
    if show:
        _list()
        return
    from gated_domains.experiments.tracking import Tracking, check_trackers
    from gated_domains.paper import cells
    from gated_domains.paper.curves import Curves
    from gated_domains.paper.grid import plan
    from gated_domains.paper.miniature import shrink, write_miniatures
    from gated_domains.paper.running import Reproducing
    from gated_domains.reports.published_table import PublishedTable
    from gated_domains.reports.reproduced import Reproduction
    from gated_domains.training.engine import Hardware

    trackers = check_trackers(track)
    if miniature and data is not None:
        raise DataError("--miniature makes its own data; leave --data out")
    rows, columns = cells.chosen_rows(methods), cells.chosen_columns(datasets)
    root = out or Path("out") / ("wilds-miniature" if miniature else "wilds")
    refuse_file(root)
    console = Console()
    if miniature:
        data, seeds = root / "data", seeds or 1
        if first_process():
            write_miniatures(columns, data)
    change = shrink if miniature else None
    grid = plan(rows, columns, seeds=seeds, change=change)
    described = cells.described_columns(columns, change)
    drawn = Curves({f"wilds/{column.dataset}": column.title for column in described.values() if column.published})
    chosen = Hardware(**hardware)
    tracking = Tracking(trackers if first_process() else (), root)
    work = Reproducing(
        grid,
        root,
        make=partial(watched, tracking=tracking),
        data_dir=data,
        hardware=chosen,
        executing=executing,
        say=lambda line: console.print(Text(line), soft_wrap=True),
        after=_curves_of(drawn) if curves and "erm" in rows else None,
    )
    stopped = run_all(work, tracking)
    if not first_process():
        return
    found = Reproduction(
        rows=cells.described_rows(rows),
        columns=described,
        cells=work.cells(),
        machine=work.machines(),
        miniature=miniature,
        notes=tuple(drawn.verdict()),
    )
    table = PublishedTable(found)
    console.print(table)
    made_up = "miniatures of " * miniature
    written = [*table.write(root), *drawn.write(root, title=f"Davies-Bouldin score of {made_up}WILDS by M")]
    console.print(Text("wrote " + ", ".join(str(path) for path in written)), soft_wrap=True)
    if report:
        write_report(work, {name: row.label for name, row in found.rows.items()}, root, console)
    tell_tracked(tracking, console)
    end(stopped, work, console)


def _list() -> None:
    from gated_domains import recipes

    for name in recipes.names("wilds"):
        print(name)


def _curves_of(drawn: Curves) -> Any:
    """Take the curves of a data set, by its first process alone."""

    def after(what: str, runner: Runner, recipes: Sequence[Recipe]) -> None:
        ours = [recipe for recipe in recipes if recipe.body != "digits"]  # the second set-up has none in the paper
        if first_process() and ours:
            drawn.add(what.partition(":")[0], runner, ours)

    return after
