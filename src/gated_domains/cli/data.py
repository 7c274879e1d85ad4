"""``gated-domains data``: what there is, what it looks like, whether it can be used, and how to get it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gated_domains.cli.options import DataDir, Seed, What, takes_reading
from gated_domains.cli.printing import print_hanging
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.data.labels import Reading

app = typer.Typer(help="Look at data, check them, and get them.", no_args_is_help=True)

_MOST_CLASSES, _MOST_DOMAINS = 12, 40
_MARKS = {"broken": ("✗", "bold red"), "look": ("!", "yellow"), "note": ("·", "default")}


@app.command("list")
def list_(data_dir: DataDir = None) -> None:
    """The data sets that go by a name, and where they are."""
    from gated_domains.data.digits5 import DOMAINS
    from gated_domains.data.errors import data_folder as find
    from gated_domains.data.named import DATASETS
    from gated_domains.data.wilds import is_wilds

    place = find(data_dir)
    table = Table("name", "what it is", box=None, header_style="bold", pad_edge=False)
    table.add_column("where", overflow="fold")  # a path that is cut short helps nobody
    for name, known in DATASETS.items():
        if is_wilds(name):
            if ":" not in name:
                table.add_row(name, known.what, _where_wilds(name, data_dir))
            continue
        there = [domain for domain in DOMAINS if (place / name / f"{domain}.npz").is_file()]
        where, style = f"not in {place}", "yellow"
        if known.embedded:
            where, style = "here, always", "green"
        elif len(there) == len(DOMAINS):
            where, style = str(place / name), "green"
        elif there:
            where = f"{place / name}, but only {listing(there)}"
        table.add_row(name, known.what, Text(where, style=style))
    console = Console()
    console.print(table)
    console.print(
        "\nBring digits5 with `gated-domains data fetch digits5`, or make it from files you have with "
        "`gated-domains data prepare digits5 --from DIR`.\nBring one of WILDS with `gated-domains data fetch "
        "wilds/NAME`, or write small stand-ins for all with `gated-domains data miniature wilds/all DIR`.\n"
        "Your own: a folder domain/class/*.png, a .csv or .parquet (numbers, texts, molecules), files *.task.train and "
        "*.task.test, an .npz, or a .yaml card that says how to read it.",
        highlight=False,
    )


@app.command()
@takes_reading
def show(
    what: What,
    reading: Reading,
    out: Annotated[
        Path | None, typer.Option(help="The picture to write (.png, .svg, .pdf); DATA.png by default.")
    ] = None,
    data_dir: DataDir = None,
    seed: Seed = 0,
) -> None:
    """Draw the data: a contact sheet of every domain, or how its rows lie."""
    from gated_domains.data.loading import load_data
    from gated_domains.data.pictures import picture_path
    from gated_domains.data.show import show_data

    if out is not None:
        picture_path(out)  # before anything is read
    dataset = load_data(what, reading, data_dir=data_dir, seed=seed)
    _print_counts(dataset)
    for note in dataset.notes:
        Console().print(Text(f"note: {note}"))
    path = show_data(dataset, out or Path(f"{Path(dataset.name).stem}.png"), seed=seed)
    Console().print(Text(f"wrote {path}"))


@app.command()
@takes_reading
def check(
    what: What,
    reading: Reading,
    data_dir: DataDir = None,
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Read everything, say what is wrong with it and what a run would do. Exit code 2 when a run would refuse it."""
    from gated_domains.data.check import check_data

    report = check_data(what, reading, data_dir=data_dir, seed=seed)
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        console = Console()
        console.print(Text(f"{report.dataset.name}: {len(report.dataset):,} rows, {report.dataset.inputs.describe()}"))
        _print_counts(report.dataset)
        console.print(Text("\nfindings" if report.findings else "\nnothing to complain about", style="bold"))
        for finding in report.findings:
            print_hanging(console, Text("  ") + Text(*_MARKS[finding.level]) + Text(" "), finding.text)
        console.print(Text("\na run would", style="bold"))
        for line in report.plan:
            text = line.lstrip()
            print_hanging(console, Text("  " + " " * (len(line) - len(text))), text)
    if report.broken:
        raise typer.Exit(2)


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="digits5")],
    source: Annotated[Path, typer.Option("--from", help="Folder (or archive) with the public originals.")],
    data_dir: DataDir = None,
    seed: Seed = 0,
    small: Annotated[bool, typer.Option("--small", help="1,500 + 500 images a domain, as digits5-small.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Make anew what is already there.")] = False,
) -> None:
    """Make a data set from its public originals: MNIST IDX, USPS, SVHN .mat, MNIST-M, Digit-Five."""
    from gated_domains.data.originals.prepare import prepare_digits5

    if name != "digits5":
        raise DataError(f"{name!r} cannot be prepared{did_you_mean(name, ['digits5'])}")
    done = prepare_digits5(source, data_dir=data_dir, seed=seed, small=small, force=force)
    Console().print(Text(str(done)))
    if done.missing:
        raise DataError(
            f"digits5 is not complete: {listing(done.missing)} missing; the lines above say what each is made of"
        )


