"""Labels and domains of any kind (numbers, text) -> indices and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, RowError, did_you_mean, listing

TASKS = ("classification", "regression")
# Whole numbers with more different values than this are taken for a quantity, not for classes.
MOST_CLASSES_BY_GUESS = 100


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
