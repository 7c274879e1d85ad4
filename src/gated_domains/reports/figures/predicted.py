"""Predictions of classes on held-out rows, as run folders keep them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gated_domains.runs.collection import RunCollection
from gated_domains.runs.result import RunResult

TEST = 1
"""What ``part`` says of held-out rows."""

Predicted = tuple[NDArray[np.floating], NDArray[np.integer]]
"""Probabilities (rows, classes), and the true class of each row."""


def held_out_predictions(gathered: RunCollection, result: RunResult) -> Predicted | None:
    """Of one run; None where it kept none, or predicts no classes."""
    arrays = gathered.predictions(result, "output", "targets", "part")
    if arrays is None or not {"output", "targets", "part"} <= arrays.keys():
        return None
    output, targets = arrays["output"], arrays["targets"]
    if output.ndim != 2 or output.shape[1] < 2 or targets.ndim != 1 or targets.dtype.kind not in "iu":
        return None
    held_out = arrays["part"] == TEST
    output, targets = output[held_out], targets[held_out]
    # A row whose true class training never saw, or whose probabilities are no numbers, says nothing here.
    whole = np.isfinite(output).all(axis=1) & (targets >= 0) & (targets < output.shape[1])
    return (output[whole], targets[whole]) if whole.any() else None


def all_predictions(gathered: RunCollection, results: Iterable[RunResult]) -> list[Predicted]:
    """Of those runs that have any."""
    found = (held_out_predictions(gathered, result) for result in results)
    return [mine for mine in found if mine is not None]
