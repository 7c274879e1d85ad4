"""``.npz`` files: inputs, labels and domains by name, in one file or one file a domain. Never unpickled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, listing, naming
from gated_domains.data.inputs import Features, Images
from gated_domains.data.labels import as_domains, as_targets, one_axis, plain
from gated_domains.data.npz import array_headers, read_arrays
from gated_domains.data.readers.reading import Reading

INPUTS = ("X", "features", "images", "x")
LABELS = ("y", "labels", "targets", "label", "target")
DOMAINS = ("domain", "domains", "subjects", "subject", "groups")
_PARTS = ("train", "test")


def read_npz(path: Path, reading: Reading) -> DomainDataset:
    """A data set from one file: ``X`` or ``features`` or ``images``, ``y`` or ``labels``, ``domain`` or ``subjects``.

    ``domain_names`` and ``class_names`` name indices. Other arrays with one value a row are kept as metadata.
    """
    reading.refuse_all_but("positive", "task", what="an .npz file")
    arrays = read_arrays(path, wanted=_of_use(path))
    inputs, labels = _pick(path, arrays, INPUTS, "inputs"), _pick(path, arrays, LABELS, "labels")
    domain = next((name for name in DOMAINS if name in arrays), None)
    with naming(path):
        samples = as_inputs(arrays[inputs])
        targets, class_names = _targets(arrays[labels], arrays, reading)
        domains, domain_names = _domains(arrays, domain)
        known = {inputs, labels, domain}
        metadata = {name: array for name, array in arrays.items()
                    if name not in known and array.ndim == 1 and len(array) == len(samples)}  # fmt: skip
        return DomainDataset(
            name=path.name,
            inputs=samples,
            targets=targets,
            class_names=class_names,
            domains=domains,
            domain_names=domain_names,
            metadata=metadata,
        )


def _of_use(path: Path) -> list[str]:
    """The arrays that go by a known name, and those with one plain value a row; others are nobody's business here."""
    known = {*INPUTS, *LABELS, *DOMAINS, "domain_names", "class_names"}
    headers = array_headers(path)
    return [
        name for name, (shape, dtype) in headers.items() if name in known or (len(shape) == 1 and not dtype.hasobject)
    ]


def is_folder_of_domains(folder: Path) -> bool:
    """Whether the folder holds ``.npz`` files side by side: one a domain."""
    return folder.is_dir() and bool(_files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.npz") if not path.name.startswith("."))


def read_npz_folder(folder: Path, reading: Reading) -> DomainDataset:
    """A data set from a folder with one ``.npz`` a domain: ``images`` (or ``X``) and ``labels`` (or ``y``).

    With ``train_images``, ``train_labels``, ``test_images``, ``test_labels`` instead, the test part is kept as such.
    """
    reading.refuse_all_but("positive", "task", what="a folder of .npz files")
    files = _files(folder)
    inputs: list[NDArray[Any]] = []
    labels, domains, official = [], [], []
    for number, path in enumerate(files):
        for part_inputs, part_labels, is_test in _parts(path, read_arrays(path)):
            with naming(path):
                samples, answers = as_inputs(part_inputs).values, one_axis(part_labels, "target")
            if len(samples) != len(answers):
                raise DataError(f"{path}: {len(samples):,} inputs but {len(answers):,} labels")
            if inputs and samples.shape[1:] != inputs[0].shape[1:]:
                raise DataError(
                    f"{path}: samples of shape {samples.shape[1:]}, but {inputs[0].shape[1:]} in {files[0].name}; "
                    "bring them all to one shape"
                )
            inputs.append(samples)
            labels.append(answers)
            domains.append(np.full(len(samples), number, np.int64))
            official.append(np.full(len(samples), is_test, np.bool_))
    with naming(folder):
        targets, class_names = as_targets(np.concatenate(labels), positive=reading.positive, task=reading.task)
        tests = np.concatenate(official)
        return DomainDataset(
            name=folder.name,
            inputs=as_inputs(np.concatenate(inputs)),
            targets=targets,
            class_names=class_names,
            domains=np.concatenate(domains),
            domain_names=tuple(path.stem for path in files),
            official_test=tests if tests.any() else None,
        )


def as_inputs(values: NDArray[Any]) -> Images | Features:
    """Bytes with three or four axes are images; a matrix of numbers holds features."""
    if values.ndim > 2 and values.dtype != np.uint8:
        raise DataError(
            f"an array of {values.dtype} with shape {values.shape}: images must be bytes (uint8, 0 to 255), and "
            "features one row a sample; convert it first"
        )
    return Images(values) if values.ndim > 2 else Features(values)


def _pick(path: Path, arrays: Mapping[str, NDArray[Any]], names: tuple[str, ...], what: str) -> str:
    found = [name for name in names if name in arrays]
    if not found:
        raise DataError(f"{path}: no {what} among {listing(arrays)}; call them {' or '.join(names[:3])}")
    return found[0]


def _names(arrays: Mapping[str, NDArray[Any]], key: str) -> list[str] | None:
    return [plain(name) for name in arrays[key].ravel()] if key in arrays else None


def _domains(arrays: Mapping[str, NDArray[Any]], key: str | None) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    return (None, ()) if key is None else as_domains(arrays[key], names=_names(arrays, "domain_names"))


def _targets(
    labels: NDArray[Any], arrays: Mapping[str, NDArray[Any]], reading: Reading
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    names = _names(arrays, "class_names")
    if names is not None and reading.positive is not None:
        index, classes = as_targets(labels, class_names=names)
        if len(index) and not ((index >= 0) & (index < len(names))).all():
            raise DataError(f"labels lie outside 0 to {len(names) - 1}, the places of the class names")
        labels = np.array(classes)[index]
        names = None
    return as_targets(labels, class_names=names, positive=reading.positive, task=reading.task)


def _parts(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Iterable[tuple[NDArray[Any], NDArray[Any], bool]]:
    if any(f"{part}_{name}" in arrays for part in _PARTS for name in INPUTS):
        for part in _PARTS:
            inputs = _pick(path, arrays, tuple(f"{part}_{name}" for name in INPUTS), f"{part} inputs")
            labels = _pick(path, arrays, tuple(f"{part}_{name}" for name in LABELS), f"{part} labels")
            yield arrays[inputs], arrays[labels], part == "test"
    else:
        yield arrays[_pick(path, arrays, INPUTS, "inputs")], arrays[_pick(path, arrays, LABELS, "labels")], False
