"""Types of columns that are found out some rows at a time: the first, of those Arrow tries, that holds all values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# In the order in which Arrow tries them; text holds everything.
_LADDER = (
    "null",
    "int64",
    "bool",
    "date32[day]",
    "time32[s]",
    "timestamp[s]",
    "timestamp[s, tz=UTC]",
    "timestamp[ns]",
    "timestamp[ns, tz=UTC]",
    "double",
    "string",
)


def raised(
    known: Mapping[str, pa.DataType], found: Mapping[str, pa.DataType], converts: Callable[[str, pa.DataType], bool]
) -> dict[str, pa.DataType]:
    """The types ``known`` of rows so far, raised to hold rows that by themselves would be of the types ``found``.

    ``converts(column, type)`` tells whether these rows are of a type; it is asked where the higher of both is the one
    known, and something does not fit all the same: 0 and 1 are ints, then true and false, and 2 is neither any more.
    """
    higher = {name: _higher(kind, found.get(name, kind)) for name, kind in known.items()}
    if higher != known:
        return higher
    odd = [name for name, kind in known.items() if found.get(name, kind) != kind and not converts(name, kind)]
    return {name: _next(kind) if name in odd else kind for name, kind in known.items()}


def _higher(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    return other if _place(other) > _place(one) else one


def _place(kind: pa.DataType) -> int:
    return _LADDER.index(str(kind)) if str(kind) in _LADDER else len(_LADDER) - 1


def _next(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    by_name = {
        "bool": pa.bool_(),
        "date32[day]": pa.date32(),
        "time32[s]": pa.time32("s"),
        "timestamp[s]": pa.timestamp("s"),
        "timestamp[s, tz=UTC]": pa.timestamp("s", "UTC"),
        "timestamp[ns]": pa.timestamp("ns"),
        "timestamp[ns, tz=UTC]": pa.timestamp("ns", "UTC"),
        "double": pa.float64(),
        "string": pa.string(),
    }
    return by_name.get(_LADDER[min(_place(kind) + 1, len(_LADDER) - 1)], pa.string())
