"""Is a new site like those of training? All that a trained gated model can say of new data together."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gated_domains.applying.inside import GatedModel, GatedRun
from gated_domains.applying.shift_accuracy import Make, foresight_of
from gated_domains.applying.shift_reference import confidence_of, reference_of
from gated_domains.data.dataset import Schema
from gated_domains.data.encoding import TableEncoding
from gated_domains.data.errors import DataError, first_line, listing
from gated_domains.data.labels import Reading
from gated_domains.data.like import read_like
from gated_domains.data.new_data import NewData
from gated_domains.data.splits import by_first_row, groups_of
from gated_domains.insight.sampling import drawn, whole_groups
from gated_domains.insight.shift.report import NewSite, site_shift
from gated_domains.runs.site_shift import SiteShift
from gated_domains.training.engine import Hardware
from gated_domains.training.training_data import has_large_body

ROWS, ROWS_OF_LARGE = 5_000, 1_000
"""Rows of a new site that are looked at, at random, where there are more; the latter by a large body."""


def shift_of(
    model: GatedModel,
    data: NewData,
    *,
    training: str | os.PathLike[str] | None = None,
    calibrate: bool = False,
    reading: Reading | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    hardware: Hardware | None = None,
    make: Make | None = None,
    rows: int | None = None,
    keep_together: str | None = None,
    seed: int = 0,
) -> SiteShift:
    """Compare new data with what a model was trained on, of which some rows are kept beside it.

    ``training`` names the data of training where they are needed and have moved; ``calibrate`` measures how well
    accuracy can be estimated, where that was not done; ``make`` makes the runs for that. ``keep_together`` names a
    metadata column (a patient) whose groups of rows stay whole in every permutation and bootstrap; by default that of
    training, where the data have it.
    """
    if len(data) < 2:
        raise DataError(f"{data.name}: a site is judged by its rows together, and there is 1; give at least 2")
    found = reference_of(model, training, reading=reading, data_dir=data_dir)
    foresight = foresight_of(
        model,
        training,
        calibrate=calibrate,
        reading=reading,
        data_dir=data_dir,
        hardware=hardware,
        make=make,
    )
    most = _most(model) if rows is None else rows
    if most < 2:
        raise DataError(f"a site is judged by its rows together, and {most} are to be looked at; ask for at least 2")
    groups = _groups(model, data, keep_together)
    taken = (
        drawn(np.arange(len(data)), most, seed)
        if groups is None
        else whole_groups(groups, most, np.random.default_rng(seed))
    )
    some = data.take(taken) if len(taken) < len(data) else data
    looked = model.look(some)
    notes = [*data.notes, *_notes(model, data, len(some)), *found.notes, *foresight.notes]
    if found.reference.trained_on:
        notes.append("rows of the sources are some that it was trained on: their novelty is a little too low")
    if groups is not None and not len(found.reference.groups):
        notes.append("the model was trained without --keep-together: rows of the sources are taken as independent")
    return site_shift(
        model.units,
        found.reference,
        NewSite(
            data.name,
            looked.view,
            looked.predicted,
            correct=confidence_of(some, looked)[1],
            all_rows=len(data),
            groups=None if groups is None else groups[taken],
            far_columns=_far_columns(model, some),
        ),
        model=model.name,
        label=model.label,
        calibration=foresight.calibration,
        no_accuracy=foresight.why_not,
        notes=notes,
        seed=seed,
    )


def read_site(
    what: str, schema: Schema, *, reading: Reading | None = None, data_dir: str | os.PathLike[str] | None = None
) -> NewData:
    """New data with their targets where these can be read, and without where not; a target that is named must be.

    The column whose groups training kept together is kept beside them, where they have it.
    """
    reading, together = reading or Reading(), schema.reading.keep_together
    if reading.keep_together is not None or together is None:
        return _read(what, schema, reading, data_dir)
    try:
        return _read(what, schema, replace(reading, keep_together=together), data_dir)
    except DataError as error:
        if "(--keep-together)" not in str(error):
            raise
        data = _read(what, schema, reading, data_dir)
        told = f"there is no column {together!r}, whose groups training kept together: rows are taken as independent"
        return replace(data, notes=(*data.notes, told))


def _read(what: str, schema: Schema, reading: Reading, data_dir: str | os.PathLike[str] | None) -> NewData:
    if schema.label_names is not None:
        return read_like(what, schema, targets=False, reading=reading, data_dir=data_dir)
    try:
        return read_like(what, schema, targets=True, reading=reading, data_dir=data_dir)
    except DataError as error:
        if reading.target is not None:
            raise
        data = read_like(what, schema, targets=False, reading=reading, data_dir=data_dir)
        if "there is no column" in str(error):  # as of most new sites
            return data
        return replace(data, notes=(*data.notes, f"the truth is not known: {first_line(error)}"))


def _groups(model: GatedModel, data: NewData, column: str | None) -> NDArray[np.int64] | None:
    """The number of the group that every row belongs to; None where each is one of its own."""
    trained = model.schema.reading.keep_together
    if column is None and trained not in data.metadata:
        return None
    return by_first_row(groups_of(data, column or str(trained)))


def _far_columns(model: GatedModel, data: NewData) -> tuple[str, ...]:
    encoding = model.schema.encoding
    return encoding.far_columns(data.inputs) if isinstance(encoding, TableEncoding) else ()


def _most(model: GatedModel) -> int:
    return ROWS_OF_LARGE if isinstance(model, GatedRun) and has_large_body(model.method) else ROWS


def _notes(model: GatedModel, data: NewData, looked_at: int) -> list[str]:
    notes = []
    if looked_at < len(data):
        notes.append(f"{looked_at:,} of {len(data):,} rows were looked at, drawn at random")
    names = [] if data.domains is None else [data.domain_names[place] for place in np.unique(data.domains)]
    if len(names) > 1:
        notes.append(f"rows of {len(names)} domains ({listing(names, 5)}) are taken for one site; give each by itself")
    known = [name for name in names if name in model.sources]
    if known:
        notes.append(f"{listing(known, 5)}: the model was trained on a domain of this name")
    return notes
