"""Names in new data -> those of training: a class, a level of a column, however the new file writes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, RowError, did_you_mean, row_name
from gated_domains.data.labels import as_targets, known_values, plain

_JOINED = " or "  # between the classes that were made one
_CODE = re.compile(r"0\d+")  # 007 is no other way to write 7


def places_of(written: Sequence[str], known: Sequence[str]) -> list[int]:
    """The place of each name among the known ones, -1 where it is none of them.

    A name that is not there as it is written may be there in another form, ``1`` for ``1.0``, ``True`` for ``true``:
    which form a file shows depends on what else stands in its column.
    """
    exact = {name: place for place, name in enumerate(known)}
    by_value: dict[object, int] = {}
    for name, place in exact.items():
        value = _value(name)
        by_value[value] = -1 if value in by_value or value is None else place  # in two forms: two names
    return [exact[name] if name in exact else by_value.get(_value(name), -1) for name in written]


def _value(name: str) -> object:
    """What is the same in every form of a name: a number, or yes and no. None for other names."""
    if name.casefold() in ("true", "false"):
        return name.casefold()
    try:
        return None if _CODE.fullmatch(name) or len(name) > 40 else float(name)
    except ValueError:
        return None


def targets_like(
    values: NDArray[Any],
    class_names: Sequence[str] | None,
    *,
    joined: bool = False,
    what: str = "target",
    places: Sequence[str] | None = None,
) -> NDArray[Any]:
    """Targets of new data as a model knows them: indices into the classes of training, or numbers where it has none.

    ``joined``: training made several classes one, called ``1 or 2``. ``places`` say in an error where a row comes from.
    """
    values = known_values(values, what)
    if class_names is None:
        return _numbers(values, what)
    levels, index = np.unique(values, return_inverse=True)
    written = [plain(level) for level in levels]
    place = np.array(_classes(written, class_names, joined=joined), np.int64)
    unknown = place[index] < 0
    if unknown.any():
        row = int(np.argmax(unknown))
        found = written[index[row]]
        hint = did_you_mean(found, class_names)
        raise RowError(
            lambda where, count, of: (
                f"the {what} of {where} is {found!r}, which training never had (such rows: {count:,}){hint}"
            ),
            row=row,
            count=int(unknown.sum()),
            of=len(unknown),
            column=what,
            name=row_name if places is None else places.__getitem__,
        )
    return place[index]


def _classes(written: Sequence[str], class_names: Sequence[str], *, joined: bool) -> list[int]:
    spellings = {name: place for place, name in enumerate(class_names)}
    if joined:
        parts = {part: place for name, place in spellings.items() for part in name.split(_JOINED)}
        spellings = {**parts, **spellings}
    owners = [*spellings.values(), -1]
    places = [owners[found] for found in places_of(written, list(spellings))]
    if joined:  # a class may itself have " or " in its name
        places = [
            place if place >= 0 else _around(name, class_names) for name, place in zip(written, places, strict=True)
        ]
    return places


def _around(name: str, class_names: Sequence[str]) -> int:
    edged = [f"{_JOINED}{other}{_JOINED}" for other in class_names]
    return next((place for place, other in enumerate(edged) if f"{_JOINED}{name}{_JOINED}" in other), -1)


def _numbers(values: NDArray[Any], what: str) -> NDArray[Any]:
    if values.dtype.kind not in "biuf":
        found = f"the {what} of {row_name(0)} is {plain(values[0])!r}"
        raise DataError(f"{found}, but the model predicts a number; write numbers")
    return as_targets(values, task="regression", what=what)[0]
