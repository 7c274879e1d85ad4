"""``gated-domains shift``: is a new site like those of training, and how will the model do there?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gated_domains.cli.options import DataDir, Seed, takes_reading
from gated_domains.cli.printing import print_hanging
from gated_domains.data.labels import Reading

if TYPE_CHECKING:  # torch is imported when a command begins to work, not when the shell asks for help
    from gated_domains.experiments.runner import Runner
    from gated_domains.runs.recipe import Recipe
    from gated_domains.runs.site_shift import SiteShift

_MOST_COLUMNS = 6  # sources in the table


@takes_reading
def shift(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="The folder of a gated run (or the first letters of it) or of a saved estimator."
        ),
    ],
    what: Annotated[str, typer.Argument(metavar="NEW_DATA", help="Data of the new site: a file, a folder, a name.")],
    reading: Reading,
    training: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="TRAINING",
            help="The data of training, where they have moved or a saved estimator needs them.",
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Measure how well accuracy can be estimated, where that was not done: train once without each source. "
            "It is kept in the folder of the model.",
        ),
    ] = False,
    rows: Annotated[
        int | None,
        typer.Option(help="The most rows of the site that are looked at, at random; 5,000 (1,000 by a large body)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write (.html).")] = Path("shift.html"),
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write the page.")] = True,
    data_dir: DataDir = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Say whether a new site is farther from the sources than they are from one another, and what to expect there.

    Rows with the same value in the column --keep-together (a patient) are permuted and redrawn as a whole; by default
    in the column that training kept together. Targets are not needed; where they are there, the true accuracy stands
    beside. Rows of training are kept in the folder of a run at the first call; later calls do without its data.
    """
    from gated_domains.reports.shift_page import check_page, write_shift_page

    if page:
        check_page(out)
    from gated_domains.applying.inside import open_gated
    from gated_domains.applying.shifting import read_site, shift_of
    from gated_domains.training.engine import Hardware

    hardware = Hardware(device=device)
    opened = open_gated(model, device=hardware.accelerator)
    data = read_site(what, opened.schema, reading=reading, data_dir=data_dir)
    found = shift_of(
        opened,
        data,
        training=training,
        calibrate=calibrate,
        reading=reading,
        data_dir=data_dir,
        hardware=hardware,
        make=_watched,
        rows=rows,
        keep_together=reading.keep_together,
        seed=seed,
    )
    if page:
        write_shift_page(found, out)
    if as_json:
        print(json.dumps({**found.as_json(), "page": str(out) if page else None}, indent=1, allow_nan=False))
        return
    console = Console()
    _print(console, found)
    if page:
        console.print(Text(f"wrote {out}"), soft_wrap=True)


def _watched(runner: Runner, recipes: Sequence[Recipe]) -> None:
    """Make runs while a person looks on."""
    from gated_domains.experiments.progress import ProgressBar

    todo, there = runner.planner.plan(recipes).missing(runner.root)
    with ProgressBar(todo, done=there) as runner.callback:
        for recipe in recipes:
            runner.run(recipe)


def _print(console: Console, found: SiteShift) -> None:
    from gated_domains.reports.shift_words import sentences, untold

    answer, *rest = sentences(found)
    console.print(Text(answer, style="bold"), soft_wrap=not console.is_terminal)
    for sentence in rest:
        console.print(Text(sentence), soft_wrap=not console.is_terminal)
    if not untold(found):
        _print_mixture(console, found)
    for note in found.notes:
        print_hanging(console, Text("note: "), note)


def _print_mixture(console: Console, found: SiteShift) -> None:
    from gated_domains.reports.shift_words import percent, whose

    names = [source.name for source in found.sources]
    table = Table("basis", box=None, header_style="bold", pad_edge=False)
    table.add_column("the site", justify="right")
    table.add_column(f"{percent(found.level)} interval", justify="right")
    for source in found.sources[:_MOST_COLUMNS]:
        table.add_column(Text(source.name), justify="right")
    table.add_column("")
    for place, basis in enumerate(found.mixture):
        table.add_row(
            str(basis.basis),
            percent(basis.share),
            f"{100 * basis.low:.0f} to {percent(basis.high)}",
            *(percent(source.mixture[place]) for source in found.sources[:_MOST_COLUMNS]),
            Text(whose(basis, names)),
        )
    console.print()
    console.print(table)
    console.print()
