"""What data hold, what is wrong with them, and what a run on them would do: told before anything is trained."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import TableEncoding, fit_encoding
from gated_domains.data.errors import DataError, expanded, first_line, listing, row_name
from gated_domains.data.inputs import Categories, Column, Features, Numbers, Table
from gated_domains.data.labels import Reading
from gated_domains.data.loading import follow_card, is_card, load_data, reader_of
from gated_domains.data.named import DATASETS
from gated_domains.data.readers import folders
from gated_domains.data.sizes import sizes_of
from gated_domains.data.splits import HoldOut, are_copies, hold_outs
from gated_domains.data.wilds.sets import is_wilds

FEW_ROWS = 20
MANY_LEVELS = 50
MOST_OF_A_KIND = 8


@dataclass(frozen=True)
class Finding:
    """One thing found. ``broken``: a run would refuse the data; ``look``: somebody should know; ``note``: as it is."""

    level: str
    text: str


@dataclass(frozen=True)
class DataReport:
    """All that was found in data, and what a run would do with them."""

    dataset: DomainDataset
    findings: tuple[Finding, ...]
    plan: tuple[str, ...]

    @property
    def broken(self) -> bool:
        """Whether a run would refuse these data."""
        return any(finding.level == "broken" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        data = self.dataset
        return {
            "name": data.name,
            "rows": len(data),
            "inputs": data.inputs.describe(),
            "domains": list(data.domain_names),
            "classes": None if data.class_names is None else list(data.class_names),
            "counts": data.counts().tolist(),
            "findings": [{"level": finding.level, "text": finding.text} for finding in self.findings],
            "plan": list(self.plan),
            "broken": self.broken,
        }


def check_data(
    what: str | os.PathLike[str],
    reading: Reading | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> DataReport:
    """Read everything and look at it. Raises DataError only where nothing can be read at all."""
    reading = reading or Reading()
    if is_wilds(what):
        from gated_domains.data.wilds.checking import check_wilds

        return check_wilds(str(what), reading, data_dir=data_dir)
    findings: list[Finding] = []
    named = isinstance(what, str) and what in DATASETS
    if not named and is_card(expanded(what)):
        what, reading, notes = follow_card(expanded(what), reading)
        findings += [Finding("note", note) for note in notes]
    if not named and _is_image_folder(expanded(what)):
        dataset = _readable_images(expanded(what), reading, findings)
    else:
        dataset = load_data(what, reading, data_dir=data_dir, seed=seed)
    findings += [Finding("note", note) for note in dataset.notes]
    for look in (_domains, _classes, _repeats, _columns, _sizes_found):
        findings += look(dataset)
    plan = tuple(_plan(dataset, findings, seed))  # adds to the findings what would stop it
    return DataReport(dataset, tuple(findings), plan)


def _is_image_folder(path: Path) -> bool:
    return path.is_dir() and reader_of(path) is folders.read_folder


def _readable_images(path: Path, reading: Reading, findings: list[Finding]) -> DomainDataset:
    """The folder less its unreadable images, each of which is found broken."""
    reading.refuse_all_but("image_size", "positive", what="an image folder")
    folder = folders.scan(path)
    errors: dict[int, str] = {}

    def attempt(row: int) -> None:
        try:
            folders.read_image(folder.files[row], height=8, width=8)
        except (DataError, OSError) as error:
            errors[row] = first_line(error)

    folders.in_threads(attempt, range(len(folder.files)), "opening every image")
    for row in sorted(errors)[:20]:
        findings.append(Finding("broken", f"cannot be read: {errors[row]}"))
    if len(errors) > 20:
        findings.append(Finding("broken", f"further images that cannot be read: {len(errors) - 20:,}"))
    if len(errors) == len(folder.files):
        raise DataError(f"{path}: none of {len(errors):,} images can be read; the first: {errors[0]}")
    folder = folder.without(list(errors))
    return folders.as_dataset(folder, folders.image_files(folder, image_size=reading.image_size), reading)


def _domains(dataset: DomainDataset) -> Iterator[Finding]:
    if not dataset.domain_names:
        cure = "name their column with --domain" if dataset.inputs.kind == "table" else "add an array called domain"
        yield Finding("look", f"no domains are known: a model can be trained, but none held out; {cure}")
        return
    rows = dataset.counts().sum(axis=1)
    empty = [name for name, count in zip(dataset.domain_names, rows, strict=True) if count == 0]
    if empty:
        yield Finding("broken", f"domains without any row: {listing(empty)}")
    few = [f"{name} ({count})" for name, count in zip(dataset.domain_names, rows, strict=True) if 0 < count < FEW_ROWS]
    if few:
        yield Finding("look", f"domains with fewer than {FEW_ROWS} rows, whose scores will be coarse: {listing(few)}")


def _first(texts: Sequence[str], rest: str) -> Iterator[Finding]:
    """The first of many findings of a kind, and how many more there are."""
    yield from (Finding("look", text) for text in texts[:MOST_OF_A_KIND])
    if len(texts) > MOST_OF_A_KIND:
        yield Finding("look", f"{len(texts) - MOST_OF_A_KIND:,} more {rest}")


def _classes(dataset: DomainDataset) -> Iterator[Finding]:
    if dataset.class_names is None or not dataset.domain_names:
        return
    counts = dataset.counts()
    one_class, without, at_home = [], [], []
    for domain, row in zip(dataset.domain_names, counts, strict=True):
        absent = [name for name, count in zip(dataset.class_names, row, strict=True) if count == 0]
        if (row > 0).sum() == 1:
            only = dataset.class_names[int(row.argmax())]
            one_class.append(f"domain {domain!r} has one class only, {only!r}: a score there says little")
        elif absent and row.any():
            without.append(f"domain {domain!r} has no row of {listing(absent)}")
    for name, column in zip(dataset.class_names, counts.T, strict=True):
        if (column > 0).sum() == 1 < len(dataset.domain_names):
            domain = dataset.domain_names[int(column.argmax())]
            at_home.append(f"class {name!r} is in domain {domain!r} only: nothing can be learned of it elsewhere")
    yield from _first(one_class, "domains have one class only")
    yield from _first(without, "domains go without some of the classes")
    yield from _first(at_home, "classes are in one domain only")
    unused = [name for name, count in zip(dataset.class_names, counts.sum(axis=0), strict=True) if count == 0]
    if unused:
        yield Finding("look", f"classes without any row: {listing(unused)}")


def _repeats(dataset: DomainDataset) -> Iterator[Finding]:
    digests = dataset.inputs.digests()
    _, group, sizes = np.unique(digests, return_inverse=True, return_counts=True)
    rows = np.flatnonzero(sizes[group] > 1)
    if len(rows) == 0:
        return
    rows = rows[np.argsort(group[rows], kind="stable")]
    across, clashing, example = _groups(dataset, rows, group[rows])
    copies = are_copies(dataset, digests)
    if across:
        word = "a leak: the sources' copies are left out of training" if copies else "by chance, or copied?"
        yield Finding("look", f"samples that are the same in two or more domains: {across:,} ({example}); {word}")
    if clashing:
        yield Finding("look", f"samples that occur more than once with different targets: {clashing:,}")
    repeated = len(rows) - len(np.unique(group[rows]))
    if repeated:
        yield Finding("look", f"rows with the same inputs as an earlier one: {repeated:,}")


def _groups(dataset: DomainDataset, rows: NDArray[np.int64], group: NDArray[np.int64]) -> tuple[int, int, str]:
    """Of groups of equal samples (``rows`` sorted by ``group``): how many span domains, how many clash; an example."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    across, clashing, example = 0, 0, ""
    for members in np.split(rows, starts[1:]):
        targets = dataset.targets[members]
        clashing += bool((targets != targets[0]).any())
        if dataset.domains is None:
            continue
        domains = dataset.domains[members]
        if (domains != domains[0]).any():
            across += 1
            other = int(np.argmax(domains != domains[0]))
            example = example or " and ".join(_place(dataset, int(members[place])) for place in (0, other))
    return across, clashing, example


