"""Encodings: inputs -> numbers for a model. What must be learned from data is learned from the training rows alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean, first_line, listing
from gated_domains.data.inputs import Categories, Column, Features, Inputs, Numbers, Rows, Table
from gated_domains.data.text.inputs import Text

if TYPE_CHECKING:
    from torch import Tensor

    from gated_domains.data.dataset import DomainDataset

MOST_LEVELS = 200  # the most frequent ones; of the others nothing much could be learned
FURTHEST = 20.0  # standard deviations; a value out of all proportion at a new site must not drown the others
FAR = 3.0  # standard deviations of training, beyond which the median of a column is a matter of units
_ROWS_AT_ONCE = 1 << 16


class Encoding(ABC):
    """How samples become tensors, in two steps: ``prepare`` once for all, ``tensor`` on each batch, on its device.

    ``describe`` gives plain JSON, from which ``encoding_from`` makes the same encoding again, to ship with a model.
    """

    kind: ClassVar[str]
    notes: tuple[str, ...] = ()
    """What a person should know of how it was made; said of every run."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample as a model sees it."""

    @property
    def about(self) -> dict[str, Any]:
        """What a body must know besides the shape, as plain JSON: of tokens, how many different ones there are."""
        return {}

    @property
    def black(self) -> float | None:
        """The number that stands for a black pixel, where there is one for all images and channels."""
        return None

    def prepare(self, inputs: Inputs) -> Inputs:
        """Samples in the form that is kept in memory: by default as they are."""
        return inputs

    @abstractmethod
    def tensor(self, raw: Tensor) -> Tensor:
        """A batch of prepared samples as floats for a model."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """All that is needed to make this encoding again, as plain JSON."""


class ImageEncoding(Encoding):
    """Bytes 0 to 255 -> floats -1 to 1, channels first. Bytes until a batch is made: a quarter of the memory.

    ``standardise``: instead, each image's channels by their own mean and standard deviation, so that how bright a
    microscope's lamp was that day is not seen.
    """

    kind = "images"

    def __init__(self, height: int, width: int, channels: int, *, standardise: bool = False) -> None:
        refuse_nonsense(height=height, width=width, channels=channels)
        self.height, self.width, self.channels, self.standardise = height, width, channels, standardise

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.height, self.width)

    @property
    def about(self) -> dict[str, Any]:
        return {"standardised": True} if self.standardise else {}

    @property
    def black(self) -> float | None:
        return None if self.standardise else -1.0

    def tensor(self, raw: Tensor) -> Tensor:
        values = raw.permute(0, 3, 1, 2).float()
        if not self.standardise:
            return values.div_(127.5).sub_(1.0)
        mean, deviation = values.mean(dim=(2, 3), keepdim=True), values.std(dim=(2, 3), keepdim=True)
        # A channel that is all of one brightness is 0, not divided by its 0.
        return values.sub_(mean).div_(deviation.where(deviation > 0, 1.0))

    def describe(self) -> dict[str, Any]:
        sizes = {"height": self.height, "width": self.width, "channels": self.channels}
        return {"kind": self.kind, **sizes, **({"standardise": True} if self.standardise else {})}


class FeatureEncoding(Encoding):
    """Numbers as they are, in float32."""

    kind = "features"

    def __init__(self, width: int) -> None:
        refuse_nonsense(width=width)
        self.width = width

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.width,)

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.float()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "width": self.width}


def refuse_nonsense(**sizes: object) -> None:
    """Refuse sizes of an encoding, by name, that are no whole numbers from 1 on."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise DataError(f"the {name} of an encoding must be a whole number from 1 on, got {size!r}")


