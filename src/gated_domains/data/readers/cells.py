"""Cells of a column, of whatever type Arrow found -> numbers, names, days."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.labels import plain

if TYPE_CHECKING:
    import pyarrow as pa

_NAME_LETTERS = 1_000


def is_number(kind: pa.DataType) -> bool:
    """Whether cells of this type are numbers; yes and no are 1 and 0."""
    import pyarrow.types as kinds

    return any(test(kind) for test in (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal))


def as_numbers(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers, NaN where a cell is empty."""
    import pyarrow.types as kinds

    if kinds.is_boolean(values.type):
        values = values.cast("int8")
    return np.asarray(values.cast("float64", safe=False).to_numpy(), np.float64)


def is_date(kind: pa.DataType) -> bool:
    """Whether cells of this type are days, with or without a time."""
    import pyarrow.types as kinds

    return bool(kinds.is_temporal(kind) and not kinds.is_time(kind) and not kinds.is_duration(kind))


def as_days(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Days since 1970, NaN where a cell is empty."""
    whole = values.cast("timestamp[us]", safe=False).cast("int64")  # what is finer is let go
    return np.asarray(whole.to_numpy(zero_copy_only=False).astype(np.float64) / 86_400e6, np.float64)


def number(text: str) -> float:
    """The number that a text is, else NaN."""
    try:
        return float(text) if len(text) < 400 else np.nan
    except ValueError:
        return np.nan


def day(text: str) -> float:
    """The day that a text is, counted since 1970, else NaN."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return np.nan
    return (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo and timezone.utc)) / timedelta(days=1)


def as_levels(values: pa.ChunkedArray, name: str) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Names as indices into the different ones; -1 where a cell is empty."""
    import pyarrow.types as kinds

    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if kinds.is_nested(values.type):
        raise DataError(f"column {name!r} holds {values.type} in each cell; one value a cell is needed (--drop {name})")
    raw = values.dictionary_encode().combine_chunks()
    names = raw.dictionary.to_pylist()
    if not kinds.is_string(values.type):
        names = [plain(level) for level in names]
    codes = raw.indices.fill_null(-1).to_numpy().astype(np.int32)
    # In the order of the alphabet, not of appearance: the same data in another order must give the same columns.
    # Not by an array of text, which has as many places for every name as the longest one needs.
    levels = sorted(set(names))
    place = {level: number for number, level in enumerate(levels)}
    return np.array([*(place[name] for name in names), -1], np.int32)[codes], tuple(levels)


def plain_values(values: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """A target or a domain as plain numbers or text; an empty cell is NaN or an empty string."""
    import pyarrow.types as kinds

    if kinds.is_boolean(values.type):
        values = values.cast("string")
    if is_number(values.type):
        kept_whole = values.null_count == 0 and str(values.type).lstrip("u").startswith("int")
        return np.asarray(values.to_numpy()) if kept_whole else as_numbers(values)
    codes, levels = as_levels(values, name)
    longest = max(levels, key=len, default="")
    if len(longest) > _NAME_LETTERS:
        raise DataError(
            f"column {name!r} holds {len(longest):,} letters in one cell ({longest[:40]!r} ...); "
            f"classes and domains have names of at most {_NAME_LETTERS}: is this the right column?"
        )
    return np.array([*levels, ""])[codes]


def kept_values(values: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Metadata as they are; text as objects, for it may be of any length."""
    if is_number(values.type):
        return plain_values(values, name)
    codes, levels = as_levels(values, name)
    return np.array([*levels, ""], dtype=object)[codes]
