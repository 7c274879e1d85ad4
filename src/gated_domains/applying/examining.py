"""The doctor's visit to a trained model: its layer on familiar rows, and a retrained linear head beside it."""

from __future__ import annotations

import os

import numpy as np
import torch

from gated_domains.applying.inside import GatedEstimator, GatedModel, GatedRun, TrainedOn
from gated_domains.applying.refitting import beside_refitted
from gated_domains.data.errors import DataError, explain
from gated_domains.data.new_data import NewData
from gated_domains.data.readers.reading import Reading
from gated_domains.insight.doctor import Diagnosis, Finding, examine
from gated_domains.insight.doctor.control import varied
from gated_domains.insight.doctor.measures import ROWS
from gated_domains.insight.doctor.retrained import HELD_OUT, VALIDATION, Scored, beside_linear_head
from gated_domains.insight.sampling import drawn
from gated_domains.methods.gdu import PaperGDU
from gated_domains.training.material import LARGE_LOOKED_AT, has_large_body

MOST_ROWS = 20_000
"""Rows of each part that the control reads; of a model with a large body, fewer."""
BY_THE_LETTER = "gdu-paper takes bases and kappa from no data, as the paper does; --method gdu fits them to the data"
NO_CONTROL = "not looked at: a linear head beside it; "


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
    tell what they can, and a note says what was not looked at. ``control`` False leaves the linear head out.
    """
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
    looked = model.look(_some(known.familiar, ROWS))
    found = examine(model.units, looked.view, features=looked.features)
    if found.level == "broken" and isinstance(model, GatedRun) and isinstance(model.method, PaperGDU):
        found = found.joined_by(notes=[BY_THE_LETTER])
    if not control:
        return found.joined_by(notes=[f"{NO_CONTROL}it was switched off"])
    if isinstance(model, GatedEstimator):
        beside, why = beside_refitted(model, _some(known.train, MOST_ROWS))
    else:
        beside, why = _beside_retrained(model, known)
    return found.joined_by([beside] if beside else [], notes=[f"{NO_CONTROL}{why}"] if why else [])


def _without_data(model: GatedModel, error: Exception, *, control: bool) -> Diagnosis:
    kept = getattr(model.estimator, "reference_", None) if isinstance(model, GatedEstimator) else None
    if kept is None or len(kept) < 2:
        return examine(model.units).joined_by(notes=[explain(error) if isinstance(error, OSError) else str(error)])
    notes = [f"looked at {len(kept):,} rows of training, which the estimator keeps"]
    if control:
        notes.append(f"{NO_CONTROL}name the data of training: --data FILE --target COLUMN, and --domain COLUMN")
    return examine(model.units, torch.from_numpy(np.asarray(kept))).joined_by(notes=notes)


def _beside_retrained(model: GatedModel, known: TrainedOn) -> tuple[Finding | None, str | None]:
    """A linear head on the features of the training rows, beside the model on validation and held-out rows."""
    most = LARGE_LOOKED_AT if isinstance(model, GatedRun) and has_large_body(model.method) else MOST_ROWS
    parts: dict[str, Scored] = {}
    for name, part in ((VALIDATION, known.validation), (HELD_OUT, known.held_out)):
        if part is not None and part.targets is not None and (part.task != "labels" or varied(part.targets)):
            parts[name] = _scored(model, _some(part, most))
    if not parts:
        return None, "the run has neither validation rows nor a domain held out"
    train = _some(known.train, most)
    assert train.targets is not None  # rows of training have targets
    return beside_linear_head(model.look(train).features, train.targets, parts, task=train.task), None


def _scored(model: GatedModel, part: NewData) -> Scored:
    looked = model.look(part)
    assert part.targets is not None
    return Scored(looked.features, looked.predicted.output, part.targets)


def _some(data: NewData, most: int) -> NewData:
    """So many of the rows, by chance but always the same."""
    return data if len(data) <= most else data.take(drawn(np.arange(len(data)), most, 0))