def _place(dataset: DomainDataset, row: int) -> str:
    if "file" in dataset.metadata:
        return str(dataset.metadata["file"][row])
    domain = "" if dataset.domains is None else f" of {dataset.domain_names[dataset.domains[row]]}"
    return f"{row_name(row)}{domain}"


def _columns(dataset: DomainDataset) -> Iterator[Finding]:
    if isinstance(dataset.inputs, Features):
        values = dataset.inputs.values
        constant = np.flatnonzero((values == values[0]).all(axis=0))
        if len(constant):
            yield Finding(
                "look",
                f"constant features, of no use: {len(constant):,} of {values.shape[1]:,}, at {listing(constant)}",
            )
    if not isinstance(dataset.inputs, Table):
        return
    constant_names = [column.name for column in dataset.inputs.columns if _is_constant(column.values)]
    if constant_names:
        yield Finding("look", f"constant columns, of no use: {listing(constant_names)}")
    yield from _missing(dataset.inputs, dataset)
    varying = [column for column in dataset.inputs.columns if column.name not in constant_names]
    somewhere = [text for column in varying for text in _constant_somewhere(column, dataset)]
    yield from _first(somewhere, "columns are constant in one domain")
    for column in varying:
        if _gives_target_away(column, dataset):
            yield Finding(
                "look", f"column {column.name!r} alone tells the target in every row: is it known beforehand?"
            )
        if isinstance(column, Numbers) and len(dataset) >= FEW_ROWS and (np.diff(column.values) == 1).all():
            yield Finding("look", f"column {column.name!r} counts the rows: if it is no more, leave it out (--drop)")
        if isinstance(column, Categories) and len(column.levels) > MANY_LEVELS:
            yield Finding(
                "look", f"column {column.name!r} has {len(column.levels):,} different names: are they categories?"
            )
        if _tells_domain(column, dataset):
            yield Finding("look", f"column {column.name!r} tells the domain: what it says of a new one was never seen")


