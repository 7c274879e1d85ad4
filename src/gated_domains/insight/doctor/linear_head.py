"""A linear head on given features, at the optimum: the control that gates must be measured against.

Minimised is ``mean_i loss_i + ridge / 2 ||W||^2`` on features of mean 0 and deviation 1, the bias let be: cross-entropy
for classes, squared error of standardised targets for a number, the logistic loss of every known answer for labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from gated_domains.evaluation.metrics import Task

RIDGES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
"""Those that are tried, from the strongest on: each starts where the one before it ended."""
USUAL_RIDGE = 1e-2
"""Where there are no rows to choose by: what the estimators take."""
_ITERATIONS, _GRADIENT, _CORRECTIONS = 300, 1e-5, 20


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Weights on standardised features, and how its numbers are read."""

    task: Task
    weight: Float[Tensor, "outputs features"]
    bias: Float[Tensor, " outputs"]
    centre: Float[Tensor, " features"]
    scale: Float[Tensor, " features"]
    of_targets: tuple[float, float]
    """Mean and deviation of a number that is predicted."""
    ridge: float

    @torch.no_grad()
    def output(self, features: Tensor) -> NDArray[np.float64]:
        """Probabilities, or numbers, as a model predicts them: (rows, outputs)."""
        raw = self.raw(features)
        if self.task == "classes":
            raw = raw.softmax(-1)
        elif self.task == "labels":
            raw = raw.sigmoid()
        else:
            raw = raw * self.of_targets[1] + self.of_targets[0]
        return raw.cpu().numpy()

    def raw(self, features: Tensor) -> Tensor:
        """Logits, or standardised numbers."""
        return _standard(features, self.centre, self.scale) @ self.weight.T + self.bias

    @torch.no_grad()
    def loss(self, features: Tensor, targets: NDArray[Any]) -> float:
        """The mean loss on other rows."""
        return float(_loss(self.task, self.raw(features), _answers(self.task, targets, features, self.of_targets)))


def fit_linear_head(
    features: Float[Tensor, "rows features"],
    targets: NDArray[Any],
    *,
    task: Task,
    outputs: int,
    ridge: float = USUAL_RIDGE,
    start: LinearHead | None = None,
) -> LinearHead:
    """The optimum, by L-BFGS in float64; the objective is convex, and ``start`` saves time alone."""
    centre, scale = _moments(features)
    standard = _standard(features, centre, scale)
    numbers = targets if task == "number" else np.zeros(1)
    of_targets = float(numbers.mean()), float(numbers.std()) or 1.0
    answers = _answers(task, targets, features, of_targets)
    cut = outputs * standard.shape[1]

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        both = torch.from_numpy(flat.copy()).to(standard.device).requires_grad_()
        weight, bias = both[:cut].view(outputs, -1), both[cut:]
        loss = _loss(task, standard @ weight.T + bias, answers) + ridge / 2 * weight.square().sum()
        (gradient,) = torch.autograd.grad(loss, both)
        return float(loss.detach()), gradient.cpu().numpy()

    first = np.zeros(cut + outputs) if start is None else np.concatenate([_flat(start.weight), _flat(start.bias)])
    with torch.enable_grad():
        done = minimize(
            value_and_gradient,
            first,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _ITERATIONS, "gtol": _GRADIENT, "ftol": 0.0, "maxcor": _CORRECTIONS},
        )
    found = torch.from_numpy(done.x).to(standard.device)
    return LinearHead(task, found[:cut].view(outputs, -1), found[cut:], centre, scale, of_targets, ridge)


def fit_chosen(
    features: Float[Tensor, "rows features"],
    targets: NDArray[Any],
    *,
    task: Task,
    outputs: int,
    validation: tuple[Tensor, NDArray[Any]] | None,
    ridges: Sequence[float] = RIDGES,
    progress: Callable[[int], None] = lambda steps: None,
) -> LinearHead:
    """The head whose ridge has the lowest loss on validation rows; the usual ridge where there are none."""
    if validation is None:
        return fit_linear_head(features, targets, task=task, outputs=outputs)
    heads: list[LinearHead] = []
    for ridge in ridges:
        last = heads[-1] if heads else None
        heads.append(fit_linear_head(features, targets, task=task, outputs=outputs, ridge=ridge, start=last))
        progress(1)
    return min(heads, key=lambda head: head.loss(*validation))


def _loss(task: Task, raw: Tensor, answers: Tensor) -> Tensor:
    if task == "classes":
        return F.cross_entropy(raw, answers)
    if task == "number":
        return F.mse_loss(raw, answers)
    known = ~answers.isnan()
    terms = F.binary_cross_entropy_with_logits(raw, answers.nan_to_num(), reduction="none")
    return (terms * known).sum() / known.sum().clamp_min(1)


def _answers(task: Task, targets: NDArray[Any], features: Tensor, of_targets: tuple[float, float]) -> Tensor:
    """Targets as the loss takes them."""
    if task == "classes":
        return torch.from_numpy(np.asarray(targets, np.int64)).to(features.device)
    numbers = np.asarray(targets, np.float64)
    if task == "number":
        numbers = ((numbers - of_targets[0]) / of_targets[1]).reshape(-1, 1)
    return torch.from_numpy(numbers).to(features.device)


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    exact = features.double()
    scale = exact.std(0, correction=0)
    # A column that never varies tells nothing; rounding must not make a large number of it.
    constant = scale <= 1e-12 * exact.abs().amax(0)
    return exact.mean(0), torch.where(constant, 1.0, scale)


def _standard(features: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    return (features.double() - centre) / scale


def _flat(values: Tensor) -> NDArray[np.float64]:
    return values.detach().cpu().numpy().ravel()
