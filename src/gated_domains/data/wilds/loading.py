"""One of the eight as a data set with domains, with the division, metric and groups that WILDS publishes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Inputs, Rows
from gated_domains.data.labels import Reading
from gated_domains.data.published import IN_DISTRIBUTION, TEST, TRAIN, VALIDATION, Published
from gated_domains.data.wilds import describing, places
from gated_domains.data.wilds.bands import BandFiles
from gated_domains.data.wilds.images import WildsImages
from gated_domains.data.wilds.molecules import PART_NAMES, read_molecules
from gated_domains.data.wilds.package import open_wilds
from gated_domains.data.wilds.sample_files import SampleFiles
from gated_domains.data.wilds.sets import PREFIX, WildsSet, wilds_set
from gated_domains.data.wilds.texts import texts_of

PARTS = (TRAIN, VALIDATION, TEST, *IN_DISTRIBUTION)
ROW = "wilds_row"
"""The metadata column with a row's number in the ``wilds`` package's own data set."""


def load_wilds(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    reading: Reading | None = None,
    at_once: bool = True,
) -> DomainDataset:
    """``camelyon17`` or ``wilds/camelyon17``, ``poverty:B``: read from ``<data dir>/wilds``, nothing is fetched.

    Rows that are in none of the published parts (FMoW has many: training images from the years that are tested) are
    left out; ``metadata["wilds_row"]`` is a row's number among all. With ``at_once`` the samples of a small set, a
    miniature, are read now, so that training does not wait for them.
    """
    chosen, fold = wilds_set(name)
    reading = reading or Reading()
    reading.refuse_all_but(*chosen.options, what=f"the data set {PREFIX + chosen.name!r}")
    folder = places.located(chosen, data_dir)
    if chosen.kind == "graphs":
        return _molecules(chosen, folder)
    opened = open_wilds(chosen, folder, fold=fold)
    parts, part_names = _parts(opened)
    rows = np.flatnonzero(parts >= 0)
    fields = {field: number for number, field in enumerate(opened.metadata_fields)}
    columns = Columns(opened.metadata_array.numpy()[rows], fields, opened.metadata_map or {})
    inputs = _inputs(chosen, opened, folder, rows, reading)
    if at_once and isinstance(inputs, WildsImages | BandFiles):
        inputs = inputs.at_hand()
    targets = opened.y_array.numpy()[rows]
    domains, domain_names = describing.domains(chosen, columns)
    published = Published(
        name=_name(chosen, fold),
        parts=parts[rows],
        part_names=part_names,
        metric=chosen.metric,
        statistic=chosen.statistic,
        groupings=describing.groupings(chosen, columns),
        runs=chosen.runs,
    )
    return DomainDataset(
        name=_name(chosen, fold),
        inputs=inputs,
        targets=targets.astype(np.float32).reshape(-1) if chosen.kind == "bands" else targets.astype(np.int64),
        class_names=describing.class_names(chosen, folder, opened),
        domains=domains,
        domain_names=domain_names,
        metadata={ROW: rows, **describing.metadata(chosen, columns)},
        published=published,
        notes=_notes(folder),
    )


@dataclass(frozen=True, eq=False)
class Columns:
    """The metadata of WILDS: an array of numbers, and what they stand for where that is known."""

    values: NDArray[Any]
    places: dict[str, int]
    meanings: Any

    def __getitem__(self, field: str) -> NDArray[np.int64]:
        return self.values[:, self.places[field]].astype(np.int64)

    def named(self, field: str) -> NDArray[Any]:
        """A column in words."""
        return np.array([str(name) for name in self.meanings[field]])[self[field]]


def _name(chosen: WildsSet, fold: str | None) -> str:
    return PREFIX + chosen.name + (f":{fold}" if fold else "")


def _parts(opened: Any) -> tuple[NDArray[np.int8], tuple[str, ...]]:
    """The part of every row, -1 for one of none; parts go by our order, whatever their numbers there."""
    names = tuple(part for part in PARTS if part in opened.split_dict)
    numbers = np.asarray(opened.split_array).astype(np.int64)
    parts = np.full(len(numbers), -1, np.int8)
    for place, part in enumerate(names):
        parts[numbers == opened.split_dict[part]] = place
    return parts, names


def _inputs(chosen: WildsSet, opened: Any, folder: Path, rows: Rows, reading: Reading) -> Inputs:
    if chosen.kind == "text":
        texts = opened._input_array if chosen.name == "amazon" else opened._text_array
        return texts_of(chosen, (texts[row] for row in rows), reading)
    return sample_files(chosen, opened, folder, rows, size=reading.image_size)


def sample_files(chosen: WildsSet, opened: Any, folder: Path, rows: Rows, *, size: int | None) -> SampleFiles:
    """The files of these rows, by the names that the package gives them."""
    name, usual = PREFIX + chosen.name, chosen.image_size
    assert usual is not None
    wanted = usual if size is None else size
    if chosen.name == "poverty":
        paths = [f"images/landsat_poverty_img_{row}.npz" for row in rows]
        bands, side = describing.shape_of_bands(folder, paths, usual=usual)
        return BandFiles(
            folder, paths, bands=bands, side=side, size=min(side, usual) if size is None else size, name=name
        )
    if chosen.name == "fmow":
        paths = [f"images/rgb_img_{opened.full_idxs[row]}.png" for row in rows]
    else:
        below = "train/" if chosen.name == "iwildcam" else ""  # where it keeps the images of all parts
        paths = [below + str(opened._input_array[row]).replace(os.sep, "/") for row in rows]
    return WildsImages(folder, paths, size=wanted, name=name, standardise=chosen.name == "rxrx1")


def _molecules(chosen: WildsSet, folder: Path) -> DomainDataset:
    found = read_molecules(folder)
    rows = np.flatnonzero(found.parts >= 0)
    if len(rows) == 0:
        raise DataError(f"{folder / 'split'}: no molecule is in any part; fetch the data again")
    scaffolds, domains = np.unique(found.scaffolds[rows], return_inverse=True)
    everything = len(rows) == len(found.parts)
    return DomainDataset(
        name=_name(chosen, None),
        inputs=found.graphs if everything else found.graphs.take(rows),
        targets=found.labels if everything else found.labels[rows],
        label_names=found.label_names,
        domains=domains.astype(np.int64),
        domain_names=tuple(f"scaffold {number}" for number in scaffolds.tolist()),
        metadata={ROW: rows},
        published=Published(
            name=_name(chosen, None),
            parts=found.parts[rows],
            part_names=PART_NAMES,
            metric=chosen.metric,
            statistic=chosen.statistic,
            runs=chosen.runs,
        ),
        notes=_notes(folder),
    )


def _notes(folder: Path) -> tuple[str, ...]:
    made_up = "a miniature, made up: no number measured on it says anything about the real data"
    return (made_up,) if places.is_miniature(folder) else ()
