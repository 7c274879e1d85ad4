"""``gated-domains runs list``: what each run folder is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

app = typer.Typer(help="Look at run folders.", no_args_is_help=True)


@app.callback()
def _runs() -> None:
    """Look at run folders."""


@app.command("list")
def list_runs(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder with runs, in itself or below; runs by default.")
    ] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """List runs: data, method, hold-out, seed, score and state of each folder."""
    import json

    from gated_domains.runs.collection import list_folders

    listed = list_folders(folder)
    if as_json:
        print(json.dumps([{**vars(run), "path": str(folder / run.path)} for run in listed], indent=1))
        return
    heading = ("run", "data", "method", "held out", "seed", "score", "state")
    rows = [
        (str(folder / run.path), run.data, run.method, run.hold_out, run.seed, run.score, run.state) for run in listed
    ]
    console = Console()
    if console.is_terminal:
        table = Table(*heading, box=None, header_style="bold", pad_edge=False)
        for row in rows:
            table.add_row(*(Text(word) for word in row))  # not markup: a label has settings in brackets
        console.print(table)
    else:  # whole lines for other programs
        print("\n".join("\t".join(row) for row in (heading, *rows)))
    done = sum(run.state == "done" for run in listed)
    print(f"{len(listed)} run{'s' * (len(listed) != 1)}, {done} done")
