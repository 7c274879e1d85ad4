"""Estimators without gates, trained in the same way: the controls that a gain must be measured against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from gated_domains.estimators.classification import NetworkClassifier
from gated_domains.estimators.estimator import NetworkEstimator, keep
from gated_domains.estimators.network import PlainNetwork
from gated_domains.estimators.regression import NetworkRegressor
from gated_domains.estimators.scaling import Scaling
from gated_domains.layer.experts import Task


class Plain(NetworkEstimator):
    """What linear estimators have in common."""

    network_: PlainNetwork

    def _build(
        self,
        inputs: Scaling,
        outputs: Scaling,
        task: Task,
        *,
        look: Callable[[], Tensor],
        dtype: torch.dtype,
        seed: int,
    ) -> PlainNetwork:
        network = self._empty(inputs, outputs, task, num_bases=0)
        network.linear.to(inputs.mean.device, dtype)
        return network

    def _empty(self, inputs: Scaling, outputs: Scaling, task: Task, *, num_bases: int) -> PlainNetwork:
        return PlainNetwork(inputs, outputs, task, alpha=self.alpha)


class ERMClassifier(Plain, NetworkClassifier):
    """Multinomial logistic regression by the solvers of ``GDUClassifier``: the honest control beside it.

    Minimised is the mean loss plus ``alpha / 2 ||W||^2``; ``alpha`` is ``1 / (n C)`` of scikit-learn's
    ``LogisticRegression``. For the parameters see ``GDUClassifier``.
    """

    def __init__(
        self,
        *,
        alpha: float = 1e-2,
        standardize: bool = True,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        domain_weight: Literal["balanced"] | None = None,
        solver: Literal["auto", "lbfgs", "adam"] = "auto",
        max_iter: int = 1000,
        epochs: int = 20,
        tol: float = 1e-4,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())


class ERMRegressor(Plain, NetworkRegressor):
    """Ridge regression by the solvers of ``GDURegressor``: the control beside it.

    Minimised is the mean squared error of standardised targets plus ``alpha / 2 ||W||^2``. For the parameters see
    ``GDUClassifier``.
    """

    def __init__(
        self,
        *,
        alpha: float = 1e-2,
        standardize: bool = True,
        domain_weight: Literal["balanced"] | None = None,
        solver: Literal["auto", "lbfgs", "adam"] = "auto",
        max_iter: int = 1000,
        epochs: int = 20,
        tol: float = 1e-4,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        keep(self, locals())
