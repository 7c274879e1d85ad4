"""Targets, domains and groups: what a person says of them, their indices and names, and which are held out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, RowError, did_you_mean, listing
from gated_domains.data.inputs import Rows

if TYPE_CHECKING:
    from gated_domains.data.dataset import DomainDataset

TASKS = ("classification", "regression")
# Whole numbers with more different values than this are taken for a quantity, not for classes.
MOST_CLASSES_BY_GUESS = 100
DOMAIN, CLASS = "domain", "class"
_MOST_GROUPS = 0.5  # as a share of the rows
MOST_ONE_BY_ONE = 32
"""Above this many domains, ``default`` holds them out in folds."""
DEFAULT_FOLDS = "folds:5"
_FOLDS = "folds:"
_FOLD = re.compile(r"fold (\d+) of (\d+)")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a file or folder is to be read. What is left at its default is found out from the data.

    ``positive`` names the target values that become the one class of two. ``categorical`` columns are names even where
    they are written as numbers; ``drop`` columns are not read; ``metadata`` columns are kept beside the samples, for
    grouping, but are no inputs; ``keep_together`` is one of these (a patient), whose groups are never divided between
    training, validation and test. ``drop_missing_target`` leaves out rows of a table that have no target, which are
    refused otherwise. ``task`` is ``"classification"`` or ``"regression"``. ``image_size`` is the side of
    the square that images are fitted to. ``text`` and ``smiles`` name the column with texts or molecules; ``form`` is
    what is made of them: ``words``, ``tokens`` or ``embeddings`` of texts, ``fingerprints`` or ``graphs`` of molecules.
    ``tokens`` is the most that are read of a text, ``tokenizer`` a folder with one. ``fraction`` of the rows are drawn
    at random, for a first try.
    """

    target: str | None = None
    domain: str | None = None
    positive: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    keep_together: str | None = None
    drop_missing_target: bool = False
    task: str | None = None
    image_size: int | None = None
    text: str | None = None
    smiles: str | None = None
    form: str | None = None
    tokens: int | None = None
    tokenizer: str | None = None
    fraction: float | None = None

    def refuse_all_but(self, *allowed: str, what: str) -> None:
        """Refuse settings that mean nothing for this kind of data, rather than pass over them in silence."""
        for entry in fields(self):
            if entry.name not in allowed and getattr(self, entry.name) != entry.default:
                raise DataError(f"{option(entry.name)} means nothing for {what}; leave it out")


def option(name: str) -> str:
    """What a field of a reading is called on the command line."""
    return "--as" if name == "form" else f"--{name.replace('_', '-')}"