@dataclass(frozen=True)
class NumberCode:
    """``(x - mean) / scale``, within 20; a missing one is 0, the mean. ``flag``: one more, 1 where it is missing.

    Without a scale the column was constant wherever it was known; then the flag is all there is.
    """

    name: str
    mean: float
    scale: float | None
    flag: bool

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) and (self.flag if self.scale is None else 0 < self.scale < np.inf)):
            raise DataError(f"column {self.name!r}: a mean of {self.mean} and a scale of {self.scale} make no sense")

    @classmethod
    def fit(cls, column: Numbers, rows: Rows) -> NumberCode | None:
        """None where the training rows hold fewer than two different values."""
        values, missing = column.values[rows], column.missing[rows]
        known = values[~missing]
        varies = bool(len(known)) and bool(known.min() < known.max())
        if not varies and (missing.all() or not missing.any()):
            return None
        # Scaled first: the square of a large value would overflow.
        size = float(np.abs(known).max()) or 1.0
        mean, scale = float((known / size).mean()) * size, float((known / size).std()) * size
        return cls(column.name, mean, (scale or 1.0) if varies else None, bool(missing.any()))

    @property
    def names(self) -> list[str]:
        """What each encoded number stands for."""
        return [self.name] * (self.scale is not None) + [f"{self.name} is missing"] * self.flag

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"name": self.name, "mean": self.mean, "scale": self.scale, "flag": self.flag}

    def checked(self, column: Column) -> Numbers:
        """The column, refused where it holds something else than in training."""
        if not isinstance(column, Numbers):
            raise DataError(f"column {self.name!r} held numbers in training, and now holds names")
        return column

    def encode(self, column: Column, rows: slice) -> NDArray[np.float32]:
        column = self.checked(column)
        values, missing = column.values[rows], column.missing[rows]
        columns: list[NDArray[Any]] = [missing] if self.flag else []
        if self.scale is not None:
            with np.errstate(over="ignore"):
                standard = np.clip((values - self.mean) / self.scale, -FURTHEST, FURTHEST)
            standard[missing] = 0.0
            columns.insert(0, standard)
        return np.stack(columns, axis=1).astype(np.float32)


@dataclass(frozen=True)
class CategoryCode:
    """One column a level seen in training; a level never seen is 0 in all of them, a missing one has its own."""

    name: str
    levels: tuple[str, ...]
    flag: bool

    @classmethod
    def fit(cls, column: Categories, rows: Rows) -> CategoryCode | None:
        """None where the training rows hold fewer than two different levels."""
        codes = column.values[rows]
        counts = np.bincount(codes[codes >= 0], minlength=len(column.levels))
        seen = np.argsort(-counts, kind="stable")[: min(MOST_LEVELS, int((counts > 0).sum()))]
        flag = bool((codes < 0).any())
        if len(seen) + flag < 2:
            return None
        return cls(column.name, tuple(column.levels[level] for level in np.sort(seen)), flag)

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"name": self.name, "levels": list(self.levels), "flag": self.flag}

    @property
    def names(self) -> list[str]:
        """What each encoded number stands for."""
        return [f"{self.name} = {level}" for level in self.levels] + [f"{self.name} is missing"] * self.flag

    def checked(self, column: Column) -> Categories:
        """The column, refused where it holds something else than in training."""
        if not isinstance(column, Categories):
            raise DataError(f"column {self.name!r} held names in training, and now holds numbers")
        return column

    def places(self, levels: Sequence[str], *, unseen: int) -> list[int]:
        """Where each of these levels stands among those of training."""
        place = {level: number for number, level in enumerate(self.levels)}
        return [place.get(level, unseen) for level in levels]

    def encode(self, column: Column, rows: slice) -> NDArray[np.float32]:
        column = self.checked(column)
        # The last two: missing, and a level never seen.
        missing, unseen = len(self.levels), len(self.levels) + 1
        lookup = np.array([*self.places(column.levels, unseen=unseen), missing])
        hot = np.eye(unseen + 1, dtype=np.float32)[lookup[column.values[rows]]]
        return hot[:, : len(self.levels) + self.flag]


Code = NumberCode | CategoryCode


