"""An estimator, the same with frozen gates and a linear one, refitted without some of the rows and scored on those."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from gated_domains.applying.inside import GatedEstimator
from gated_domains.common.validation import findings_heard
from gated_domains.data.new_data import NewData
from gated_domains.data.progress import progress_if
from gated_domains.estimators import ERMClassifier, ERMRegressor
from gated_domains.estimators.classification import NetworkClassifier
from gated_domains.estimators.estimator import NetworkEstimator
from gated_domains.evaluation.metrics import metric_for
from gated_domains.insight.doctor.findings import Finding
from gated_domains.insight.doctor.frozen_gates import frozen, frozen_gates
from gated_domains.insight.doctor.paired import compare_paired
from gated_domains.insight.doctor.retrained import linear_head

FOLDS, MOST_PARTS = 5, 10
_LONG = 20_000  # cells of a table from which on a person is told that it takes a while


def refitted_controls(model: GatedEstimator, data: NewData) -> tuple[list[Finding], str | None]:
    """The findings *frozen gates* and *linear head*, or none and why.

    Each known domain is left out in turn (ten groups of whole domains where there are more), or a fifth of the rows
    where domains are not known. A clone of the estimator and an ``ERMClassifier`` (``ERMRegressor``) of its settings
    learn from the rest; gates are frozen at their mean over it. All rows left out are scored together; rows are redrawn
    within domains.
    """
    estimator = model.estimator
    if getattr(estimator, "outputs_", 1) > 1 or data.targets is None:
        return [], "it predicts several numbers a row, and a file has one target"
    x, y = model.table(data), _named(estimator, data)
    parts = _left_out(data)
    said = np.zeros((3, len(y), 1 if _of_numbers(estimator) else len(_classes(estimator))))
    asked = np.zeros(len(y), bool)
    with _quietly(), progress_if(len(y) * x.shape[1] > _LONG, "refitting both", len(np.unique(parts))) as advance:
        for part in np.unique(parts):
            out = parts == part
            if isinstance(estimator, NetworkClassifier) and len(np.unique(y[~out])) < 2:
                continue  # what is left is of one class, and nothing can be learned from it
            domains = None if data.domains is None else data.domains[~out]
            gated, linear = (
                kind.fit(x[~out], y[~out], sample_domain=domains) for kind in (_again(estimator), _linear(estimator))
            )
            said[0, out], said[1, out] = (_output(fitted, x[out], estimator) for fitted in (gated, linear))
            with frozen_gates(gated.network_.units, gated.gates(x[~out])):
                said[2, out] = _output(gated, x[out], estimator)
            asked |= out
            advance(1)
    if not asked.any():
        return [], "without any of its domains there is one class only"
    groups = parts if data.domains is None else data.domains
    name = "left-out rows" if data.domains is None else "left-out domains"
    against_linear, against_plain = (
        compare_paired(
            name,
            metric_for(data.task),
            said[first, asked],
            said[second, asked],
            data.targets[asked],
            within=groups[asked],
        )
        for first, second in ((0, 1), (2, 0))
    )
    how = f"both refitted {len(np.unique(parts[asked]))} times, alpha {estimator.alpha:g}"
    return [
        frozen([against_plain]),
        linear_head([against_linear], how=how, about={"alpha": estimator.alpha}),
    ], None


def _left_out(data: NewData) -> NDArray[np.int64]:
    """The part that each row belongs to; parts are left out in turn."""
    if data.domains is None or len(np.unique(data.domains)) < 2:
        return np.random.default_rng(0).permutation(len(data)) % FOLDS
    names, place, counts = np.unique(data.domains, return_inverse=True, return_counts=True)
    # Large ones first, one to each group in turn, so that groups are of about one size.
    order = np.empty(len(names), np.int64)
    order[np.argsort(-counts, kind="stable")] = np.arange(len(names))
    return order[place] % MOST_PARTS


def _again(estimator: NetworkEstimator) -> Any:
    """A clone, drawn by chance but always the same."""
    fresh = clone(estimator)
    return fresh.set_params(random_state=0) if fresh.random_state is None else fresh


def _linear(estimator: NetworkEstimator) -> Any:
    """The linear estimator of the same settings."""
    kind = ERMClassifier if isinstance(estimator, NetworkClassifier) else ERMRegressor
    given = _again(estimator).get_params(deep=False)
    return kind(**{name: given[name] for name in kind().get_params(deep=False)})


def _of_numbers(estimator: NetworkEstimator) -> bool:
    return not isinstance(estimator, NetworkClassifier)


def _classes(estimator: NetworkEstimator) -> NDArray[Any]:
    assert isinstance(estimator, NetworkClassifier)
    return estimator.classes_


def _named(estimator: NetworkEstimator, data: NewData) -> NDArray[Any]:
    """Targets as the estimator was given them: class weights may go by their names."""
    targets = np.asarray(data.targets)
    return targets if _of_numbers(estimator) else _classes(estimator)[targets]


def _output(fitted: Any, rows: Any, estimator: NetworkEstimator) -> NDArray[np.float64]:
    """What a fitted one says, (rows, outputs), with a column for every class there is."""
    if _of_numbers(estimator):
        return np.asarray(fitted.predict(rows), np.float64).reshape(-1, 1)
    full = np.zeros((len(rows), len(_classes(estimator))))
    full[:, np.searchsorted(_classes(estimator), fitted.classes_)] = fitted.predict_proba(rows)
    return full


@contextmanager
def _quietly() -> Iterator[None]:
    """Without complaints about models that nobody keeps."""
    with findings_heard(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