def as_targets(
    values: NDArray[Any],
    *,
    class_names: Sequence[str] | None = None,
    positive: Sequence[str] | None = None,
    task: str | None = None,
    what: str = "target",
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Targets as a model takes them: indices and class names, or float32 and None for a number to be predicted.

    With ``positive``, the classes named there become one, and all others the other.
    """
    values = one_axis(values, what)
    if task is not None and task not in TASKS:
        raise DataError(f"there is no task {task!r}{did_you_mean(task, TASKS)}")
    if task == "regression" and (positive or class_names):
        raise DataError("positive classes and class names belong to classification, but the task is regression")
    _refuse_missing(values, what)
    if positive is not None:
        return _binary(values, positive, what)
    if class_names is not None:
        return _indices(values, what), tuple(str(name) for name in class_names)
    if (task or guess_task(values)) == "regression":
        try:
            numbers = values.astype(np.float64)
        except ValueError as error:
            raise DataError(f"the {what} cannot be read as numbers ({error}); choose --task classification") from error
        fits = np.abs(numbers) <= np.finfo(np.float32).max
        if not fits.all():
            first = int(np.argmin(fits))
            found = f"is {numbers[first]}; drop the row, or scale the {what} down"
            raise RowError(
                lambda where, count, of: f"the {what} of {where} {found}",
                row=first,
                count=int((~fits).sum()),
                of=len(fits),
                column=what,
            )
        return numbers.astype(np.float32), None
    levels, index = np.unique(values, return_inverse=True)
    if len(levels) < 2:
        raise DataError(f"every row has the same {what}, {plain(levels[0])!r}; there is nothing to learn")
    return index.astype(np.int64), tuple(plain(level) for level in levels)


def guess_task(values: NDArray[Any]) -> str:
    """Text, truth values and few different whole numbers are classes; other numbers are quantities."""
    if values.dtype.kind not in "fiu":
        return "classification"
    if values.dtype.kind == "f" and not (values == np.round(values)).all():
        return "regression"
    return "classification" if len(np.unique(values)) <= MOST_CLASSES_BY_GUESS else "regression"


def as_domains(
    values: NDArray[Any], *, names: Sequence[str] | None = None, what: str = "domain"
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Domains as indices and names."""
    values = known_values(values, what)
    if names is not None:
        return _indices(values, what), tuple(str(name) for name in names)
    levels, index = np.unique(values, return_inverse=True)
    return index.astype(np.int64), tuple(plain(level) for level in levels)


def plain(value: object) -> str:
    """A level as a person would write it: ``1`` for 1.0."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _binary(values: NDArray[Any], positive: Sequence[str], what: str) -> tuple[NDArray[np.int64], tuple[str, str]]:
    levels, index = np.unique(values, return_inverse=True)
    written = [plain(level) for level in levels]
    if not positive:
        raise DataError(f"no {what} is named as positive; there are {listing(written)}")
    if values.dtype.kind in "fiu":
        positive = [_plain_number(name) for name in positive]
    for name in positive:
        if name not in written:
            raise DataError(f"no row has the {what} {name!r}, named as positive{did_you_mean(name, written)}")
    rest = [name for name in written if name not in positive]
    if not rest:
        raise DataError(f"every row's {what} is among the positive ones ({listing(positive)}); leave at least one out")
    yes = np.isin(written, list(positive))
    return yes[index].astype(np.int64), (" or ".join(rest), " or ".join(name for name in written if name in positive))


def _plain_number(name: str) -> str:
    """``1`` for ``1.0``, as the levels are written."""
    try:
        return plain(float(name))
    except ValueError:
        return name


def _indices(values: NDArray[Any], what: str) -> NDArray[np.int64]:
    if values.dtype.kind == "f" and (values == np.round(values)).all() and (np.abs(values) < 2**53).all():
        values = values.astype(np.int64)
    if values.dtype.kind not in "iu":
        raise DataError(f"the {what}s are {values.dtype}; where names are given they must be whole numbers, from 0 on")
    return values.astype(np.int64)


def one_axis(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Numbers or text, one value a row; refused where they are anything else."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(f"the {what} must be one value a row, got shape {values.shape}")
    if values.dtype == object and all(isinstance(value, str) for value in values):
        values = values.astype(str)  # text as pandas holds it
    if values.dtype.kind not in "biufUS":
        raise DataError(f"the {what} must be numbers or text, got {values.dtype}; convert it first")
    if len(values) == 0:
        raise DataError(f"there are no samples: the {what} has no rows")
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    return values


def known_values(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Numbers or text, one value a row and none of them missing; refused where they are anything else."""
    values = one_axis(values, what)
    _refuse_missing(values, what)
    return values


def _refuse_missing(values: NDArray[Any], what: str) -> None:
    missing = ~np.isfinite(values) if values.dtype.kind == "f" else values == "" if values.dtype.kind == "U" else None
    if missing is not None and missing.any():
        first = int(np.argmax(missing))
        found = "empty, or marked as missing" if values.dtype.kind == "U" else str(values[first])

        def say(where: str, count: int, of: int) -> str:
            return f"the {what} of {where} is {found} (such rows: {count:,} of {of:,}); drop those rows or fill them in"

        raise RowError(say, row=first, count=int(missing.sum()), of=len(values), column=what)


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups that some rows fall into. ``index`` is that of every row of the data set, -1 for one of no group."""

    names: tuple[str, ...]
    index: Rows
    sizes: tuple[int, ...]
    """How many of the chosen rows each has, always one at least."""

    def __len__(self) -> int:
        return len(self.names)


def groups_among(dataset: DomainDataset, rows: Rows, by: Sequence[str] = ()) -> Groups | None:
    """The groups of these rows by their domains, or by columns: of the metadata, ``domain``, ``class``; None without.

    Numbers count up from 0 over the groups that these rows have: a domain held out has none.
    """
    if not by and dataset.domains is None:
        return None
    coded = [_coded(dataset, name) for name in (by or (DOMAIN,))]
    values, sizes = [known for known, _ in coded], [len(known) for known, _ in coded]
    joint = np.asarray(np.ravel_multi_index([codes for _, codes in coded], sizes))
    present, counts = np.unique(joint[rows], return_counts=True)
    if by and len(present) > max(2, _MOST_GROUPS * len(rows)):
        raise DataError(
            f"{listing(by)} make {len(present):,} groups of {len(rows):,} rows: almost every row is one of its own; "
            "name columns of fewer values (--group-by)"
        )
    place = np.searchsorted(present, joint).clip(max=len(present) - 1)
    index = np.where(present[place] == joint, place, -1).astype(np.int64)
    parts = np.unravel_index(present, sizes)
    texts = [[str(known[code]) for code in part] for known, part in zip(values, parts, strict=True)]
    return Groups(tuple(", ".join(words) for words in zip(*texts, strict=True)), index, tuple(counts.tolist()))


def _coded(dataset: DomainDataset, name: str) -> tuple[Sequence[Any] | NDArray[Any], Rows]:
    """The values of a column, and which of them each row has."""
    if name == DOMAIN:
        if dataset.domains is None:
            raise DataError(f"{dataset.name} has no domains to group by; name the column that holds them (--domain)")
        return dataset.domain_names, dataset.domains
    if name == CLASS:
        if dataset.class_names is None:
            here = "labels are" if dataset.task == "labels" else "a number is"
            raise DataError(f"{dataset.name} has no classes to group by: {here} predicted")
        return dataset.class_names, dataset.targets
    if name not in dataset.metadata:
        known = [DOMAIN, CLASS, *dataset.metadata]
        raise DataError(
            f"{dataset.name} has no column {name!r} to group by{did_you_mean(name, known)}; "
            "a column of a table is kept with --metadata"
        )
    values, codes = np.unique(np.asarray(dataset.metadata[name]).astype(str), return_inverse=True)
    return values, codes.reshape(-1)


def held_out_domains(
    which: str | Sequence[str], names: Sequence[str], *, rows: NDArray[np.int64], seed: int
) -> dict[str, tuple[str, ...]]:
    """Name of each hold-out -> its domains. ``rows`` counts those of each domain; ``hold_outs`` says what ``which`` is.

    A keyword wins over a domain of that name, which a sequence reaches; a domain's name wins over cutting it up.
    """
    if which == "default":
        which = "each" if len(names) <= MOST_ONE_BY_ONE else DEFAULT_FOLDS
    if which == "each":
        return {name: (name,) for name in names}
    if isinstance(which, str) and which.startswith(_FOLDS):
        folds = _folds(which, names, rows, seed)
        return {f"fold {place}": fold for place, fold in enumerate(folds, start=1)}
    if isinstance(which, str):
        which = (
            [which]
            if which in names or is_fold(which, names)
            else _parts(which, ",", names, lambda part: _all_known(part, names))
        )
    if len(which) == 1 and is_fold(which[0], names):
        return _one_fold(which[0], names, rows, seed)
    chosen: dict[frozenset[str], tuple[str, ...]] = {}
    for item in which:
        together = [item] if item in names else _parts(item, "+", names, names.__contains__)
        for name in together:
            if name not in names:
                known = [*names, "each", f"{_FOLDS}{min(5, len(names))}"]
                raise DataError(f"there is no domain {name!r} to hold out{did_you_mean(name, known)}")
        chosen.setdefault(frozenset(together), tuple(dict.fromkeys(together)))
    if not chosen:
        raise DataError(f"no domain is named to hold out; there are {listing(names)}")
    return {"+".join(held_out): held_out for held_out in chosen.values()}


def is_fold(item: str, names: Sequence[str]) -> bool:
    """Whether this names one of several folds: ``fold 1 of 5``."""
    return _FOLD.fullmatch(item) is not None and item not in names


def _parts(text: str, separator: str, names: Sequence[str], known: Callable[[str], bool]) -> list[str]:
    """The text cut at separators, but never inside a name: from the left, the longest part that is known."""
    pieces = text.split(separator)
    if not any(separator in name for name in names):
        return [piece.strip() for piece in pieces]
    parts = []
    while pieces:
        joined = [separator.join(pieces[:length]).strip() for length in range(1, len(pieces) + 1)]
        length = max((length for length, part in enumerate(joined, start=1) if known(part)), default=1)
        parts.append(joined[length - 1])
        pieces = pieces[length:]
    return parts


def _all_known(text: str, names: Sequence[str]) -> bool:
    return all(part in names for part in _parts(text, "+", names, names.__contains__))


def _one_fold(item: str, names: Sequence[str], rows: NDArray[np.int64], seed: int) -> dict[str, tuple[str, ...]]:
    found = _FOLD.fullmatch(item)
    assert found is not None
    place, count = int(found[1]), int(found[2])
    folds = _folds(f"{_FOLDS}{count}", names, rows, seed)
    if not 1 <= place <= count:
        raise DataError(f"there is no {item}; folds are counted from 1 to {count}")
    return {f"fold {place}": folds[place - 1]}


def _folds(which: str, names: Sequence[str], rows: NDArray[np.int64], seed: int) -> list[tuple[str, ...]]:
    """Domains dealt into folds: roughly the largest first, each to the fold with the fewest rows so far."""
    try:
        count = int(which.removeprefix(_FOLDS))
    except ValueError:
        count = 0
    if not 2 <= count <= len(names):
        raise DataError(
            f"{which!r} cannot be: the number of folds must be a whole number from 2 to {len(names)}, the domains"
        )
    # Exactly the largest first would leave nothing for the seed to decide.
    order = np.argsort(-rows * np.random.default_rng(seed).uniform(0.5, 1.0, len(names)), kind="stable")
    folds: list[list[int]] = [[] for _ in range(count)]
    load = np.zeros(count, np.int64)
    for domain in order.tolist():
        emptiest = min(range(count), key=lambda fold: (load[fold], len(folds[fold])))
        folds[emptiest].append(domain)
        load[emptiest] += rows[domain]
    return [tuple(names[domain] for domain in sorted(fold)) for fold in folds]
