"""The shell face: ``gated-domains``. Exit codes: 0 all is well, 2 bad input, 1 a fault of ours; 3 is ``doctor``'s."""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli import apply, compare, data, doctor, export, report, reproduce, runs, shift, suggest, train
from gated_domains.data.errors import DataError, explain

app = typer.Typer(
    name="gated-domains",
    help="Train a model on several sources so that it holds up on one it has never seen.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("compare")(compare.compare)
app.command("train")(train.train)
app.command("evaluate")(apply.evaluate)
app.command("predict")(apply.predict)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)
app.command("report")(report.report)
app.command("shift")(shift.shift)
app.command("suggest")(suggest.suggest)
app.add_typer(data.app, name="data")
app.add_typer(runs.app, name="runs")
app.add_typer(reproduce.app, name="reproduce")


def _version(asked: bool) -> bool:
    if asked:
        from gated_domains import __version__

        print(__version__)
        raise typer.Exit
    return asked


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; what goes wrong is said in a sentence, with an exit code that means something."""
    # Before torch is imported: threads that wait busily halt each other where cores are shared, tenfold at worst.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name on disk, or a mark of ours, may be no letter here
    try:
        app()
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        # The reader of our output went away (`| head`): nothing is wrong, and there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except DataError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(explain(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        traceback.print_exc()
        print(
            "\nThis is a fault of gated-domains, not of your input. Please report it with the lines above.",
            file=sys.stderr,
        )
        sys.exit(1)


def _refuse(message: str) -> None:
    # Text, not markup: a file may be called [red].
    Console(file=sys.stderr, soft_wrap=True).print(Text("error: ", style="bold red") + Text(message, style="default"))
    sys.exit(2)
