"""What of a data set of WILDS is there, what is missing, and what a run would do: told before anything is trained."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from gated_domains.data.check import DataReport, Finding
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, first_line, listing
from gated_domains.data.inputs import Rows
from gated_domains.data.labels import Reading
from gated_domains.data.published import STATISTICS, TEST, TRAIN
from gated_domains.data.readers.folders import in_threads
from gated_domains.data.wilds import places
from gated_domains.data.wilds.loading import load_wilds
from gated_domains.data.wilds.sample_files import SampleFiles
from gated_domains.data.wilds.sets import WildsSet, wilds_set

MOST_OPENED = 2_000
"""Of more files than this only so many are opened, spread over all of them."""
_MOST_NAMED = 20


def check_wilds(
    name: str, reading: Reading | None = None, *, data_dir: str | os.PathLike[str] | None = None
) -> DataReport:
    """Look for every file that a row needs, open some, and compare the parts with the published ones.

    Raises DataError where the folder, the version file or the metadata are missing: then nothing can be read at all.
    """
    chosen, _ = wilds_set(name)
    folder = places.located(chosen, data_dir)
    whole = replace(reading or Reading(), fraction=None)
    dataset = load_wilds(name, data_dir=data_dir, reading=whole, at_once=False)
    findings = [Finding("note", note) for note in dataset.notes]
    findings.append(Finding("note", f"in {folder}: {listing(places.required(chosen))}"))
    findings += _sizes(chosen, dataset, is_miniature=places.is_miniature(folder))
    if isinstance(dataset.inputs, SampleFiles):
        findings += look_at_files(dataset.inputs)
    findings += _classes(dataset)
    return DataReport(dataset, tuple(findings), tuple(_plan(dataset)))


def look_at_files(files: SampleFiles) -> Iterator[Finding]:
    """Whether the file of every row is there, and whether some of them can be read."""
    absent = missing(files)
    if len(absent):
        first = files.path(int(absent[0]))
        have = f"{len(files) - len(absent):,} of {len(files):,} files are there"
        yield Finding("broken", f"{have}; {len(absent):,} are missing, the first of them {first}")
    else:
        yield Finding("note", f"all {len(files):,} files are there")
    there = np.setdiff1d(np.arange(len(files)), absent)
    some = there[:: max(1, -(-len(there) // MOST_OPENED))]
    damaged = unreadable(files, some)
    yield from (Finding("broken", f"cannot be read: {text}") for text in damaged[:_MOST_NAMED])
    if len(damaged) > _MOST_NAMED:
        yield Finding("broken", f"further files that cannot be read: {len(damaged) - _MOST_NAMED:,}")
    if len(some) < len(there):
        yield Finding("note", f"{len(some):,} of {len(there):,} files were opened, spread over all")


def missing(files: SampleFiles) -> Rows:
    """The rows whose file is not there, found by listing folders: asking for half a million files takes minutes."""
    paths = [os.path.split(os.fsdecode(path)) for path in files.paths.tolist()]
    there = {below: _names(files.root / below) for below in {below for below, _ in paths}}
    return np.flatnonzero([name not in there[below] for below, name in paths])


def unreadable(files: SampleFiles, rows: Rows) -> list[str]:
    """What is wrong with those of these files that cannot be read, in order."""
    errors: dict[int, str] = {}

    def attempt(place: int) -> None:
        try:
            files.read_one(int(rows[place]))
        except (DataError, OSError) as error:
            errors[place] = first_line(error)

    in_threads(attempt, range(len(rows)), "opening files")
    return [errors[place] for place in sorted(errors)]


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as found:
            return {entry.name for entry in found}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _sizes(chosen: WildsSet, dataset: DomainDataset, *, is_miniature: bool) -> Iterator[Finding]:
    """The parts beside their published sizes; those of other folds than the first differ, and nobody publishes them."""
    published = dataset.published
    assert published is not None
    counts = {part: len(published.rows(part)) for part in published.part_names}
    other = {part: rows for part, rows in chosen.rows.items() if counts.get(part) != rows}
    if not other or is_miniature or (chosen.name == "poverty" and not published.name.endswith(":A")):
        yield Finding("note", "rows: " + listing(f"{part} {rows:,}" for part, rows in counts.items()))
        return
    told = listing(f"{part} {counts.get(part, 0):,} (published: {rows:,})" for part, rows in other.items())
    yield Finding("look", f"the parts are not as large as the published ones: {told}; scores cannot be compared")


def _classes(dataset: DomainDataset) -> Iterator[Finding]:
    if dataset.class_names is None or dataset.published is None:
        return
    seen = np.unique(dataset.targets[dataset.published.rows(TRAIN)])
    asked = np.unique(dataset.targets[dataset.published.rows(TEST)])
    never = [dataset.class_names[number] for number in np.setdiff1d(asked, seen)]
    if never:
        yield Finding("look", f"classes of the test rows that no training row has: {listing(never)}")


def _plan(dataset: DomainDataset) -> Iterator[str]:
    published = dataset.published
    assert published is not None
    what = {"classes": f"one of {dataset.outputs} classes", "labels": f"{dataset.outputs} answers, yes or no"}
    yield f"predict {what.get(dataset.task, 'a number')}, and see {dataset.inputs.describe()}"
    yield "use the published division (--hold-out official):"
    for part in published.part_names:
        rows = published.rows(part)
        does = {"train": "trains", "val": "selects", "test": "is scored"}.get(part, "is scored too, in distribution")
        of = "" if dataset.domains is None else f" of {len(np.unique(dataset.domains[rows])):,} domains"
        yield f"  {part}: {len(rows):,} rows{of}, {does}"
    groups = sum(len(grouping.names) for grouping in published.groupings)
    over = f" over {groups:,} groups" if published.statistic != "overall" else ""
    score = STATISTICS[published.statistic] + published.metric.replace("_", " ")
    yield f"score {score}{over}; WILDS asks for {_runs(dataset)}"


def _runs(dataset: DomainDataset) -> str:
    assert dataset.published is not None
    runs = dataset.published.runs
    return f"{runs} runs" if runs > 1 else "one run of each of five folds, A to E"
