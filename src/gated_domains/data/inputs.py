"""What a model is given before it is encoded: images, vectors, columns of a table; the fingerprint of a data set."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, RowError, listing

if TYPE_CHECKING:
    from gated_domains.data.dataset import DomainDataset

Rows = NDArray[np.int64]
_CHUNK = 1 << 24  # bytes looked at together where a check would otherwise double the memory


class Inputs(ABC):
    """Samples in order, read a few rows at a time."""

    kind: str
    # Whether reading costs so little that no processes are needed for it.
    in_memory: ClassVar[bool] = False
    # Whether samples differ in length, so that batches do: they are padded when they are read.
    ragged: ClassVar[bool] = False
    # Two samples with the same numbers: copies of one thing, or two people of the same age, sex and blood pressure?
    repeats_are_copies: ClassVar[bool] = True

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all samples once they are in memory."""

    @abstractmethod
    def read(self, rows: Rows) -> NDArray[Any]:
        """These samples as one array, in the order asked for."""

    @abstractmethod
    def digests(self) -> NDArray[np.uint64]:
        """A number a sample, equal for equal samples (and, but for a chance of one in 2^64, only for those)."""

    @abstractmethod
    def take(self, rows: Rows) -> Inputs:
        """Some of the samples, in the order asked for."""

    def decided_on(self, rows: Rows) -> Inputs:
        """The same samples, with all that was found out about them from data found out from these rows alone."""
        return self

    def form(self) -> list[Any]:
        """What the digests of samples leave out, for a fingerprint: here the shape and type of a sample."""
        if self.ragged:
            return [self.kind]
        first = self.read(np.arange(1))  # files are digested as they are, whatever size they are fitted to
        return [self.kind, first.shape[1:], first.dtype.name]

    def describe(self) -> str:
        """A few words for people: ``images, 32 x 32, RGB``."""
        return self.kind


class _Array(Inputs):
    in_memory = True

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def read(self, rows: Rows) -> NDArray[Any]:
        return self.values[rows]

    def digests(self) -> NDArray[np.uint64]:
        return np.fromiter((digest(row) for row in self.values), np.uint64, len(self.values))


class Images(_Array):
    """Images in memory: bytes of shape (rows, height, width, channels). ``digests``: of their files, if any."""

    kind = "images"

    def __init__(self, values: NDArray[Any], *, digests: NDArray[np.uint64] | None = None) -> None:
        self._digests = digests
        if values.ndim == 3:
            values = values[..., None]
        if values.ndim != 4 or 0 in values.shape[1:]:
            raise DataError(
                f"images must have shape (rows, height, width) or (rows, height, width, channels), got {values.shape}"
            )
        if values.shape[1] in (1, 3, 4) and values.shape[3] not in (1, 3, 4):
            raise DataError(
                f"images of shape {values.shape} have their channels first; turn them: X.transpose(0, 2, 3, 1)"
            )
        if values.dtype != np.uint8:
            raise DataError(f"images must be bytes (uint8, 0 to 255), got {values.dtype}; scale and convert them first")
        super().__init__(values)

    def digests(self) -> NDArray[np.uint64]:
        return super().digests() if self._digests is None else self._digests

    def take(self, rows: Rows) -> Images:
        return Images(self.values[rows], digests=None if self._digests is None else self._digests[rows])

    def describe(self) -> str:
        return describe_images(*self.values.shape[1:])


class Features(_Array):
    """Vectors of finite numbers: embeddings of a model, measurements. Floats keep their width; a model gets float32."""

    kind = "features"

    def __init__(self, values: NDArray[Any]) -> None:
        if values.ndim != 2 or values.shape[1] == 0:
            raise DataError(f"features must have shape (rows, features), got {values.shape}; reshape them")
        if values.dtype.kind not in "fiub":
            raise DataError(f"features must be numbers, got {values.dtype}; convert them first")
        values = values if values.dtype in (np.float16, np.float32, np.float64) else values.astype(np.float32)
        refuse_non_finite(values)
        super().__init__(values)

    def take(self, rows: Rows) -> Features:
        return type(self)(self.values[rows])

    def describe(self) -> str:
        return f"features, {self.values.shape[1]:,} numbers each"


