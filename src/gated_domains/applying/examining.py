"""The doctor's visit to a trained model: its layer on familiar rows, and controls with frozen gates or none."""

from __future__ import annotations

import os

import numpy as np
import torch

from gated_domains.applying.inside import GatedEstimator, GatedModel, GatedRun, TrainedOn
from gated_domains.applying.refitting import refitted_controls
from gated_domains.data.errors import DataError, explain
from gated_domains.data.labels import Reading
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.metrics import metric_for
from gated_domains.insight.doctor import Diagnosis, Finding, examine
from gated_domains.insight.doctor.cures import Origin
from gated_domains.insight.doctor.frozen_gates import frozen, frozen_gates, mean_beta
from gated_domains.insight.doctor.measures import ROWS
from gated_domains.insight.doctor.paired import compare_paired, varied
from gated_domains.insight.doctor.retrained import HELD_OUT, VALIDATION, Scored, beside_linear_head
from gated_domains.insight.sampling import drawn
from gated_domains.methods.gdu_paper import PaperGDU
from gated_domains.training.training_data import LARGE_LOOKED_AT, has_large_body

MOST_ROWS = 20_000
"""Rows of each part that the control reads; of a model with a large body, fewer."""
CONSTANT = (
    "this model was trained with gates=constant, a control: it predicts with one beta for all rows; findings about "
    "gates are of those it would have otherwise"
)
SWITCHED_OFF = "switched off by --no-control"


def examine_model(
    model: GatedModel,
    *,
    data: str | os.PathLike[str] | None = None,
    reading: Reading | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    control: bool = True,
) -> Diagnosis:
    """All that can be found out about a trained model with gates.

    A run is looked at on its source domains' validation rows, read as its recipe says, from ``data`` where they have
    moved; an estimator on ``data``, or on the rows that it keeps of its training. Where no row is at hand, the weights
    tell what they can, and a note says what was not looked at. ``control`` False trains nothing: no linear head, and
    of an estimator no frozen gates. Cures are for where the model was made.
    """
    return _examined(model, data, reading, data_dir, control=control).of(_origin(model))


def _examined(
    model: GatedModel,
    data: str | os.PathLike[str] | None,
    reading: Reading | None,
    data_dir: str | os.PathLike[str] | None,
    *,
    control: bool,
) -> Diagnosis:
    if isinstance(model, GatedRun) and reading is not None and reading != Reading():
        raise DataError(
            f"{model.name} is a run, and its recipe says how its data are read; leave options of reading out"
        )
    try:
        known = model.trained_on(data, reading=reading, data_dir=data_dir)
    except (DataError, OSError) as error:
        if data is not None:
            raise
        return _without_data(model, error, control=control)
    return _with_data(model, known, control=control)


def _with_data(model: GatedModel, known: TrainedOn, *, control: bool) -> Diagnosis:
    rows = _some(known.familiar, ROWS)
    looked = model.look(rows)
    classes = rows.targets if rows.task == "classes" else None
    found = examine(model.units, looked.view, features=looked.features, domains=rows.domains, classes=classes)
    if isinstance(model, GatedRun):
        controls, notes = _controls_of_run(model, known, control=control)
        constant = getattr(model.method.settings, "gates", "learned") == "constant"
        return found.joined_by(controls, notes=[*([CONSTANT] if constant else []), *notes])
    assert isinstance(model, GatedEstimator)
    if not control:
        return found.joined_by(notes=[f"not looked at: frozen gates, a linear head; {SWITCHED_OFF}"])
    controls, why = refitted_controls(model, _some(known.train, MOST_ROWS))
    notes = [] if why is None else [f"not looked at: frozen gates, a linear head; {why}"]
    return found.joined_by(controls, notes=notes)


def _without_data(model: GatedModel, error: Exception, *, control: bool) -> Diagnosis:
    kept = model.estimator.reference_ if isinstance(model, GatedEstimator) else None
    if kept is None or len(kept) < 2:
        return examine(model.units).joined_by(notes=[explain(error) if isinstance(error, OSError) else str(error)])
    notes = [f"looked at {len(kept):,} rows of training, which the estimator keeps"]
    if control:
        named = "name the training data: --data FILE --target COLUMN, and --domain COLUMN"
        notes.append(f"not looked at: domain or class, frozen gates, a linear head; {named}")
    return examine(model.units, torch.from_numpy(np.asarray(kept))).joined_by(notes=notes)


def _controls_of_run(model: GatedRun, known: TrainedOn, *, control: bool) -> tuple[list[Finding], list[str]]:
    """The model against itself with frozen gates and against a linear head, on validation and held-out rows.

    With notes on what was not looked at.
    """
    most = LARGE_LOOKED_AT if has_large_body(model.method) else MOST_ROWS
    data = {
        name: _some(part, most)
        for name, part in ((VALIDATION, known.validation), (HELD_OUT, known.held_out))
        if part is not None and part.targets is not None and (part.task != "labels" or varied(part.targets))
    }
    if not data:
        why = "the run has neither validation rows nor a held-out domain"
        return [], [f"not looked at: frozen gates, a linear head; {why}"]
    together = model.recipe.data.keep_together
    parts = {name: _scored(model, part, together) for name, part in data.items()}
    train = _some(known.train, most)
    assert train.targets is not None  # rows of training have targets
    seen = model.look(train)
    assert seen.predicted.beta is not None
    metric = metric_for(train.task)
    with frozen_gates(model.units, seen.predicted.beta):
        outputs = {name: model.predictor.predict(part).output for name, part in data.items()}
    compared = [
        compare_paired(name, metric, outputs[name], own.output, own.targets, together=own.together)
        for name, own in parts.items()
    ]
    found = [frozen(compared, beta=mean_beta(seen.predicted.beta))]
    if not control:
        return found, [f"not looked at: a linear head; {SWITCHED_OFF}"]
    return [*found, beside_linear_head(seen.features, train.targets, parts, task=train.task)], []


def _scored(model: GatedRun, part: NewData, together: str | None) -> Scored:
    looked = model.look(part)
    assert part.targets is not None
    whole = None if together is None else part.metadata.get(together)
    return Scored(looked.features, looked.predicted.output, part.targets, whole)


def _origin(model: GatedModel) -> Origin:
    if not isinstance(model, GatedRun):
        return "estimator"
    return "paper" if isinstance(model.method, PaperGDU) else "run"


def _some(data: NewData, most: int) -> NewData:
    """At most so many rows at random, always the same."""
    return data if len(data) <= most else data.take(drawn(np.arange(len(data)), most, 0))