def _sizes_found(dataset: DomainDataset) -> Iterator[Finding]:
    found = sizes_of(dataset.inputs)
    if found is None:
        return
    what, sizes = found
    low, middle, high = (int(size) for size in np.quantile(sizes, [0, 0.5, 1]))
    longest = _place(dataset, int(sizes.argmax()))
    yield Finding("note", f"{what} a sample: {low:,} to {high:,} ({longest}), half of them below {middle:,}")


def _is_constant(values: NDArray[Any]) -> bool:
    return bool((values == values[0]).all()) or bool(np.isnan(values.astype(np.float64)).all())


def _missing(table: Table, dataset: DomainDataset) -> Iterator[Finding]:
    """Missing values over all, and the columns that whole domains go without."""
    missing = {column.name: column.missing for column in table.columns if column.missing.any()}
    if not missing:
        return
    shares = sorted(((float(where.mean()), name) for name, where in missing.items()), reverse=True)
    yield Finding("look", f"missing values: {listing(f'{name} {_percent(share)}' for share, name in shares)}")
    texts = []
    for number, domain in enumerate(dataset.domain_names):
        here = dataset.domains == number
        mostly = [(float(where[here].mean()), name) for name, where in missing.items() if where[here].mean() >= 0.5]
        if mostly:
            names = listing(f"{name} {_percent(share)}" for share, name in sorted(mostly, reverse=True))
            texts.append(f"mostly missing in {domain!r}: {names}")
    yield from _first(texts, "domains mostly go without some of the columns")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "under 1%"


def _constant_somewhere(column: Column, dataset: DomainDataset) -> Iterator[str]:
    """A column that varies, but not in every domain: often a value that one site did not take down."""
    if dataset.domains is None or not isinstance(column, Numbers):
        return
    for number, name in enumerate(dataset.domain_names):
        known = column.values[(dataset.domains == number) & ~column.missing]
        if len(known) >= FEW_ROWS and known.min() == known.max():
            yield f"column {column.name!r} is {known[0]:g} in every row of {name!r} that has it"


