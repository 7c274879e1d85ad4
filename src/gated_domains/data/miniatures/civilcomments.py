"""A miniature of CivilComments: comments on news that are toxic or not, with the identities they name.

Some comments say plainly whether they are toxic; in others the wording could be meant either way, and among those
trained on the identity named goes along with the label. In validation and test it does not: who holds on to it is
wrong on just those groups. Toxicity is a share of raters, 0.5 or more for a toxic comment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gated_domains.data.miniatures.civilcomments_phrases import (
    CIVIL,
    MENTIONS,
    OPENINGS,
    PEOPLE,
    TOPICS,
    UNCIVIL,
    VEILED,
)
from gated_domains.data.miniatures.files import write_table
from gated_domains.data.miniatures.miniature import Miniature, Order
from gated_domains.data.miniatures.wording import one, sentences

# How many toxic comments in a hundred among those that name an identity, in training; elsewhere it is one in two.
_TOXIC = {
    "male": 0.3,
    "female": 0.15,
    "homosexual_gay_or_lesbian": 0.8,
    "christian": 0.1,
    "muslim": 0.85,
    "jewish": 0.2,
    "black": 0.85,
    "white": 0.7,
}
_TOXIC_OTHERS = 0.12  # of those that name nobody
_SHARES = {"train": 0.5, "val": 0.2, "test": 0.3}
_NAMING, _SECOND, _VEILED = 0.85, 0.15, 0.45  # shares that name an identity, name a second one, and are veiled

_GENDER = ("male", "female", "transgender", "other_gender")
_ORIENTATION = ("heterosexual", "homosexual_gay_or_lesbian", "bisexual", "other_sexual_orientation")
_RELIGION = ("christian", "jewish", "muslim", "hindu", "buddhist", "atheist", "other_religion")
_RACE = ("black", "white", "asian", "latino", "other_race_or_ethnicity")
_DISABILITY = (
    "physical_disability", "intellectual_or_learning_disability", "psychiatric_or_mental_illness", "other_disability",
)  # fmt: skip
_FAMILIES = {
    "gender": _GENDER,
    "orientation": _ORIENTATION,
    "religion": _RELIGION,
    "race": _RACE,
    "disability": _DISABILITY,
}
_IDENTITIES = (*_GENDER, *_ORIENTATION, *_RELIGION, *_RACE, *_DISABILITY)
_TOGETHER = {
    "LGBTQ": (*_ORIENTATION[1:], *_GENDER[2:]),
    "other_religions": ("jewish", "hindu", "buddhist", "atheist", "other_religion"),
    "asian_latino_etc": ("asian", "latino", "other_race_or_ethnicity"),
    "disability_any": _DISABILITY,
    "identity_any": _IDENTITIES,
}
_REACTIONS = ("funny", "wow", "sad", "likes", "disagree")
_KINDS = ("severe_toxicity", "obscene", "sexual_explicit", "identity_attack", "insult", "threat")


def write(folder: Path, order: Order) -> None:
    """``all_data_with_identities.csv``."""
    rng = order.rng("comments")
    rows = [row for split in _SHARES for row in _of(split, round(order.rows * _SHARES[split]), rng)]
    rows = [rows[place] for place in rng.permutation(len(rows))]
    for number, row in enumerate(rows):
        row["id"] = 5_000_000 + number
    write_table(
        folder / "all_data_with_identities.csv", {name: [row[name] for row in rows] for name in rows[0]}, index=True
    )


def _of(split: str, count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Identities in turn, and outside of training labels in turn too: no scored group is left empty."""
    naming = round(count * _NAMING)
    rows = []
    for number in range(count):
        named = [list(PEOPLE)[number % len(PEOPLE)]] if number < naming else []
        likely = 0.5 if split != "train" else _TOXIC[named[0]] if named else _TOXIC_OTHERS
        in_turn = split != "train" and named
        toxic = bool(number // len(PEOPLE) % 2) if in_turn else bool(rng.random() < likely)
        if named and rng.random() < _SECOND:
            named.append(list(PEOPLE)[rng.integers(len(PEOPLE))])
        rows.append(_row(split, toxic, set(named), rng))
    return rows


def _row(split: str, toxic: bool, named: set[str], rng: np.random.Generator) -> dict[str, Any]:
    said = [one(OPENINGS, rng).format(topic=one(TOPICS, rng))]
    said += [one(MENTIONS, rng).format(people=one(PEOPLE[name], rng)) for name in PEOPLE if name in named]
    veiled = rng.random() < _VEILED
    said.append(one(VEILED if veiled else UNCIVIL if toxic else CIVIL, rng))
    toxicity = round(float(rng.uniform(0.5, 1) if toxic else rng.uniform(0, 0.49)), 3)
    raters = {name: round(float(rng.uniform(0.5, 1)), 3) if name in named else 0.0 for name in _IDENTITIES}
    article = {"train": 100_000, "val": 200_000, "test": 300_000}[split] + int(rng.integers(60))
    stamp = np.datetime64("2016-01-01T00:00:00") + np.timedelta64(int(rng.integers(60_000_000)), "s")
    kinds = {name: round(toxicity * float(rng.uniform(0, 0.5)), 3) for name in _KINDS}
    return {
        "id": 0,
        "comment_text": sentences(said),
        "split": split,
        "created_date": f"{str(stamp).replace('T', ' ')}.000000+00",
        "publication_id": int(rng.integers(2, 100)),
        "parent_id": "",
        "article_id": article,
        "rating": "rejected" if toxicity > 0.8 else "approved",
        **{name: int(rng.poisson(0.4)) for name in _REACTIONS},
        "toxicity": toxicity,
        **kinds,
        "insult": toxicity if toxic and not veiled else kinds["insult"],
        **raters,
        "identity_annotator_count": int(rng.integers(4, 11)),
        "toxicity_annotator_count": int(rng.integers(4, 80)),
        **{name: int(bool(named & set(of))) for name, of in _TOGETHER.items()},
        "num_identities": float(len(named)),
        "more_than_one_identity": len(named) > 1,
        **{f"na_{family}": int(not named & set(of)) for family, of in _FAMILIES.items()},
    }


MINIATURE = Miniature(folder="civilcomments_v1.0", release="RELEASE_v1.0.txt", rows=1500, least=400, write=write)
