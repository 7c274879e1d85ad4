"""Is a new site like those of training? All that a trained gated model can say of new data together."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from gated_domains.applying.inside import GatedModel, GatedRun
from gated_domains.applying.shift_accuracy import Make, foresight_of
from gated_domains.applying.shift_reference import confidence_of, reference_of
from gated_domains.data.errors import DataError, first_line, listing
from gated_domains.data.like import read_like
from gated_domains.data.new_data import NewData
from gated_domains.data.readers.reading import Reading
from gated_domains.data.schema import Schema
from gated_domains.insight.sampling import drawn
from gated_domains.insight.shift.report import NewSite, site_shift
from gated_domains.reports.site_shift import SiteShift
from gated_domains.training.engine import Hardware
from gated_domains.training.material import has_large_body

ROWS, ROWS_OF_LARGE = 5_000, 1_000
"""Rows of a new site that are looked at, by chance, where there are more; the latter by a large body."""


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
    seed: int = 0,
) -> SiteShift:
    """Hold new data against what a model was trained on, of which some rows are kept beside it.

    ``training`` names the data of training where they are needed and have moved; ``calibrate`` measures how well
    accuracy can be foreseen, where nobody has; ``make`` makes the runs for that.
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
    some = data.take(drawn(np.arange(len(data)), most, seed)) if len(data) > most else data
    looked = model.look(some)
    notes = [*data.notes, *_notes(model, data, len(some)), *found.notes, *foresight.notes]
    if found.reference.trained_on:
        notes.append("rows of the sources are some that it was trained on: their novelty is a little too low")
    return site_shift(
        model.units,
        found.reference,
        NewSite(data.name, looked.view, looked.predicted, confidence_of(some, looked)[1], len(data)),
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
    """New data with their targets where these can be read, and without where not; a target that is named must be."""
    reading = reading or Reading()
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


def _most(model: GatedModel) -> int:
    return ROWS_OF_LARGE if isinstance(model, GatedRun) and has_large_body(model.method) else ROWS


def _notes(model: GatedModel, data: NewData, looked_at: int) -> list[str]:
    notes = []
    if looked_at < len(data):
        notes.append(f"{looked_at:,} of {len(data):,} rows were looked at, drawn by chance")
    names = [] if data.domains is None else [data.domain_names[place] for place in np.unique(data.domains)]
    if len(names) > 1:
        notes.append(f"rows of {len(names)} domains ({listing(names, 5)}) are taken for one site; give each by itself")
    known = [name for name in names if name in model.sources]
    if known:
        notes.append(f"{listing(known, 5)}: the model was trained on a domain of this name")
    return notes