@app.command()
def fetch(
    name: Annotated[
        str, typer.Argument(help="wilds/NAME; or digits5, or a part of it: mnist, mnistm, svhn, usps, syn")
    ],
    data_dir: DataDir = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use only what was fetched before.")] = False,
) -> None:
    """Fetch a data set from its public homes, checked and resumed after a cut."""
    from gated_domains.data.fetch import fetch as bring

    Console().print(Text(str(bring(name, data_dir=data_dir, offline=offline))))


@app.command()
def miniature(
    name: Annotated[str, typer.Argument(help="wilds/NAME, or wilds/all for all eight")],
    dest: Annotated[Path, typer.Argument(help="Folder to write it to; then the --data-dir of other commands.")],
    seed: Seed = 0,
) -> None:
    """Write a small made-up stand-in for a data set of WILDS, in exactly its layout, to try everything on."""
    from gated_domains.data.miniatures import write_miniature
    from gated_domains.data.wilds import WILDS

    for one in (f"wilds/{known}" for known in WILDS) if name == "wilds/all" else (name,):
        Console().print(Text(f"wrote {write_miniature(one, dest, seed=seed)}"))


def _where_wilds(name: str, data_dir: Path | None) -> Text:
    from gated_domains.data.wilds import places, wilds_set

    chosen, _ = wilds_set(name)
    folder = places.find(chosen, data_dir)
    if folder is None:
        return Text(f"not in {places.roots(data_dir)[0]}", style="yellow")
    missing = places.missing_files(folder, places.required(chosen))
    if missing:
        return Text(f"{folder}, without {listing(missing, 3)}", style="yellow")
    return Text(f"{folder}{', a miniature' if places.is_miniature(folder) else ''}", style="green")


def _print_counts(dataset: DomainDataset) -> None:
    """Rows by domain and class."""
    counts = dataset.counts()
    classes = dataset.class_names or ()
    spelled_out = 0 < len(classes) <= _MOST_CLASSES
    table = Table("domain", box=None, header_style="bold", pad_edge=False)
    table.add_column("rows", justify="right")
    if dataset.official_test is not None:
        table.add_column("set aside for tests", justify="right")
    for name in classes if spelled_out else ():
        table.add_column(Text(name), justify="right")
    if classes and not spelled_out:
        table.add_column("classes", justify="right")
    for number, name in enumerate((dataset.domain_names or ("all",))[:_MOST_DOMAINS]):
        row = counts[number]
        cells = [f"{row.sum():,}"]
        if dataset.official_test is not None and dataset.domains is not None:
            cells.append(f"{int(dataset.official_test[dataset.domains == number].sum()):,}")
        if classes:
            cells += [f"{count:,}" for count in row] if spelled_out else [str(int((row > 0).sum()))]
        table.add_row(Text(name), *cells)
    Console().print(table)
    if len(dataset.domain_names) > _MOST_DOMAINS:
        Console().print(Text(f"and {listing(dataset.domain_names[_MOST_DOMAINS:])}"))
