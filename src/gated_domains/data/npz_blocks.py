"""Arrays in parts, each read as a model expects them: see ``blocks_like``. Never unpickled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError, naming
from gated_domains.data.inputs import Features, Images
from gated_domains.data.labels import Reading
from gated_domains.data.like import check_arrays_said, check_inputs
from gated_domains.data.like_blocks import whole
from gated_domains.data.new_data import NewData
from gated_domains.data.npz import Header, array_headers, in_row_order, open_arrays, read_arrays
from gated_domains.data.parts import Blocks, in_parts_of, read_parts
from gated_domains.data.readers import arrays

Named = dict[str, NDArray[Any]]


def npz_in_blocks(path: Path, schema: Schema, said: Reading, rows: int) -> Blocks:
    """An ``.npz`` file: inputs, domains and what is kept beside them, in step."""
    check_arrays_said(schema, said)
    headers = array_headers(path)
    useful = {name: headers[name] for name in arrays.of_use(path, labelled=False)}
    inputs = arrays.pick(path, useful, arrays.INPUTS, "inputs")
    domain = next((name for name in arrays.DOMAINS if name in useful), None)
    if not _has_rows(path, inputs, headers[inputs][0]):
        return whole(path, schema, said, rows=rows)
    check_inputs(path, _no_samples(path, [*useful], headers[inputs]), schema)
    count = headers[inputs][0][0]
    beside = [name for name, (shape, _) in useful.items() if name not in (inputs, domain) and shape == (count,)]
    _check_domains(path, count, headers[domain][0] if domain is not None else (count,))
    by_row = [inputs, *beside, *([] if domain is None else [domain])]
    fixed = read_arrays(path, wanted=["domain_names"])

    def read(start: int, part: Named) -> NewData:
        with naming(path):
            samples = arrays.as_inputs(part[inputs])
            domains, names = arrays.domains_of({**part, **fixed}, domain)
        check_inputs(path, samples, schema)
        with naming(path):
            return NewData(
                name=path.name,
                inputs=samples,
                class_names=schema.class_names,
                domains=domains,
                domain_names=names,
                metadata={name: part[name] for name in beside},
            )

    return Blocks(count, lambda: read_parts(_rows_of(path, by_row, count, rows), read, of=count))


def _has_rows(path: Path, name: str, shape: tuple[int, ...]) -> bool:
    """Whether there are rows, one after the other in the file."""
    return len(shape) > 1 and shape[0] > 0 and in_row_order(path, name)


def _no_samples(path: Path, names: list[str], header: Header) -> Images | Features:
    """Samples of this header, of which none is read."""
    with open_arrays(path, names):
        pass  # the file holds as much as it says, and no Python objects
    shape, dtype = header
    # Numbers would be looked at, and there are none; of others the shape is looked at, and told as it is.
    rows = 0 if len(shape) == 2 and shape[1] > 0 and dtype.kind in "fiub" else shape[0]
    with naming(path):
        return arrays.as_inputs(np.broadcast_to(np.zeros((), dtype), (rows, *shape[1:])))


def _check_domains(path: Path, count: int, shape: tuple[int, ...]) -> None:
    if not shape or shape[0] != count:
        found = shape[0] if shape else 1
        raise DataError(f"{path}: {count:,} inputs but {found:,} domains; there must be one for each")


def _rows_of(path: Path, names: list[str], count: int, rows: int) -> Iterator[tuple[int, Named]]:
    """The arrays of these names, so many rows at a time, with where each part begins."""
    with open_arrays(path, names) as following:
        for first in range(0, count, rows):
            yield first, following(min(rows, count - first))


def npz_folder_in_blocks(folder: Path, schema: Schema, said: Reading, rows: int) -> Blocks:
    """A folder of ``.npz`` files, one a domain, one after the other; rows in faults are those of a file."""
    check_arrays_said(schema, said)
    parts = _parts_of(folder)
    if not all(_has_rows(part.path, part.name, part.shape) for part in parts):
        return whole(folder, schema, said, rows=rows)
    for part in parts:
        found = _no_samples(part.path, [part.name], (part.shape, part.dtype))
        arrays.refuse_other_shape(part.path, part.sample, parts[0].sample, parts[0].path)
    check_inputs(folder, found, schema)
    domain_names = tuple(path.stem for path in arrays.domain_files(folder))

    def read(part: _Part, values: NDArray[Any]) -> NewData:
        with naming(part.path):
            samples = arrays.as_inputs(values)
        check_inputs(folder, samples, schema)
        return NewData(
            name=folder.name,
            inputs=samples,
            class_names=schema.class_names,
            domains=np.full(len(samples), domain_names.index(part.path.stem), np.int64),
            domain_names=domain_names,
        )

    def of_part(part: _Part) -> Iterator[NewData]:
        found = _rows_of(part.path, [part.name], part.shape[0], rows)
        return read_parts(found, lambda _, values: read(part, values[part.name]), of=part.shape[0])

    # As of the folder as a whole: a part may be of several files.
    count = sum(part.shape[0] for part in parts)
    return Blocks(count, lambda: in_parts_of(chain.from_iterable(map(of_part, parts)), rows))


@dataclass(frozen=True)
class _Part:
    """An array of inputs in a file of a folder."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def sample(self) -> tuple[int, ...]:
        """The shape of a sample; grey images have a channel too."""
        return (*self.shape[1:], 1) if len(self.shape) == 3 else self.shape[1:]


def _parts_of(folder: Path) -> list[_Part]:
    found = []
    for path in arrays.domain_files(folder):
        headers = array_headers(path)
        found += [_Part(path, name, *headers[name]) for name, _, _ in arrays.parts_of(path, headers, labelled=False)]
    return found
