"""``.npz`` files: inputs, labels and domains by name, in one file or one file a domain. Never unpickled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, listing, naming
from gated_domains.data.inputs import Features, Images
from gated_domains.data.labels import Reading, as_domains, as_targets, one_axis, plain
from gated_domains.data.npz import array_headers, read_arrays

INPUTS = ("X", "features", "images", "x")
LABELS = ("y", "labels", "targets", "label", "target")
DOMAINS = ("domain", "domains", "subjects", "subject", "groups")
_PARTS = ("train", "test")


@dataclass(frozen=True, eq=False)
class Arrays:
    """What lies in an ``.npz`` file, or a folder of them. Labels, where asked for, are as they were saved."""

    inputs: Images | Features
    labels: NDArray[Any] | None
    class_names: list[str] | None
    domains: NDArray[np.int64] | None
    domain_names: tuple[str, ...]
    metadata: dict[str, NDArray[Any]] = field(default_factory=dict)
    official_test: NDArray[np.bool_] | None = None

    def spelled_out(self) -> NDArray[Any]:
        """Labels that are indices into class names by those names; others as they are."""
        assert self.labels is not None
        if self.class_names is None:
            return self.labels
        index, classes = as_targets(self.labels, class_names=self.class_names)
        if not ((index >= 0) & (index < len(self.class_names))).all():
            raise DataError(f"labels lie outside 0 to {len(self.class_names) - 1}, the places of the class names")
        return np.array(classes)[index]


def read_npz(path: Path, reading: Reading) -> DomainDataset:
    """A data set from one file: ``X`` or ``features`` or ``images``, ``y`` or ``labels``, ``domain`` or ``subjects``.

    ``domain_names`` and ``class_names`` name indices. Other arrays with one value a row are kept as metadata.
    """
    reading.refuse_all_but("positive", "task", what="an .npz file")
    return _as_dataset(path, npz_arrays(path), reading)


def npz_arrays(path: Path, *, labelled: bool = True) -> Arrays:
    """What lies in one file; without ``labelled``, labels are neither needed nor read."""
    arrays = read_arrays(path, wanted=of_use(path, labelled=labelled))
    inputs = pick(path, arrays, INPUTS, "inputs")
    labels = pick(path, arrays, LABELS, "labels") if labelled else None
    domain = next((name for name in DOMAINS if name in arrays), None)
    with naming(path):
        samples = as_inputs(arrays[inputs])
        domains, domain_names = domains_of(arrays, domain)
    known = {inputs, labels, domain}
    metadata = {name: array for name, array in arrays.items()
                if name not in known and array.ndim == 1 and len(array) == len(samples)}  # fmt: skip
    answers = None if labels is None else arrays[labels]
    return Arrays(samples, answers, _names(arrays, "class_names"), domains, domain_names, metadata)


def _as_dataset(path: Path, arrays: Arrays, reading: Reading) -> DomainDataset:
    with naming(path):
        targets, class_names = _targets(arrays, reading)
        return DomainDataset(
            name=path.name,
            inputs=arrays.inputs,
            targets=targets,
            class_names=class_names,
            classes_found=reading.positive is None and arrays.class_names is None,
            domains=arrays.domains,
            domain_names=arrays.domain_names,
            metadata=arrays.metadata,
            official_test=arrays.official_test,
            reading=reading,
        )


def of_use(path: Path, *, labelled: bool) -> list[str]:
    """The arrays that go by a known name, and those with one plain value a row; others are nobody's business here."""
    known = {*INPUTS, *DOMAINS, "domain_names", *((*LABELS, "class_names") if labelled else ())}
    headers = array_headers(path)
    return [
        name
        for name, (shape, dtype) in headers.items()
        if name in known or (len(shape) == 1 and not dtype.hasobject and (labelled or name not in LABELS))
    ]


def is_folder_of_domains(folder: Path) -> bool:
    """Whether the folder holds ``.npz`` files side by side: one a domain."""
    return folder.is_dir() and bool(domain_files(folder))


def domain_files(folder: Path) -> list[Path]:
    """The files of a folder that are a domain each."""
    return sorted(path for path in folder.glob("*.npz") if not path.name.startswith("."))


