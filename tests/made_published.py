"""Small data that a publisher has divided, and data with several labels a row: what tests of such runs share."""

from __future__ import annotations

from typing import Any

import numpy as np

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.inputs import Features
from gated_domains.data.published import Grouping, Published

PARTS = ("train", "val", "test", "id_val", "id_test")
LABELS = ("toxic", "soluble", "stable")


def division(rows: int, **others: Any) -> Published:
    """Half of the rows train, the others are dealt to the other parts; groups are three regions, by rows."""
    parts = np.array([0, 1, 0, 2, 0, 3, 0, 4], np.int8)[np.arange(rows) % 8]
    regions = Grouping(("Asia", "Europe", "Africa"), np.arange(rows) // 8 % 3)
    given: dict[str, Any] = {
        "name": "sites", "parts": parts, "part_names": PARTS, "metric": "accuracy", "statistic": "worst_group",
        "groupings": (regions,), "runs": 3,
    }  # fmt: skip
    return Published(**{**given, **others})


def divided(rows: int = 240, **others: Any) -> DomainDataset:
    """Two classes that four numbers tell apart most of the time, with a published division."""
    rng = np.random.default_rng(0)
    site, label = rng.integers(4, size=rows), rng.integers(2, size=rows)
    inputs = rng.normal(size=(rows, 4)) + 1.5 * label[:, None] + 0.5 * site[:, None]
    return DomainDataset(
        name="sites",
        inputs=Features(inputs.astype(np.float32)),
        targets=label,
        class_names=("no", "yes"),
        domains=site,
        domain_names=("a", "b", "c", "d"),
        published=division(rows, **others),
    )


def labelled(rows: int = 180, **others: Any) -> DomainDataset:
    """Three labels a row that five numbers tell, of which about a third is not known; three domains."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(rows, 5)).astype(np.float32)
    answers = (inputs[:, :3] + 0.5 * rng.normal(size=(rows, 3)) > 0).astype(np.float32)
    answers[rng.random(answers.shape) < 0.3] = np.nan
    answers[7] = np.nan  # of this one nobody knows anything
    given: dict[str, Any] = {
        "name": "molecules",
        "inputs": Features(inputs),
        "targets": answers,
        "label_names": LABELS,
        "domains": np.arange(rows) % 3,
        "domain_names": ("north", "south", "west"),
    }
    return DomainDataset(**{**given, **others})
