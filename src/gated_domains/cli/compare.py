"""``gated-domains compare``: hold each domain out in turn, train every method on the others, print one table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli.one_voice import one_voice
from gated_domains.cli.options import (
    DataDir,
    Margin,
    Report,
    Track,
    takes_executor,
    takes_hardware,
    takes_protocol,
    takes_reading,
    takes_training,
)
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.runs.provenance import first_process

if TYPE_CHECKING:  # torch is imported when a command begins to work, not when the shell asks for help
    from gated_domains.reports import Comparison


@takes_executor
@takes_hardware
@takes_protocol
@takes_training
@takes_reading
@one_voice()
def compare(
    what: Annotated[
        list[str],
        typer.Argument(metavar="DATA...", help="Names (see `data list`), files, folders, .yaml cards: a table each."),
    ],
    reading: Reading,
    training: dict[str, Any],
    protocol: dict[str, Any],
    hardware: dict[str, Any],
    executing: dict[str, Any],
    hold_out: Annotated[
        str,
        typer.Option(
            help="each, NAME, A,B (in turn), A+B (together), folds:K, official (the publisher's division); default: "
            "official where there is one, else each, many in folds."
        ),
    ] = "default",
    methods: Annotated[
        str | None,
        typer.Option(
            help="all, or names separated by commas; settings in brackets: gdu\\[num_bases=8,mixstyle=0.5]. By default "
            "gdu,erm,linear; on images also recommended and erm with Fourier mixing."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Trainings of each method on each hold-out; 5 on small tables, else 2.", min=1),
    ] = None,
    tune: Annotated[
        int | None, typer.Option(help="Settings to try for each method and hold-out, chosen on the sources alone.")
    ] = None,
    tuner: Annotated[str, typer.Option(help="What proposes them: random, or optuna.")] = "random",
    body: Annotated[
        str,
        typer.Option(
            help="small, digits, resnet18, resnet50, densenet121, efficientnet-lite0 (images), mlp, identity "
            "(vectors), distilbert, distilbert-classifier (texts), gin (molecules); by the data."
        ),
    ] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder of the runs and the table; runs/DATA by default.")] = None,
    data_dir: DataDir = None,
    data_seed: Annotated[int, typer.Option(help="For data made in code.", min=0)] = 0,
    margin: Margin = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the whole caption: protocol, tests, and notes on data and runs.")
    ] = False,
    track: Track = None,
    report: Report = True,
) -> None:
    """Hold each domain out in turn, train every method on the others, and print the answer and one table.

    Runs are kept: the same command again skips finished runs and resumes interrupted ones. Three data sets or more are
    also analysed together.
    """
    from gated_domains.experiments.compare import compare as run_comparison
    from gated_domains.training.engine import Hardware

    roots = [Path(name).stem for name in what]
    for index, (name, stem) in enumerate(zip(what, roots, strict=True)):
        if stem in roots[:index]:
            raise DataError(f"two of these data would go to a folder {stem}; compare {name} by itself, with --out")
    console, finished = Console(), []
    for name, stem in zip(what, roots, strict=True):
        try:
            comparison = run_comparison(
                name,
                reading=reading,
                methods=methods,
                hold_out=hold_out,
                seeds=seeds,
                body=body,
                training=training,
                config=protocol,
                tune_trials=tune,
                tuner=tuner,
                out=out if out is None or len(what) == 1 else out / stem,  # each in a folder of its own
                data_dir=data_dir,
                data_seed=data_seed,
                hardware=Hardware(**hardware),
                executor=executing,
                margin=margin,
                track=track,
                announce=lambda text: console.print(Text(text), soft_wrap=True),
                allow_partial=True,
            )
        except KeyboardInterrupt:
            console.print("interrupted before a run of the table was finished; the same command resumes it")
            sys.exit(130)
        if first_process():
            _show(comparison, console, tuned=tune is not None, explain=explain, report=report)
            if len(what) == 1:
                _suggest_next(comparison, data_dir, console)
        finished.append(comparison)
    if len(finished) > 1 and first_process():
        _show_together(finished, out or Path("runs"), console, margin=margin, report=report)


def _show(comparison: Comparison, console: Console, *, tuned: bool, explain: bool, report: bool) -> None:
    """Print and write the table and the page; if trainings failed or were interrupted, end with the reason."""
    from gated_domains.cli.report import progress, tell
    from gated_domains.runs.folder import TUNING

    assert comparison.folder is not None
    assert comparison.runs is not None
    console.print()
    console.print(comparison.rich(explain=explain))
    written = [*comparison.write(comparison.folder), *([comparison.folder / TUNING] if tuned else [])]
    console.print(Text("wrote " + ", ".join(str(path) for path in written)), soft_wrap=True)
    if report:
        with progress() as say:
            page = comparison.save_report(comparison.folder / "report.html", say=say)
        tell(page, comparison.runs, console, notes=comparison.insight_notes)
    for command in comparison.tracked:
        console.print(Text(f"tracked; look at it with: {command}"), soft_wrap=True)
    if isinstance(comparison.failure, KeyboardInterrupt):
        console.print("interrupted; finished runs are kept, and the same command resumes the others")
        sys.exit(130)
    if comparison.failure is not None:
        raise comparison.failure


def _show_together(
    comparisons: Sequence[Comparison], root: Path, console: Console, *, margin: float | None, report: bool
) -> None:
    """Print the analysis over all data sets, where there are enough of them, and write one page of everything."""
    from gated_domains.cli.report import progress, tell
    from gated_domains.experiments.grid import BASELINE
    from gated_domains.reports import RunCollection, write_page
    from gated_domains.reports.across import across_datasets

    across = across_datasets([comparison.numbers for comparison in comparisons])
    if across is not None:
        console.print()
        console.print(across)
    if report:
        runs = [comparison.runs for comparison in comparisons if comparison.runs is not None]
        gathered = RunCollection([(of.folder(result), result) for of in runs for result in of.results])
        with progress() as say:
            page = write_page(gathered, root / "report.html", baseline=BASELINE, margin=margin, say=say)
        tell(page, gathered, console)


def _suggest_next(comparison: Comparison, data_dir: Path | None, console: Console) -> None:
    """The next command: a model of the method that the comparison speaks for, trained on all domains."""
    from gated_domains.data.splits import OFFICIAL
    from gated_domains.runs.folder import RECIPE

    assert comparison.runs is not None
    run = comparison.choice.runs[0]
    words = ["gated-domains", "train", str(comparison.runs.folder(run) / RECIPE), "--hold-out", "none"]
    # How an epoch was selected may need what was held out.
    words += ["--selection", "source_validation"] if run.hold_out == OFFICIAL or run.oracle else []
    words += ["--data-dir", str(data_dir)] if data_dir is not None else []
    console.print(Text(f"next: {shlex.join(words)}"), soft_wrap=True)
