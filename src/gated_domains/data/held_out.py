"""Which domains are held out: each, by name, together, or in folds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean, listing

MOST_ONE_BY_ONE = 32
"""Above this many domains, ``default`` holds them out in folds."""
DEFAULT_FOLDS = "folds:5"
_FOLDS = "folds:"
_FOLD = re.compile(r"fold (\d+) of (\d+)")


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
