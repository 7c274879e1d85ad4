"""The rows of the sources that new data are compared with: kept beside a model, made once from the data of training."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gated_domains.applying.inside import GatedEstimator, GatedModel, GatedRun, Looked
from gated_domains.data.errors import DataError, explain
from gated_domains.data.labels import Reading
from gated_domains.data.new_data import NewData
from gated_domains.data.splits import by_first_row, groups_of
from gated_domains.evaluation.scores import Predicted
from gated_domains.experiments.model import digest_of_weights
from gated_domains.insight.sampling import ALL
from gated_domains.insight.shift.reference import Reference, balanced
from gated_domains.insight.shift.report import familiarity
from gated_domains.layer.gates import residual

SHIFT = "shift.npz"


class Found(NamedTuple):
    """The reference of a model, and what a person should know about it."""

    reference: Reference
    notes: tuple[str, ...] = ()


def reference_of(
    model: GatedModel,
    training: str | os.PathLike[str] | None = None,
    *,
    reading: Reading | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> Found:
    """What is kept beside a model; else made from the data of training, which ``training`` names where they moved."""
    if isinstance(model, GatedRun):
        return _of_run(model, training, data_dir)
    assert isinstance(model, GatedEstimator)
    kept = model.estimator.reference_
    if len(kept) > 1:
        return Found(_of_kept_rows(model, kept))
    if training is None:
        raise DataError(
            f"{model.name} holds no rows of training to compare new data with: it was fitted with reference_rows="
            f"{len(kept)}; name the file that it was fitted on (--data FILE --target COLUMN), or fit and save it again"
        )
    trained = model.trained_on(training, reading=reading, data_dir=data_dir)
    return Found(_looked_at(model, trained.train, trained_on=True))


def _of_run(model: GatedRun, training: str | os.PathLike[str] | None, data_dir: str | os.PathLike[str] | None) -> Found:
    path, weights = model.folder.path / SHIFT, digest_of_weights(model.folder.path)
    kept = Reference.read(path, of=weights)
    if kept is not None:
        return Found(kept)
    try:
        trained = model.trained_on(training, data_dir=data_dir)
    except (DataError, OSError) as error:
        said = explain(error) if isinstance(error, OSError) else str(error)
        raise DataError(
            f"{model.name} has kept no rows of training yet, and they cannot be read: {said} (--data names where they "
            "lie now)"
        ) from error
    made = _looked_at(model, trained.familiar, trained_on=trained.unseen is None)
    try:
        made.write(path, of=weights)
    except OSError as error:  # somebody else's folder, perhaps: what was found stands
        return Found(made, (f"rows of training are not kept for the next time: {explain(error)}",))
    return Found(made)


def _looked_at(model: GatedModel, data: NewData, *, trained_on: bool) -> Reference:
    domains = np.zeros(len(data), np.int64) if data.domains is None else data.domains
    column = model.schema.reading.keep_together
    groups = None if column is None or column not in data.metadata else by_first_row(groups_of(data, column))
    rows = balanced(domains, width=model.units.gating_features, groups=groups)
    some, names = data.take(rows), data.domain_names if data.domains is not None else (ALL,)
    looked = model.look(some)
    confidence, correct = confidence_of(some, looked)
    return _reference(
        model,
        looked.view.float().cpu().numpy(),
        looked.predicted,
        domains=domains[rows],
        names=names,
        confidence=confidence,
        correct=np.empty(0, np.bool_) if correct is None else correct,
        trained_on=trained_on,
        groups=np.empty(0, np.int64) if groups is None else groups[rows],
    )


def confidence_of(data: NewData, looked: Looked) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
    """The probability of the class predicted, and whether that is right where it is known; nothing of other tasks."""
    if data.class_names is None:
        return np.empty(0, np.float32), None
    output = looked.predicted.output
    right = None if data.targets is None else np.asarray(output.argmax(1) == data.targets)
    return np.asarray(output.max(1), np.float32), right


@torch.no_grad()
def _of_kept_rows(model: GatedEstimator, kept: NDArray[np.float32]) -> Reference:
    units, estimator = model.units, model.estimator
    weighed = units.weigh(torch.from_numpy(kept).to(units.bases))
    left = residual(weighed.products, units.gate.explaining(weighed.products))
    said = Predicted(output=np.empty((len(kept), 0)), beta=weighed.beta.cpu().numpy(), residual=left.cpu().numpy())
    names, domains = np.array([ALL]), np.zeros(len(kept), np.int64)
    if estimator.reference_domains_ is not None:
        names, domains = np.unique(estimator.reference_domains_, return_inverse=True)
    return _reference(
        model,
        kept,
        said,
        domains=domains,
        names=tuple(map(str, names)),
        confidence=np.empty(0, np.float32),
        correct=np.empty(0, np.bool_),
        trained_on=True,
        groups=np.empty(0, np.int64),
    )


def _reference(
    model: GatedModel,
    view: NDArray[np.float32],
    said: Predicted,
    *,
    domains: NDArray[np.int64],
    names: tuple[str, ...],
    confidence: NDArray[np.float32],
    correct: NDArray[np.bool_],
    trained_on: bool,
    groups: NDArray[np.int64],
) -> Reference:
    assert said.beta is not None  # gates leave both
    assert said.residual is not None
    left = said.residual.astype(np.float32)
    return Reference(
        view=view,
        domains=domains.astype(np.int64),
        domain_names=names,
        residual=left,
        coverage=familiarity(model.units, left, left).astype(np.float32),
        beta=said.beta[:, model.units.active.cpu().numpy()].astype(np.float32),
        confidence=confidence,
        correct=correct,
        trained_on=trained_on,
        groups=groups,
    )