class Measurements(_Array):
    """Vectors of numbers, of which some may be missing: NaN stands for those. For models that say what comes of it."""

    kind = "columns"
    repeats_are_copies = False

    def __init__(self, values: NDArray[np.float64]) -> None:
        if values.ndim != 2 or values.shape[1] == 0:
            raise DataError(f"measurements must have shape (rows, columns), got {values.shape}; reshape them")
        super().__init__(values)

    def take(self, rows: Rows) -> Measurements:
        return Measurements(self.values[rows])

    def describe(self) -> str:
        return f"{self.values.shape[1]:,} columns of numbers"


def describe_images(height: int, width: int, channels: int) -> str:
    """``images, 32 x 32, RGB``."""
    colours = {1: "grey", 3: "RGB", 4: "RGBA"}.get(channels, f"{channels} channels")
    return f"images, {width} x {height}, {colours}"


def digest(row: NDArray[Any]) -> int:
    """Sixty-four bits of a hash of the bytes of one sample."""
    return digest_of_bytes(np.ascontiguousarray(row).tobytes())


def digest_of_bytes(content: bytes) -> int:
    """Sixty-four bits of a hash."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def refuse_non_finite(values: NDArray[Any], names: list[str] | None = None) -> None:
    """Refuse NaN, infinity, and numbers that float32 cannot hold, naming the first one's row and column."""
    if values.dtype.kind != "f":
        return
    first: tuple[int, int] | None = None
    count = 0
    for start, broken in _broken(values):
        if first is None and broken.any():
            row, column = (int(place) for place in np.argwhere(broken)[0])
            first = start + row, column
        count += int(broken.sum())
    if first is None:
        return
    found = float(values[first])
    what = "a number that float32 cannot hold" if np.isfinite(found) else "not a finite number"
    where = repr(names[first[1]]) if names else first[1]

    def say(row: str, count: int, of: int) -> str:
        return f"{row}, column {where} holds {found}: {what}; clean it or drop the row (such values: {count:,})"

    raise RowError(say, row=first[0], count=count, of=len(values))


