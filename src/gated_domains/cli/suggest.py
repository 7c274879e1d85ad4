"""``gated-domains suggest``: num_bases, sigma and kappa for data, with the curve to judge them by."""

from __future__ import annotations

import json
import math
import os
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gated_domains.cli.options import DataDir, Seed, What, takes_reading
from gated_domains.cli.printing import print_hanging
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.data.inputs import Rows
from gated_domains.data.readers.reading import Reading

if TYPE_CHECKING:
    from gated_domains.experiments.suggestion import Suggestion

_WIDEST = 80


@takes_reading
def suggest(
    what: What,
    reading: Reading,
    gating: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="VIEW",
            help="What gates see: filters (images), input (tables), projection, tokens, graphs.",
        ),
    ] = None,
    score: Annotated[str, typer.Option(help="davies_bouldin, calinski_harabasz or silhouette.")] = "davies_bouldin",
    on: Annotated[str, typer.Option(help="Cluster what gates see (features), or its 2-D t-SNE (tsne).")] = "features",
    most: Annotated[int, typer.Option(help="The largest number of bases tried.")] = 12,
    runs: Annotated[int, typer.Option(help="How often; each run has rows of its own.")] = 5,
    max_rows: Annotated[int, typer.Option(help="The most rows that a run looks at.")] = 5_000,
    hold_out: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look only at the rows that train when NAME is held out.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The picture to write (.png, .svg, .pdf).")] = Path("suggest.png"),
    data_dir: DataDir = None,
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Suggest num_bases, sigma and kappa for data, and show the curve they come from. Nothing is trained."""
    _check_options(score=score, on=on, most=most, runs=runs, max_rows=max_rows)
    out = _writable(out)

    from gated_domains.backbones.gating import default_gating
    from gated_domains.backbones.untrained import gating_rows_of
    from gated_domains.data.loading import load_data
    from gated_domains.data.progress import progress
    from gated_domains.experiments.suggestion import SHARE_A_RUN, suggest_settings

    dataset = load_data(what, reading, data_dir=data_dir, seed=seed)
    rows = None if hold_out is None else _training_rows(dataset, hold_out, seed)
    gating = gating or default_gating(dataset.inputs.kind)
    # Rows enough for runs to differ, and never more: a large data set is not read whole for a sample of it.
    seen = gating_rows_of(dataset, rows, gating=gating, max_rows=math.ceil(runs * max_rows / SHARE_A_RUN), seed=seed)
    with progress("clustering", runs * (most - 1)) as advance:
        found = suggest_settings(
            seen, most=most, score=score, on=on, runs=runs, max_rows=max_rows, seed=seed,
            progress=lambda done, total: advance(1),
        )  # fmt: skip

    notes = [*dataset.notes, *found.notes()]
    if hold_out is None and len(dataset.domain_names) > 1:
        notes.append("rows of every domain were looked at; --hold-out NAME leaves out the one you will test on")
    use = _use(what, reading, data_dir=data_dir, hold_out=hold_out, seed=seed, num_bases=found.num_bases)
    seen_as = _looked_at(found, gating, hold_out)
    if as_json:
        _write_picture(found, f"{dataset.name}: {seen_as}", out)
        said = {"data": dataset.name, "hold_out": hold_out, "gating": gating, **found.as_json(), "seed": seed}
        print(json.dumps({**said, "notes": notes, "use": use, "picture": str(out)}, indent=2))
        return
    console = Console()
    console.print(Text(f"{dataset.name}: {len(dataset):,} rows, {dataset.inputs.describe()}\n{seen_as}\n"))
    _print(console, found)
    for note in notes:
        print_hanging(console, Text("note: "), note)
    console.print(Text(f"\nuse it: {use}"), soft_wrap=True)
    _write_picture(found, f"{dataset.name}: {seen_as}", out)
    console.print(Text(f"wrote {out}"), soft_wrap=True)


def _check_options(*, score: str, on: str, most: int, runs: int, max_rows: int) -> None:
    from gated_domains.choose.num_bases import SCORES, VIEWS

    for option, name, known in (("--score", score, list(SCORES)), ("--on", on, list(VIEWS))):
        if name not in known:
            raise DataError(f"there is no {option} {name!r}{did_you_mean(name, known)}")
    if most < 3:
        raise DataError(f"--most must be at least 3, got {most}: M = 1 has no score, and one M alone nothing beside it")
    for option, value, least in (("--runs", runs, 1), ("--max-rows", max_rows, 4)):
        if value < least:
            raise DataError(f"{option} must be at least {least}, got {value}")


def _writable(path: Path) -> Path:
    """A place that a picture can be written to; asked before the work, not after it."""
    from gated_domains.data.files import expanded
    from gated_domains.data.pictures import picture_path

    path = expanded(picture_path(path))
    if path.is_dir():
        raise DataError(f"--out {path} is a folder; name a picture in it: {path / 'suggest.png'}")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise DataError(f"--out {path}: {folder} is a file, not a folder; choose another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"--out {path}: nothing can be written in {folder}; choose another place")
    return path


def _training_rows(dataset: DomainDataset, name: str, seed: int) -> Rows:
    from gated_domains.data.splits import hold_outs

    found = hold_outs(dataset, name, seed=seed)
    if len(found) > 1:
        raise DataError(
            f"--hold-out {name} stands for {len(found)} hold-outs ({listing(one.name for one in found)}); "
            "name one of them, or join domains with + to hold them out together"
        )
    return found[0].train


def _looked_at(found: Suggestion, gating: str, hold_out: str | None) -> str:
    rows = "rows" if hold_out is None else f"training rows ({hold_out} held out)"
    return f"{found.rows:,} {rows} as gates see them: {gating}, {found.width:,} numbers each, standardised"


def _print(console: Console, found: Suggestion) -> None:
    """The table, the curve, and the numbers suggested."""
    from gated_domains.choose.terminal import draw_num_bases, glyphs_for

    glyphs = glyphs_for(console.encoding)
    table = Text(found.curve.table())
    table.highlight_regex(r"(?m)^.*<- best$", "bold")
    console.print(table, soft_wrap=True)
    chart = Text("\n" + draw_num_bases(found.curve, width=min(_WIDEST, console.width), glyphs=glyphs) + "\n")
    chart.highlight_regex(f"[{glyphs.best}]", "bold red")
    console.print(chart, soft_wrap=True)
    console.print(Text(f"num_bases {found.num_bases}", style="bold"))
    numbers = Table("for the cosine gate with it", box=None, header_style="bold", pad_edge=False)
    numbers.add_column("sigma", justify="right")
    numbers.add_column("kappa", justify="right")
    sigma, spread = found.sigma.sigma, found.sigma.spread
    moves = f" {glyphs.plus_minus} {spread:.2g}" if spread > 0 else ""
    numbers.add_row("the median distance, as in fit_bases", f"{sigma:.4g}{moves}", f"{found.kappa:.4g}")
    share = f"{found.gdu_sigma / sigma:.3g} of it, as in the method gdu"
    numbers.add_row(share, f"{found.gdu_sigma:.4g}", f"{found.gdu_kappa:.4g}")
    console.print(numbers)
    console.print()


def _write_picture(found: Suggestion, title: str, path: Path) -> None:
    from gated_domains.choose.plots import plot_choices
    from gated_domains.data.pictures import write_figure

    write_figure(plot_choices(found.curve, found.sigma, title=title), path)


def _use(what: str, reading: Reading, *, data_dir: Path | None, hold_out: str | None, seed: int, num_bases: int) -> str:
    """The command that compares with this M, on the data read in the same way, to be copied."""
    from gated_domains.data.loading import DATASETS

    given: dict[str, object] = {entry.name: getattr(reading, entry.name) for entry in fields(reading)}
    given |= {"data_dir": data_dir, "hold_out": hold_out}
    if seed and what in DATASETS and DATASETS[what].embedded:
        given["data_seed"] = seed
    words = ["gated-domains", "compare", what]
    for name, value in given.items():
        if value not in (None, (), False):
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join([*words, "--methods", f"gdu[num_bases={num_bases}],erm,linear"])
