"""Classifiers: targets are names or numbers of classes."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from gated_domains.estimators.estimator import NetworkEstimator
from gated_domains.estimators.material import row_weights
from gated_domains.estimators.network import TwoClasses
from gated_domains.layer.experts import MultiClass, Task

Own = TypeVar("Own", bound="NetworkClassifier")


class NetworkClassifier(ClassifierMixin, NetworkEstimator):  # type: ignore[misc]
    """A network that tells classes apart. Two classes share one logit, as in logistic regression."""

    classes_: NDArray[Any]
    class_weight: Any
    domain_weight: Any

    def partial_fit(
        self: Own,
        X: Any,  # noqa: N803
        y: Any,
        *,
        classes: Any = None,
        sample_domain: Any = None,
        sample_weight: Any = None,
    ) -> Own:
        """Learn from a part of the data. The first call names all ``classes``.

        The first part also gives scaling, bases, sigma and kappa: let it be of all that is to be expected, and some
        hundreds of rows.
        """
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; give partial_fit the weights themselves, "
                "as a dict"
            )
        first = not hasattr(self, "network_")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit: all that there will be")
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} is not what the first call to partial_fit named: {self.classes_}")
        self._learn_part(X, y, sample_domain, sample_weight, classes=np.unique(classes) if first else self.classes_)
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most likely class of every row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The probability of every class, in the order of ``classes_``."""
        return self.predicted(X).output

    def predict_log_proba(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Its logarithm, which stays finite where the probability itself is rounded to 0."""
        logits = self.decision_function(X)
        both = np.stack([np.zeros_like(logits), logits], axis=1) if logits.ndim == 1 else logits
        return np.asarray(log_softmax(both, axis=1))

    def decision_function(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The logits: one number a row for two classes, above 0 for the second; else one a class."""
        logits = self._asked(self._rows(X), lambda x: {"logits": self.network_.logits(x)})["logits"]
        return logits[:, 0] if logits.shape[1] == 1 else logits

    def _targets(self, y: NDArray[Any], classes: Any) -> tuple[Tensor, int, Task]:
        check_classification_targets(y)
        self.classes_ = np.unique(y) if classes is None else classes
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs rows of at least 2 classes, and there is one class only: "
                f"{self.classes_[0]!r}"
            )
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y holds classes that were not named at first: {unknown}; there are {self.classes_}")
        return torch.from_numpy(np.searchsorted(self.classes_, y).astype(np.int64)), *self._asked_for()

    def _asked_for(self) -> tuple[int, Task]:
        count = len(self.classes_)
        return (1, TwoClasses()) if count == 2 else (count, MultiClass())

    def _weights(self, values: Any, targets: Tensor, sample_weight: Any, domains: Any) -> NDArray[np.float64]:
        return row_weights(
            values,
            sample_weight,
            classes=(self.classes_, targets.numpy()),
            class_weight=self.class_weight,
            domains=domains,
            domain_weight=self.domain_weight,
        )