def _broken(values: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Where no finite number stands that float32 can hold, a few rows at a time."""
    largest = np.finfo(np.float32).max
    step = max(1, _CHUNK // max(1, values[:1].nbytes))
    for start in range(0, len(values), step):
        yield start, ~(np.abs(values[start : start + step]) <= largest)  # not <=: true for NaN too


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers; NaN where one is missing.

    ``dates``: they stand for days, counted since 1970. ``words`` stood in cells of the column, and count as missing.
    """

    name: str
    values: NDArray[np.float64]
    dates: bool = False
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        infinite = np.isinf(self.values)
        if infinite.any():
            first = int(np.argmax(infinite))
            found = self.values[first]

            def say(where: str, count: int, of: int) -> str:
                return (
                    f"column {self.name!r}, {where}, is {found} (such rows: {count:,}); mend or "
                    f"empty the cell, or leave the column out with --drop {self.name}"
                )

            count = int(infinite.sum())
            raise RowError(say, row=first, count=count, of=len(self.values), column=self.name, stage=1)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where there is no value."""
        return np.isnan(self.values)


@dataclass(frozen=True, eq=False)
class Categories:
    """A column of names, as indices into ``levels``; -1 where one is missing."""

    name: str
    values: NDArray[np.int32]
    levels: tuple[str, ...]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where there is no value."""
        return self.values < 0


Column = Numbers | Categories


def _few(column: Column, rows: Rows) -> Column:
    if isinstance(column, Numbers):
        return replace(column, values=column.values[rows])
    return replace(column, values=column.values[rows])


_DOMAIN_WORDS = (
    "domain|site|hospital|clinic|centre|center|ward|institution|institute|cohort|study|source|dataset|batch|camera|"
    "scanner|device|machine|sensor|station|country|region|state|city|location|customer|client|store|shop|branch|plant|"
    "factory|lab|laboratory|subject|patient|user|environment|env"
)
_DOMAIN_NAME = re.compile(
    rf"(.*[\s_.-])?({_DOMAIN_WORDS})s?([\s_.-]?(id|name|code|no|nr|number|label))?", re.IGNORECASE
)
_ROWS_A_DOMAIN = 5  # on average, at least


def likely_domains(columns: Sequence[Column]) -> dict[str, int]:
    """Columns that may name the domains, and how many values each has.

    The name holds a word such as site, hospital or camera; the values are names or whole numbers, at least two of them
    and at least five rows for each on average.
    """
    found = {}
    for column in columns:
        if _DOMAIN_NAME.fullmatch(column.name) is None:
            continue
        known = column.values[~column.missing]
        if (known != np.round(known)).any():
            continue
        values = len(np.unique(known))
        if values >= 2 and len(known) >= _ROWS_A_DOMAIN * values:
            found[column.name] = values
    return found


class Table(Inputs):
    """Columns of equal length. Equal rows are not taken for copies: two people may well have the same age and sex."""

    kind = "table"
    repeats_are_copies = False

    def __init__(self, columns: Sequence[Column]) -> None:
        if not columns:
            raise DataError("no column is left to learn from, besides the target and the domain")
        self.columns = tuple(columns)
        lengths = {column.name: len(column.values) for column in columns}
        if len(set(lengths.values())) > 1:
            found = listing(f"{name} {length:,}" for name, length in lengths.items())
            raise DataError(f"columns have different lengths: {found}")

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def nbytes(self) -> int:
        return sum(column.values.nbytes for column in self.columns)

    def read(self, rows: Rows) -> NDArray[Any]:
        """Numbers, and categories by their index, side by side; missing ones are NaN and -1."""
        return np.stack([column.values[rows].astype(np.float64) for column in self.columns], axis=1)

    def digests(self) -> NDArray[np.uint64]:
        step = 1 << 14
        parts = (self.read(np.arange(start, min(start + step, len(self)))) for start in range(0, len(self), step))
        return np.fromiter((digest(row) for part in parts for row in part), np.uint64, len(self))

    def form(self) -> list[Any]:
        return [
            [column.name, type(column).__name__, column.levels if isinstance(column, Categories) else None]
            for column in self.columns
        ]

    def take(self, rows: Rows) -> Table:
        return Table([_few(column, rows) for column in self.columns])

    def describe(self) -> str:
        categories = sum(isinstance(column, Categories) for column in self.columns)
        numbers = len(self.columns) - categories
        parts = {"numbers": numbers, "categories": categories}
        return "a table of " + " and ".join(
            f"{count:,} column{'s' * (count > 1)} of {kind}" for kind, count in parts.items() if count
        )


def fingerprint(dataset: DomainDataset, digests: NDArray[np.uint64] | None = None) -> str:
    """Thirty-two hexadecimal digits, equal for equal data, in every process and wherever the data lie.

    They change with any input, target, class, domain, test row set aside, or group that is kept together; not with the
    data set's name, its notes, or metadata that nothing depends on. ``digests`` are those of its inputs, where they are
    known already.
    """
    hashed = hashlib.blake2b(digest_size=16)
    together = dataset.keep_together
    groups = None if together is None else dataset.metadata.get(together)
    words = {
        "inputs": dataset.inputs.form(),
        "class_names": dataset.class_names,
        "domain_names": dataset.domain_names,
        "scored_whole": sorted(dataset.scored_whole),
        "keep_together": together,
        "groups": None if groups is None else groups.tolist(),
    }
    if dataset.label_names is not None:
        words["label_names"] = dataset.label_names
    if dataset.published is not None:
        published = dataset.published
        words["published"] = [published.part_names, published.metric, published.statistic]
        words["published groups"] = [grouping.names for grouping in published.groupings]
    arrays: dict[str, NDArray[Any] | None] = {
        "samples": dataset.inputs.digests() if digests is None else digests,
        "targets": dataset.targets.astype(np.float64 if dataset.class_names is None else np.int64),
        "domains": None if dataset.domains is None else dataset.domains.astype(np.int64),
        "official_test": dataset.official_test,
    }
    if dataset.published is not None:
        arrays["parts"] = dataset.published.parts
        for number, grouping in enumerate(dataset.published.groupings):
            arrays[f"grouping {number}"] = grouping.index
    _feed(hashed, json.dumps(words, default=str).encode())
    for name, values in arrays.items():
        _feed(hashed, name.encode())
        _feed(hashed, b"none" if values is None else _bytes(values))
    return hashed.hexdigest()


def _bytes(values: NDArray[Any]) -> bytes:
    """The same on every machine, whichever end of a number it begins with."""
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()


def _feed(hashed: hashlib.blake2b, content: bytes) -> None:
    """The length first, so that no part can pass for the end of another."""
    hashed.update(len(content).to_bytes(8, "little"))
    hashed.update(content)
