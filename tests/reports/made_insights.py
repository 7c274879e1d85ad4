"""Insights made up for tests of the page: a few rows of three domains, four bases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gated_domains.runs.insight import Insight

EMPTY = np.zeros(0)


def an_insight(
    *,
    domain_names: Sequence[str] = ("near", "mid", "far"),
    class_names: Sequence[str] = ("cat", "dog", "<b>eel</b>"),
    rows: int = 90,
    bases: int = 4,
    kind: str = "images",
    **others: Any,
) -> Insight:
    """The last domain is the unseen one. ``kind`` is what the samples are: images, texts, or a table."""
    chance = np.random.default_rng(5)
    count, near = len(domain_names), 6
    unseen = np.arange(count) == count - 1
    pictures = chance.integers(0, 255, (rows, 12, 12, 3)).astype(np.uint8)
    words = np.array([f"<i>sample</i> {row}" for row in range(rows)])
    nearest = chance.integers(0, rows, (bases, near))
    arrays: dict[str, Any] = {
        "domain_names": np.array(domain_names),
        "unseen": unseen,
        "class_names": np.array(class_names),
        "rows": np.arange(rows),
        "domains": np.arange(rows) % count,
        "targets": chance.integers(0, len(class_names), rows),
        "predicted": chance.integers(0, len(class_names), rows),
        "beta": chance.dirichlet(np.ones(bases), rows).astype(np.float32),
        "coverage": chance.random(rows, dtype=np.float32),
        "map_rows": chance.normal(size=(rows, 2)).astype(np.float32),
        "map_bases": chance.normal(size=(bases * 3, 2)).astype(np.float32),
        "map_basis_of": np.repeat(np.arange(bases), 3),
        "map_kind": np.array("t-SNE"),
        "mmd": np.abs(np.subtract.outer(np.arange(count + bases), np.arange(count + bases))).astype(np.float32),
        "domain_share": chance.dirichlet(np.ones(count), bases).astype(np.float32),
        "class_share": chance.dirichlet(np.ones(len(class_names)), bases).astype(np.float32),
        "mass": np.linspace(0.4, 0.1, bases).astype(np.float32),
        "dropping": chance.normal(0, 0.01, (bases, 2)).astype(np.float32),
        "nearest": nearest,
        "nearest_domains": nearest % count,
        "nearest_targets": nearest % len(class_names),
        "nearest_pictures": pictures[nearest] if kind == "images" else EMPTY.astype(np.uint8),
        "nearest_texts": words[nearest] if kind == "texts" else EMPTY.astype(str),
        "nearest_columns": np.array(["age", "<u>sex</u>"]) if kind == "table" else EMPTY.astype(str),
        "nearest_values": np.full((bases, near, 2), "<q>7</q>") if kind == "table" else EMPTY.astype(str),
        "pictures": pictures if kind == "images" else EMPTY.astype(np.uint8),
        "texts": words if kind != "images" else EMPTY.astype(str),
    }
    return Insight(**{**arrays, **others})