def _gives_target_away(column: Column, dataset: DomainDataset) -> bool:
    if dataset.class_names is None or column.missing.any():
        return False
    levels, index = np.unique(column.values, return_inverse=True)
    pairs = np.unique(index * len(dataset.class_names) + dataset.targets)
    if len(pairs) > len(levels):  # one value, two classes
        return False
    if isinstance(column, Numbers):  # every class has a stretch of its own
        stretches = 1 + int((np.diff(dataset.targets[np.argsort(column.values, kind="stable")]) != 0).sum())
        return len(dataset) >= FEW_ROWS and stretches == len(np.unique(dataset.targets)) > 1
    # With a level of its own for every few rows, any column would.
    return 1 < len(levels) <= max(2 * len(dataset.class_names), 20)


def _tells_domain(column: Column, dataset: DomainDataset) -> bool:
    """Whether every domain has one name of its own in this column."""
    if dataset.domains is None or not isinstance(column, Categories) or column.missing.any():
        return False
    pairs = np.unique(column.values.astype(np.int64) * len(dataset.domain_names) + dataset.domains)
    return len(pairs) == len(np.unique(column.values)) == len(np.unique(dataset.domains)) > 1


def _plan(dataset: DomainDataset, findings: list[Finding], seed: int) -> Iterator[str]:
    """What a run would do, in sentences; what would stop it is added to the findings."""
    if dataset.class_names is None:
        whole = (dataset.targets == np.round(dataset.targets)).all()
        hint = "; --task classification, if these are classes" if whole else ""
        yield f"predict a number, from {dataset.targets.min():g} to {dataset.targets.max():g}{hint}"
    else:
        counts = dataset.counts().sum(axis=0)
        usual, share = dataset.class_names[counts.argmax()], counts.max() / counts.sum()
        yield f"predict one of {len(counts)} classes; always saying {usual!r} would be right in {share:.0%} of all rows"
        if len(counts) > 10 and all(name.lstrip("-").isdigit() for name in dataset.class_names):
            yield "  (--task regression, if the target is a quantity)"
    try:
        splits = hold_outs(dataset, seed=seed) if dataset.domain_names else []
        # A vocabulary of tokens takes long to learn, and that of one hold-out tells as much as all of them.
        fitted = splits[:1] if dataset.inputs.kind == "tokens" else splits
        encodings = [fit_encoding(dataset.decided_on(split.seen), split.train) for split in fitted]
        encoding = encodings[0] if encodings else fit_encoding(dataset, np.arange(len(dataset)))
    except DataError as error:
        findings.append(Finding("broken", f"a run would stop: {error}"))
        return
    if splits:
        each = "each" if len(splits) == len(dataset.domain_names) else f"{len(splits)} folds"
        yield f"hold out {each} of {len(dataset.domain_names)} domains in turn"
    yield from (_sizes(split) for split in splits[:MOST_OF_A_KIND])
    if len(splits) > MOST_OF_A_KIND:
        yield f"  and {len(splits) - MOST_OF_A_KIND} more"
    if not isinstance(encoding, TableEncoding):
        yield f"see {dataset.inputs.describe()}, as arrays of shape {encoding.shape}"
        return
    widths = sorted({len(own.names) for own in encodings or [encoding] if isinstance(own, TableEncoding)})
    spread = f"{widths[0]} to {widths[-1]} (by hold-out)" if len(widths) > 1 else str(widths[0])
    yield f"see numbers a row, from columns, categories and flags for missing values: {spread}"
    for split, own in list(zip(splits, encodings, strict=False))[:MOST_OF_A_KIND]:
        if isinstance(own, TableEncoding) and own.left_out:
            yield f"leave out, when {split.name} is held out: {listing(own.left_out)}, constant in the sources"


def _sizes(split: HoldOut) -> str:
    left_out = f", left out as copies of these: {split.left_out:,}" if split.left_out else ""
    unseen = f", classes never seen in training: {listing(split.unseen_classes)}" if split.unseen_classes else ""
    parts = f"{len(split.train):,} rows to train, {len(split.validation):,} to validate, {len(split.test):,} to score"
    return f"  {split.name}: {parts}{left_out}{unseen}"
