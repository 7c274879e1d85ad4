"""Regressors: targets are numbers, one or several a row."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from torch import Tensor

from gated_domains.estimators.estimator import NetworkEstimator
from gated_domains.estimators.material import row_weights
from gated_domains.layer.experts import Regression, Task

Own = TypeVar("Own", bound="NetworkRegressor")


class NetworkRegressor(RegressorMixin, NetworkEstimator):  # type: ignore[misc]
    """A network that predicts numbers, by squared error of standardised targets."""

    domain_weight: Any

    def partial_fit(
        self: Own,
        X: Any,  # noqa: N803
        y: Any,
        *,
        sample_domain: Any = None,
        sample_weight: Any = None,
    ) -> Own:
        """Learn from a part of the data.

        The first part also gives scaling, bases, sigma and kappa: let it be of all that is to be expected, and some
        hundreds of rows.
        """
        self._learn_part(X, y, sample_domain, sample_weight)
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The number predicted for every row; several columns where ``y`` had them."""
        output = self.predicted(X).output
        return output[:, 0] if self.flat_ else output

    def _reading(self) -> dict[str, Any]:
        return {"y_numeric": True, "multi_output": True}

    def _targets(self, y: NDArray[Any], classes: Any) -> tuple[Tensor, int, Task]:
        self.flat_ = y.ndim == 1
        columns = torch.from_numpy(np.array(y, np.float64)).reshape(len(y), -1)
        self.outputs_ = columns.shape[1]
        return columns, *self._asked_for()

    def _asked_for(self) -> tuple[int, Task]:
        return self.outputs_, Regression()

    def _weights(self, values: Any, targets: Tensor, sample_weight: Any, domains: Any) -> NDArray[np.float64]:
        return row_weights(values, sample_weight, domains=domains, domain_weight=self.domain_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
