"""``gated-domains doctor``: whether the gates of a trained model do anything, and what helps where they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli.options import DataDir, takes_reading
from gated_domains.cli.printing import print_hanging
from gated_domains.data.labels import Reading

if TYPE_CHECKING:
    from gated_domains.insight.doctor import Diagnosis

BROKEN = 3
"""The exit code where something is broken, so that a pipeline stops; 0, 1 and 2 mean what they mean everywhere."""
_STYLES = {"ok": "green", "look": "yellow", "broken": "bold red"}
_WIDTH = max(map(len, _STYLES))


@takes_reading
def doctor(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="The folder of a run, or its first letters, or that of estimator.save."),
    ],
    reading: Reading,
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="The data of training: of a run where they have moved, of an estimator."),
    ] = None,
    data_dir: DataDir = None,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Retrain a linear head on the same features beside it.")
    ] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 where something is worth a look, too.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Look at the gates of a trained model: what works, what is worth a look, what is broken, and the cure.

    Exits with 0 where nothing is broken, with 3 where something is.
    """
    from gated_domains.applying.examining import examine_model
    from gated_domains.applying.inside import open_gated
    from gated_domains.training.engine import Hardware

    opened = open_gated(model, device=Hardware(device=device).accelerator)
    found = examine_model(opened, data=data, reading=reading, data_dir=data_dir, control=control)
    if as_json:
        said = {"model": opened.name, "label": opened.label, **found.as_json()}
        print(json.dumps(said, indent=1, allow_nan=False))
    else:
        _print(Console(), f"{opened.label}, {opened.name}", found)
    if found.level == "broken" or (strict and found.level != "ok"):
        raise typer.Exit(BROKEN)


def _print(console: Console, title: str, found: Diagnosis) -> None:
    console.print(Text(title, style="bold"), soft_wrap=True)
    for finding in found.findings:
        lead = Text(f"{finding.level:<{_WIDTH}}", style=_STYLES[finding.level]) + Text("  ", style="default")
        print_hanging(console, lead, f"{finding.name}: {finding.says}")
        if finding.cure is not None:
            print_hanging(console, Text(f"{'':<{_WIDTH}}  -> "), finding.cure)
    for note in found.notes:
        print_hanging(console, Text("note: "), note)
    level, _, why = found.verdict.partition(":")
    mark = Text(level, style=_STYLES[found.level])
    console.print(mark + Text(f":{why}" if why else "", style="default"), soft_wrap=True)
