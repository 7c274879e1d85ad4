"""A miniature of Amazon-WILDS: reviews with one to five stars, by people who each have ways of their own.

A review says how good the thing is; the stars given are those, moved by how generous its writer is. The users of the
validation and test splits are others than those trained on: they differ more in generosity, and more of them speak in
a way that is rare among the users trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.miniatures.amazon_phrases import HABITS, OPENINGS, OPINIONS, THINGS
from gated_domains.data.miniatures.files import write_table
from gated_domains.data.miniatures.miniature import Miniature, Order
from gated_domains.data.miniatures.wording import one, sentences

_TRAIN, _VAL, _ID_VAL, _TEST, _ID_TEST, _UNUSED = 0, 1, 2, 3, 4, -1
_QUALITY = (0.12, 0.14, 0.18, 0.26, 0.30)  # shares of one to five stars, before generosity
_PLAIN, _CHATTY, _TERSE = 0, 1, 2


@dataclass(frozen=True)
class _Users:
    """Users of one kind: their split, how many they are, how far they differ in generosity, and how they speak."""

    split: int
    users: int
    rows: int  # of each user, in their split
    kept: int  # of each user, set aside as in-distribution validation or test
    spread: float
    ways: tuple[float, float, float]


class _User(NamedTuple):
    """How often one user speaks in which way, how many stars they add, and what they say again and again."""

    name: str
    ways: NDArray[np.float64]
    generosity: float
    habits: NDArray[np.int64]


_KINDS = (
    _Users(_TRAIN, 24, 26, 10, 0.35, (0.55, 0.38, 0.07)),
    _Users(_VAL, 14, 12, 0, 0.60, (0.3, 0.3, 0.4)),
    _Users(_TEST, 20, 12, 0, 0.80, (0.15, 0.2, 0.65)),
    _Users(_UNUSED, 4, 10, 0, 0.35, (0.5, 0.5, 0.0)),
)
_ROWS = sum(kind.users * (kind.rows + kind.kept) for kind in _KINDS)
_COLUMNS = (
    "reviewerID", "asin", "overall", "reviewTime", "unixReviewTime", "reviewText", "summary", "verified", "category",
    "reviewYear",
)  # fmt: skip


def write(folder: Path, order: Order) -> None:
    """``reviews.csv`` and ``splits/user.csv``, where -1 says that a review takes no part."""
    rng = order.rng("reviews")
    reviews: list[tuple[Any, ...]] = []
    splits: list[int] = []
    number = 0
    for kind in _KINDS:
        for place in range(kind.users):
            user = _User(
                name=f"A{number:05}USER",
                ways=rng.dirichlet(np.array(kind.ways) * 3 + 0.05),
                generosity=rng.normal(0.1, kind.spread),
                habits=rng.choice(len(HABITS), 3, replace=False),
            )
            kept = _ID_VAL if place % 2 else _ID_TEST
            rows = [kind.split] * _scaled(kind.rows, order) + [kept] * _scaled(kind.kept, order)
            reviews += [_review(user, rng) for _ in rows]
            splits += rows
            number += 1
    mixed = rng.permutation(len(splits))
    write_table(
        folder / "reviews.csv",
        dict(zip(_COLUMNS, zip(*(reviews[row] for row in mixed), strict=True), strict=True)),
        quote_text=True,
    )
    write_table(
        folder / "splits" / "user.csv",
        {"split": [float(splits[row]) for row in mixed], "clean": [splits[row] != _UNUSED for row in mixed]},
    )


def _scaled(rows: int, order: Order) -> int:
    return max(round(rows * order.rows / _ROWS), 4) if rows else 0


def _review(user: _User, rng: np.random.Generator) -> tuple[Any, ...]:
    quality = int(rng.choice(5, p=_QUALITY))
    stars = int(np.clip(round(quality + 1 + user.generosity + rng.normal(0, 0.25)), 1, 5))
    category = sorted(THINGS)[rng.integers(len(THINGS))]
    thing = int(rng.integers(len(THINGS[category])))
    said = []
    for _ in range(rng.integers(2, 5)):
        # Now and then somebody says a little more or less than they mean.
        level = int(np.clip(quality + rng.choice((-1, 0, 1), p=(0.1, 0.8, 0.1)), 0, 4))
        said.append(one(OPINIONS[level][rng.choice((_PLAIN, _CHATTY, _TERSE), p=user.ways)], rng))
    opening = one(OPENINGS, rng).format(thing=THINGS[category][thing])
    text = sentences([opening, *said, HABITS[rng.choice(user.habits)]])
    month, day, year = int(rng.integers(1, 13)), int(rng.integers(1, 29)), int(rng.integers(2008, 2019))
    seconds = int(np.datetime64(f"{year}-{month:02}-{day:02}", "s").astype(np.int64))
    product = f"B{sorted(THINGS).index(category):02}{thing:03}ITEM"
    verified = bool(rng.random() < 0.9)
    return (
        user.name,
        product,
        float(stars),
        f"{month:02} {day}, {year}",
        seconds,
        text,
        said[0],
        verified,
        category,
        year,
    )


MINIATURE = Miniature(folder="amazon_v2.1", release="RELEASE_v2.1.txt", rows=_ROWS, least=600, write=write)