class TableEncoding(Encoding):
    """Every column by its own code, side by side. Columns that say nothing in the training rows are left out."""

    kind = "table"

    def __init__(self, codes: Sequence[Code], left_out: Sequence[str] = ()) -> None:
        self.codes, self.left_out = tuple(codes), tuple(left_out)

    @classmethod
    def fit(cls, table: Table, rows: Rows) -> TableEncoding:
        """Codes from these rows of the table, and from no others."""
        codes: list[Code] = []
        left_out = []
        for column in table.columns:
            code = NumberCode.fit(column, rows) if isinstance(column, Numbers) else CategoryCode.fit(column, rows)
            if code is None:
                left_out.append(column.name)
            else:
                codes.append(code)
        if not codes:
            raise DataError(f"every column is constant in the training rows: {listing(left_out)}")
        return cls(codes, left_out)

    @property
    def names(self) -> tuple[str, ...]:
        """What each encoded number stands for."""
        return tuple(name for code in self.codes for name in code.names)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.names),)

    def columns_of(self, inputs: Inputs) -> dict[str, Column]:
        """The columns of a table by name, refused where one of training is missing."""
        if not isinstance(inputs, Table):
            raise DataError(f"this encoding was made for a table, got {inputs.describe()}")
        columns = {column.name: column for column in inputs.columns}
        absent = [code.name for code in self.codes if code.name not in columns]
        if absent:
            raise DataError(f"columns seen in training are missing here: {listing(absent)}")
        return columns

    def far_columns(self, inputs: Inputs) -> tuple[str, ...]:
        """Columns of numbers whose median is more than 3 standard deviations from the mean of training, by name."""
        columns, far = self.columns_of(inputs), []
        for code in self.codes:
            if isinstance(code, NumberCode) and code.scale is not None:
                values = code.checked(columns[code.name]).values
                known = values[~np.isnan(values)]
                if len(known) and abs(float(np.median(known)) - code.mean) > FAR * code.scale:
                    far.append(code.name)
        return tuple(far)

    def prepare(self, inputs: Inputs) -> Features:
        columns = self.columns_of(inputs)
        values = np.empty((len(inputs), *self.shape), np.float32)
        for rows in _slices(len(inputs)):
            np.concatenate([code.encode(columns[code.name], rows) for code in self.codes], axis=1, out=values[rows])
        return Features(values)

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.float()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "codes": [code.describe() for code in self.codes], "left_out": list(self.left_out)}

    @classmethod
    def from_description(cls, *, codes: Sequence[Mapping[str, Any]], left_out: Sequence[str]) -> TableEncoding:
        """The encoding that ``describe`` described."""
        return cls([_code(code) for code in codes], left_out)


def _code(fields: Mapping[str, Any]) -> Code:
    if "levels" in fields:
        return CategoryCode(fields["name"], tuple(fields["levels"]), fields["flag"])
    return NumberCode(**fields)


def _slices(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + _ROWS_AT_ONCE, rows)) for start in range(0, rows, _ROWS_AT_ONCE))


def fit_encoding(dataset: DomainDataset, rows: Rows) -> Encoding:
    """The encoding of a data set's inputs, with all that is learned from data learned from ``rows``, the training rows.

    The inputs of other rows are never looked at.
    """
    if len(rows) == 0:
        raise DataError("there are no training rows to learn an encoding from")
    inputs = dataset.inputs
    if isinstance(inputs, Table):
        return TableEncoding.fit(inputs, rows)
    from gated_domains.data.other_encodings import (
        BandsEncoding,
        BitsEncoding,
        GraphEncoding,
        TokenEncoding,
        WordsEncoding,
    )

    if isinstance(inputs, Text):
        return WordsEncoding.fit(inputs, rows) if inputs.kind == "words" else TokenEncoding.fit(inputs, rows)
    if inputs.kind == "graphs":
        return GraphEncoding()
    shape = inputs.read(rows[:1]).shape[1:]
    if inputs.kind == "images":
        return ImageEncoding(*shape, standardise=getattr(inputs, "standardise", False))
    if inputs.kind == "bits":
        return BitsEncoding(*shape)
    return BandsEncoding(*shape) if inputs.kind == "bands" else FeatureEncoding(*shape)


def encoding_from(description: Mapping[str, Any]) -> Encoding:
    """The encoding that ``Encoding.describe`` described."""
    from gated_domains.data import other_encodings as others

    fields = dict(description)
    kind = str(fields.pop("kind", ""))
    makers: dict[str, Callable[..., Encoding]] = {
        "images": ImageEncoding,
        "bands": others.BandsEncoding,
        "features": FeatureEncoding,
        "columns": others.ColumnsEncoding,
        "table": TableEncoding.from_description,
        "words": others.WordsEncoding,
        "tokens": others.TokenEncoding,
        "bits": others.BitsEncoding,
        "graphs": others.GraphEncoding,
    }
    if kind not in makers:
        raise DataError(f"there is no encoding {kind!r}{did_you_mean(kind, makers)}")
    try:
        return makers[kind](**fields)
    except (KeyError, TypeError) as error:
        raise DataError(
            f"the description of the encoding {kind!r} is damaged ({first_line(error)}); fit it anew"
        ) from error