def read_npz_folder(folder: Path, reading: Reading) -> DomainDataset:
    """A data set from a folder with one ``.npz`` a domain: ``images`` (or ``X``) and ``labels`` (or ``y``).

    With ``train_images``, ``train_labels``, ``test_images``, ``test_labels`` instead, the test part is kept as such.
    """
    reading.refuse_all_but("positive", "task", what="a folder of .npz files")
    return _as_dataset(folder, npz_folder_arrays(folder), reading)


def npz_folder_arrays(folder: Path, *, labelled: bool = True) -> Arrays:
    """What lies in all files of the folder, one after the other; without ``labelled``, labels are not needed."""
    files = domain_files(folder)
    inputs: list[NDArray[Any]] = []
    labels, domains, official = [], [], []
    for number, path in enumerate(files):
        arrays = read_arrays(path)
        for inputs_name, labels_name, is_test in parts_of(path, arrays, labelled=labelled):
            part_inputs, part_labels = arrays[inputs_name], None if labels_name is None else arrays[labels_name]
            with naming(path):
                samples = as_inputs(part_inputs).values
                answers = None if part_labels is None else one_axis(part_labels, "target")
            if answers is not None and len(samples) != len(answers):
                raise DataError(f"{path}: {len(samples):,} inputs but {len(answers):,} labels")
            if inputs:
                refuse_other_shape(path, samples.shape[1:], inputs[0].shape[1:], files[0])
            inputs.append(samples)
            labels += [] if answers is None else [answers]
            domains.append(np.full(len(samples), number, np.int64))
            official.append(np.full(len(samples), is_test, np.bool_))
    tests = np.concatenate(official)
    with naming(folder):
        return Arrays(
            inputs=as_inputs(np.concatenate(inputs)),
            labels=np.concatenate(labels) if labelled else None,
            class_names=None,
            domains=np.concatenate(domains),
            domain_names=tuple(path.stem for path in files),
            official_test=tests if tests.any() else None,
        )


def refuse_other_shape(path: Path, sample: tuple[int, ...], shape: tuple[int, ...], first: Path) -> None:
    """Samples of every file are of the shape of those in the first."""
    if sample != shape:
        raise DataError(f"{path}: samples of shape {sample}, but {shape} in {first.name}; bring them all to one shape")


def as_inputs(values: NDArray[Any]) -> Images | Features:
    """Bytes with three or four axes are images; a matrix of numbers holds features."""
    if values.ndim > 2 and values.dtype != np.uint8:
        raise DataError(
            f"an array of {values.dtype} with shape {values.shape}: images must be bytes (uint8, 0 to 255), and "
            "features one row a sample; convert it first"
        )
    return Images(values) if values.ndim > 2 else Features(values)


def pick(path: Path, arrays: Mapping[str, Any], names: tuple[str, ...], what: str) -> str:
    """The array that goes by the first of these names that is there."""
    found = [name for name in names if name in arrays]
    if not found:
        raise DataError(f"{path}: no {what} among {listing(arrays)}; call them {' or '.join(names[:3])}")
    return found[0]


def _names(arrays: Mapping[str, NDArray[Any]], key: str) -> list[str] | None:
    return [plain(name) for name in arrays[key].ravel()] if key in arrays else None


def domains_of(arrays: Mapping[str, NDArray[Any]], key: str | None) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """The domains in the array of this name."""
    return (None, ()) if key is None else as_domains(arrays[key], names=_names(arrays, "domain_names"))


def _targets(arrays: Arrays, reading: Reading) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    assert arrays.labels is not None
    if reading.positive is not None:
        return as_targets(arrays.spelled_out(), positive=reading.positive, task=reading.task)
    return as_targets(arrays.labels, class_names=arrays.class_names, task=reading.task)


def parts_of(path: Path, arrays: Mapping[str, Any], *, labelled: bool) -> Iterable[tuple[str, str | None, bool]]:
    """The names of inputs and labels of each part of a file, and whether it is the one to test on."""
    divided = any(f"{part}_{name}" in arrays for part in _PARTS for name in INPUTS)
    for part in _PARTS if divided else ("",):
        lead = f"{part}_" if part else ""
        inputs = pick(path, arrays, tuple(lead + name for name in INPUTS), f"{part} inputs".lstrip())
        answers = None
        if labelled:
            answers = pick(path, arrays, tuple(lead + name for name in LABELS), f"{part} labels".lstrip())
        yield inputs, answers, part == "test"
