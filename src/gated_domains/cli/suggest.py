"""``gated-domains suggest``: num_bases, sigma and kappa for data, with the curve to judge them by."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gated_domains.cli.options import DataDir, Seed, takes_reading
from gated_domains.cli.printing import print_hanging
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.data.inputs import Rows
from gated_domains.data.labels import Reading

if TYPE_CHECKING:
    from gated_domains.experiments.suggestion import Suggestion

_WIDEST = 80


@takes_reading
def suggest(
    reading: Reading,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A name (see `data list`), a file, a folder, a .yaml card; with --from-run its training rows, unless "
            "others are named.",
        ),
    ] = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Look at the features of a trained network, as the paper does: the folder of a run, or its first "
            "letters.",
        ),
    ] = None,
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

    from gated_domains.data.progress import progress
    from gated_domains.experiments.suggestion import SHARE_A_RUN, suggest_settings

    # Rows enough for runs to differ, and never more: a large data set is not read whole for a sample of it.
    enough = math.ceil(runs * max_rows / SHARE_A_RUN)
    if from_run is not None:
        _refuse_with_run(reading, gating, hold_out)
        seen = _of_run(from_run, what, data_dir=data_dir, max_rows=enough, seed=seed)
    elif what is None:
        raise DataError("no data are named; give a file or a name (see `gated-domains data list`), or --from-run RUN")
    else:
        seen = _of_data(
            what, reading, gating=gating, hold_out=hold_out, data_dir=data_dir, max_rows=enough, seed=seed
        )  # fmt: skip
    with progress("clustering", runs * (most - 1)) as advance:
        found = suggest_settings(
            seen.values, most=most, score=score, on=on, runs=runs, max_rows=max_rows, seed=seed,
            progress=lambda done, total: advance(1),
        )  # fmt: skip

    notes = [*seen.notes, *found.notes()]
    use = seen.use(found.num_bases)
    if as_json:
        _write_picture(found, f"{seen.data}: {seen.of}", out)
        said = {**seen.facts, **found.as_json(), "seed": seed}
        print(json.dumps({**said, "notes": notes, "use": use, "picture": str(out)}, indent=2))
        return
    console = Console()
    console.print(Text(f"{seen.title}\n{seen.of}\n"))
    _print(console, found)
    for note in notes:
        print_hanging(console, Text("note: "), note)
    console.print(Text(f"\nuse it: {use}"), soft_wrap=True)
    _write_picture(found, f"{seen.data}: {seen.of}", out)
    console.print(Text(f"wrote {out}"), soft_wrap=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Seen:
    """The rows that a suggestion is made from, what they are in words, and how to use what comes of them."""

    values: NDArray[np.float32]
    data: str
    title: str
    of: str
    notes: tuple[str, ...]
    facts: dict[str, object]
    use: Callable[[int], str]
    """The command that compares with this M."""


def _of_data(
    what: str,
    reading: Reading,
    *,
    gating: str | None,
    hold_out: str | None,
    data_dir: Path | None,
    max_rows: int,
    seed: int,
) -> _Seen:
    """Rows as gates see them before anything is trained."""
    from gated_domains.backbones.backbone import default_gating
    from gated_domains.backbones.untrained import gating_rows_of
    from gated_domains.data.loading import load_data
    from gated_domains.data.named import DATASETS

    dataset = load_data(what, reading, data_dir=data_dir, seed=seed)
    rows = None if hold_out is None else _training_rows(dataset, hold_out, seed)
    gating = gating or default_gating(dataset.inputs.kind)
    values = gating_rows_of(dataset, rows, gating=gating, max_rows=max_rows, seed=seed)
    kind = "rows" if hold_out is None else f"training rows ({hold_out} held out)"
    notes = dataset.notes
    if hold_out is None and len(dataset.domain_names) > 1:
        notes = (*notes, "rows of every domain were looked at; --hold-out NAME leaves out the one you will test on")
    more: dict[str, object] = {"data_dir": data_dir, "hold_out": hold_out}
    if seed and what in DATASETS and DATASETS[what].embedded:
        more["data_seed"] = seed
    return _Seen(
        values=values,
        data=dataset.name,
        title=f"{dataset.name}: {len(dataset):,} rows, {dataset.inputs.describe()}",
        of=f"{len(values):,} {kind} as gates see them: {gating}, {values.shape[1]:,} numbers each, standardised",
        notes=tuple(notes),
        facts={"data": dataset.name, "hold_out": hold_out, "gating": gating},
        use=lambda num_bases: _use(what, reading, f"gdu[num_bases={num_bases}]", more),
    )


def _of_run(run: Path, what: str | None, *, data_dir: Path | None, max_rows: int, seed: int) -> _Seen:
    """Rows as features of a trained network."""
    from gated_domains.experiments.run_features import features_of_run
    from gated_domains.training.engine import Hardware

    device = Hardware(device="auto").accelerator
    found = features_of_run(run, data=what, data_dir=data_dir, max_rows=max_rows, seed=seed, device=device)
    recipe = found.recipe
    more: dict[str, object] = {"data_dir": data_dir, "hold_out": recipe.hold_out, "body": recipe.body}
    if recipe.pretrained != "auto":
        more["pretrained"] = recipe.pretrained
    if recipe.data.seed:
        more["data_seed"] = recipe.data.seed
    return _Seen(
        values=found.values,
        data=found.data,
        title=found.data,
        of=found.of,
        notes=(),
        facts={"data": found.data, "run": str(run), "hold_out": recipe.hold_out, "gating": "features"},
        use=lambda num_bases: _use(
            os.path.normpath(recipe.data.what), recipe.data.reading, f"gdu[num_bases={num_bases},gating=features]", more
        ),
    )


def _refuse_with_run(reading: Reading, gating: str | None, hold_out: str | None) -> None:
    """Refuse options that a run has decided."""
    given = [("--from", gating), ("--hold-out", hold_out)]
    for option, value in given:
        if value is not None:
            raise DataError(f"{option} {value}: the rows and what is seen of them are those of the run; leave it out")
    if reading != Reading():
        raise DataError("--from-run: the run's recipe says how its data are read; leave options of reading out")


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
    from gated_domains.data.errors import expanded
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


def _use(what: str, reading: Reading, method: str, more: Mapping[str, object]) -> str:
    """The command that compares with this method, on the data read in the same way, to be copied."""
    given: dict[str, object] = {entry.name: getattr(reading, entry.name) for entry in fields(reading)}
    words = ["gated-domains", "compare", what]
    for name, value in {**given, **more}.items():
        if value not in (None, (), False):
            words.append("--as" if name == "form" else f"--{name.replace('_', '-')}")
            words += [] if value is True else [",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join([*words, "--methods", f"{method},erm,linear"])
