"""How each metric is computed, by torchmetrics, from probabilities (rows, classes) or numbers (rows, 1).

Classes that do not occur in the rows take no part in a mean over classes: a hospital that never sees a disease cannot
fail at it. A metric that needs variety is only asked for of rows that have more than one target.

Only the functional interface is used, which keeps nothing and never waits for another process: what is scored has been
gathered from all processes before. Everything is counted in whole numbers or in 64 bits, but for AUROC and average
precision, whose curves torchmetrics divides out in 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.torchvision_operators import let_torchvision_import

let_torchvision_import()  # which torchmetrics imports where it is installed

from torchmetrics.functional import mean_squared_error, pearson_corrcoef  # noqa: E402
from torchmetrics.functional.classification import (  # noqa: E402
    binary_auroc,
    binary_average_precision,
    binary_calibration_error,
    multiclass_stat_scores,
)

Formula = Callable[[NDArray[Any], NDArray[Any]], float]
BINS = 15
SMALLEST = float(np.finfo(np.float32).tiny)
"""A probability of 0, which is what 32 bits make of one still smaller, counts as this where its logarithm is taken."""


def accuracy(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """The share of rows whose likeliest class is the true one."""
    # Counted here: it is asked for after every epoch, and torchmetrics takes several times as long over few rows.
    return float((output.argmax(axis=1) == targets).mean())


def f1(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """Macro F1, the mean of 2 TP / (2 TP + FP + FN) over the classes that occur among the targets."""
    said = _whole(output.argmax(axis=1))  # numpy's, which takes the first of equals
    counts = multiclass_stat_scores(said, _whole(targets), output.shape[1], average=None, validate_args=False)
    right, false, _, missed, occur = counts.double().unbind(dim=1)
    return float((2 * right / (2 * right + false + missed))[occur > 0].mean())


def average_precision(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """The sum of precision times gain in recall, rank by rank: of the second of two classes, else macro one-vs-rest."""
    chosen = [1] if output.shape[1] == 2 else None
    return _one_against_rest(binary_average_precision, output, targets, classes=chosen)


def auroc(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """The share of pairs (a row of the class, one of another) ranked right, a tie counting half: macro one-vs-rest."""
    return _one_against_rest(binary_auroc, output, targets)


def ece(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """Expected calibration error: |accuracy - confidence|, the mean over 15 bins, weighted by their rows."""
    # Of confidence against being right: the form for several classes leaves open which of two equals is said.
    confidence, right = _probabilities(output.max(axis=1)), _whole(output.argmax(axis=1) == targets)
    return float(binary_calibration_error(confidence, right, n_bins=BINS, norm="l1", validate_args=False))


def log_loss(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """The mean of -log p(true class)."""
    true = output[np.arange(len(targets)), targets].astype(np.float64)
    return float(-np.log(true.clip(SMALLEST)).mean())


def mse(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """The mean of (output - target)^2."""
    return float(mean_squared_error(*_numbers(output, targets)))


def rmse(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """The root of the mean squared error."""
    return mse(output, targets) ** 0.5


def pearson(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """Pearson's r; that of an output that never varies, which tells nothing, is 0."""
    if np.ptp(output) == 0:
        return 0.0
    found = float(pearson_corrcoef(*_numbers(output, targets)))
    return found if np.isfinite(found) else 0.0


def mean_average_precision(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """Average precision of each label over the rows where it is known, the mean over labels with both answers."""
    return _over_labels(binary_average_precision, output, targets)


def mean_auroc(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """AUROC of each label over the rows where it is known, the mean over labels with both answers."""
    return _over_labels(binary_auroc, output, targets)


FORMULAS: dict[str, Formula] = {
    "accuracy": accuracy,
    "f1": f1,
    "average_precision": average_precision,
    "auroc": auroc,
    "ece": ece,
    "log_loss": log_loss,
    "rmse": rmse,
    "mse": mse,
    "pearson": pearson,
    "mean_average_precision": mean_average_precision,
    "mean_auroc": mean_auroc,
}


def _one_against_rest(
    score: Callable[..., Tensor], output: NDArray[Any], targets: NDArray[Any], *, classes: list[int] | None = None
) -> float:
    probabilities, true = _probabilities(output), _whole(targets)
    chosen = classes or np.unique(targets).tolist()
    found = [score(probabilities[:, label], (true == label).long(), validate_args=False) for label in chosen]
    return float(torch.stack(found).double().mean())


def _over_labels(score: Callable[..., Tensor], output: NDArray[Any], targets: NDArray[Any]) -> float:
    found = []
    for said, true in zip(output.T, targets.T, strict=True):
        known = ~np.isnan(true)
        if (true[known] == 1).any() and (true[known] == 0).any():
            found.append(score(_probabilities(said[known]), _whole(true[known]), validate_args=False))
    return float(torch.stack(found).double().mean())


def _probabilities(output: NDArray[Any]) -> Tensor:
    # Rounding may lift one above 1, and torchmetrics would then take all of them for logits.
    return torch.from_numpy(output.astype(np.float64).clip(0.0, 1.0))


def _numbers(output: NDArray[Any], targets: NDArray[Any]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(output[:, 0].astype(np.float64)), torch.from_numpy(targets.astype(np.float64))


def _whole(targets: NDArray[Any]) -> Tensor:
    return torch.from_numpy(targets.astype(np.int64))
