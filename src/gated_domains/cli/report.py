"""``gated-domains report``: one page from run folders, with every figure and table beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.cli.options import DataDir, Margin
from gated_domains.data.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from gated_domains.runs.collection import RunCollection


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="Folders that runs were written to, or runs themselves.")
    ],
    out: Annotated[Path, typer.Option(help="The page; figures and tables go into a folder beside it.")] = Path(
        "report.html"
    ),
    baseline: Annotated[
        str | None, typer.Option(help="The method that others are compared with; erm where there is one.")
    ] = None,
    margin: Margin = None,
    title: Annotated[str | None, typer.Option(help="The title of the page.")] = None,
    figures: Annotated[
        str, typer.Option(help="How every figure is written beside the page: svg, png, pdf, some of them, or none.")
    ] = "svg,png,pdf",
    insight: Annotated[
        bool,
        typer.Option(
            "--insight/--no-insight",
            help="Compute basis cards and maps of gated runs that lack them: needs their data and weights.",
        ),
    ] = False,
    map_by: Annotated[
        str | None,
        typer.Option("--map", help="The map of samples and bases: tsne, or umap (extra viz); with --insight."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Make one page of the runs in some folders: the answer, the table, pictures, gates and bases.

    The page is complete in itself: it opens from disk, offline. Folders that are unfinished or damaged are listed.
    """
    kinds = chosen_kinds(figures)
    if map_by is not None and (map_by not in ("tsne", "umap") or not insight):
        raise DataError(f"--map {map_by}: there are tsne and umap, and both go with --insight")
    from gated_domains.evaluation.metrics import check_margin
    from gated_domains.reports.page import write_page
    from gated_domains.runs.collection import gather

    check_margin(margin)
    notes: list[str] = []
    with progress() as say:
        say("reading run folders")
        if insight:
            from gated_domains.experiments.insights import missing_insights

            notes = missing_insights(runs, data_dir=data_dir, kind=map_by, say=say).notes  # type: ignore[arg-type]
        gathered = gather(runs)
        methods = sorted({result.method for result in gathered.results})
        if baseline is not None and methods and baseline not in methods:
            raise DataError(f"--baseline: there is no run of {baseline!r}{did_you_mean(baseline, methods)}")
        written = write_page(
            gathered, out, baseline=baseline or "erm", title=title, margin=margin, kinds=kinds, say=say
        )
    tell(written, gathered, Console(), notes=notes)


def tell(written: Sequence[Path], gathered: RunCollection, console: Console, *, notes: Sequence[str] = ()) -> None:
    """Where the page is, what is beside it, and what is not on it."""
    for note in notes:
        console.print(Text(note), soft_wrap=True)
    path, rest = written[0], written[1:]
    beside = f"; {len(rest)} figures and tables in {path.with_name(f'{path.stem}_files')}" if rest else ""
    console.print(Text(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB){beside}"), soft_wrap=True)
    if gathered.broken:
        count = len(gathered.broken)
        console.print(
            Text(f"{count} folder{'s' * (count != 1)} or file{'s' * (count != 1)} took no part; the page says why"),
            soft_wrap=True,
        )


def chosen_kinds(written: str) -> tuple[str, ...]:
    """How figures are written, as a command line says it."""
    known = ("svg", "png", "pdf")
    names = [name.strip().lower() for name in written.split(",") if name.strip()]
    if names == ["none"]:
        return ()
    for name in names:
        if name not in known:
            raise DataError(f"--figures: {name!r} is none of {', '.join(known)}, none")
    return tuple(name for name in known if name in names)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """What is being done, on one line of a terminal; nothing where nobody looks."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield lambda line: None
        return
    with console.status("") as status:
        yield lambda line: status.update(Text(line))
