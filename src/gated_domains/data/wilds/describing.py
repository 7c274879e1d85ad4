"""What the numbers in WILDS's metadata stand for: domains, scored groups, classes and columns, in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import decoding
from gated_domains.data.npz import array_headers
from gated_domains.data.published import Grouping
from gated_domains.data.wilds.sets import WildsSet

if TYPE_CHECKING:
    from gated_domains.data.wilds.loading import Columns

_TOXIC = ("not toxic", "toxic")
_WHERE = ("rural", "urban")
_NOBODYS = "Other"  # countries that FMoW's table of regions does not have; WILDS does not score them
# Columns kept beside the samples, in words where they have some. Those of 0 and 1 take a byte each.
_IN_WORDS = {"fmow": ("region",), "amazon": ("category",), "rxrx1": ("cell_type", "well")}
_IN_NUMBERS = {
    "camelyon17": ("slide",),
    "amazon": ("product",),
    "iwildcam": ("sequence", "year", "month", "hour"),
    "rxrx1": ("plate", "site"),
}
_YES_OR_NO = ("identity_any", "severe_toxicity", "obscene", "threat", "insult", "identity_attack", "sexual_explicit")


def domains(chosen: WildsSet, columns: Columns) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The domain of every row, among those that have rows."""
    if chosen.name == "civilcomments":
        index = columns["black"] + 2 * columns["y"]  # in the order of WILDS's own grouper
        names = [f"black {mentioned}, {label}" for label in _TOXIC for mentioned in ("not mentioned", "mentioned")]
    else:
        (field,) = chosen.domain
        index = columns[field]
        known = columns.meanings.get(field)
        names = [f"{field} {n}" for n in range(index.max() + 1)] if known is None else [str(name) for name in known]
    return _present(index, names)


def groupings(chosen: WildsSet, columns: Columns) -> tuple[Grouping, ...]:
    """The groups that WILDS scores; those of CivilComments overlap."""
    if chosen.name == "civilcomments":
        return tuple(
            Grouping(tuple(f"{who}, {label}" for label in _TOXIC), np.where(columns[who] == 1, columns["y"], -1))
            for who in chosen.groups
        )
    if chosen.name == "poverty":
        return (Grouping(_WHERE, columns["urban"]),)
    (field,) = chosen.groups
    index, known = columns[field], columns.meanings.get(field)
    names = [f"{field} {n}" for n in range(index.max() + 1)] if known is None else [str(name) for name in known]
    if _NOBODYS in names and chosen.name == "fmow":
        index = np.where(index == names.index(_NOBODYS), -1, index)
    return (_grouping(index, names),)


def class_names(chosen: WildsSet, folder: Path, opened: Any) -> tuple[str, ...] | None:
    """The classes in words; None where a number is predicted."""
    if chosen.name == "fmow":
        return tuple(opened.category_to_idx)
    if chosen.name == "iwildcam":
        return _animals(folder / "categories.csv", int(opened.n_classes))
    return {
        "camelyon17": ("no tumour", "tumour"),
        "amazon": ("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
        "rxrx1": tuple(f"siRNA {number}" for number in range(int(opened.n_classes or 0))),
        "civilcomments": _TOXIC,
        "poverty": None,
    }[chosen.name]


def metadata(chosen: WildsSet, columns: Columns) -> dict[str, NDArray[Any]]:
    """What else is known of the rows and worth grouping by."""
    found: dict[str, NDArray[Any]] = {field: columns.named(field) for field in _IN_WORDS.get(chosen.name, ())}
    found |= {field: columns[field].astype(np.int32) for field in _IN_NUMBERS.get(chosen.name, ())}
    if chosen.name == "amazon":
        found["year"] = columns.named("year").astype(np.int32)
    if chosen.name == "civilcomments":
        found |= {field: columns[field].astype(np.int8) for field in (*chosen.groups, *_YES_OR_NO)}
    if chosen.name == "poverty":
        found["place"] = np.array(_WHERE)[columns["urban"]]
    return found


def shape_of_bands(folder: Path, paths: list[str], *, usual: int) -> tuple[int, int]:
    """How many bands there are and how large they are, by the first file there is; as published where there is none."""
    for path in paths[:100]:
        if (folder / path).is_file():
            shape, _ = array_headers(folder / path).get("x", ((8, usual, usual), None))
            return (int(shape[0]), int(shape[-1])) if len(shape) == 3 else (8, usual)
    return 8, usual


def _animals(path: Path, count: int) -> tuple[str, ...]:
    """Names of the classes from ``categories.csv``; numbers where it has none, or one for two classes."""
    names = [f"class {number}" for number in range(count)]
    if path.is_file():
        import pandas

        with decoding(path):
            table = pandas.read_csv(path)
            if {"y", "name"} <= set(table.columns):
                for number, name in zip(table["y"], table["name"], strict=True):
                    if 0 <= int(number) < count:
                        names[int(number)] = str(name)
    twice = {name for name in names if names.count(name) > 1}
    return tuple(f"{name} ({number})" if name in twice else name for number, name in enumerate(names))


def _present(index: NDArray[np.int64], names: list[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    used, place = np.unique(index, return_inverse=True)
    return place.astype(np.int64), tuple(names[number] for number in used.tolist())


def _grouping(index: NDArray[np.int64], names: list[str]) -> Grouping:
    used, place = np.unique(index, return_inverse=True)
    if used[0] == -1:
        used, place = used[1:], place - 1
    return Grouping(tuple(names[number] for number in used.tolist()), place.astype(np.int64))
