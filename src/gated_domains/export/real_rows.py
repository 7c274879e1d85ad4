"""Real samples to compare an exported model on: of data that are named, or of those its run was trained on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from gated_domains.data.blocks import blocks_like
from gated_domains.data.errors import DataError
from gated_domains.data.like import read_like
from gated_domains.data.named import DATASETS
from gated_domains.data.new_data import NewData
from gated_domains.experiments.recipe_checks import read_recipe
from gated_domains.export.examples import Arrays
from gated_domains.export.feeds import feeding
from gated_domains.export.subject import Subject
from gated_domains.runs.folder import RECIPE

# Rows that are compared, more of vectors, which cost a body little; and the largest file that is read unasked.
_ROWS, _VECTORS, _SMALL = 256, 1_024, 1 << 26


def rows_like(subject: Subject, what: str | os.PathLike[str]) -> Arrays:
    """Some samples of data that somebody names."""
    return _some(subject, next(iter(blocks_like(what, subject.schema))))


def rows_of_training(subject: Subject) -> Arrays | None:
    """Some samples of the data that a run was trained on; None where they are not at hand, or large."""
    if subject.folder is None:
        return None
    try:
        data = read_recipe(subject.folder / RECIPE).data
        if not _at_hand(data.what):
            return None
        return _some(subject, read_like(data.what, subject.schema, targets=False, seed=data.seed))
    except (DataError, OSError):  # moved, or changed since: then samples drawn by chance must do, and that is said
        return None


def _at_hand(what: str) -> bool:
    if what in DATASETS:
        return DATASETS[what].embedded
    return Path(what).is_file() and Path(what).stat().st_size <= _SMALL


def _some(subject: Subject, data: NewData) -> Arrays:
    encoding = subject.schema.encoding
    most = _ROWS if len(encoding.shape) > 1 or encoding.kind == "tokens" else _VECTORS
    rows = np.unique(np.linspace(0, len(data) - 1, min(most, len(data))).astype(np.int64))
    read = feeding(encoding, data.inputs, exact=subject.exact)
    return read(np.random.default_rng(0).permutation(rows))
