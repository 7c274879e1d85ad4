"""Parity: an exported model must say what the trained one says, or it is not written."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.backbones.backbone import evaluating
from gated_domains.data.encoding import TableEncoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Column, Numbers, Table
from gated_domains.evaluation.calibration import tempered
from gated_domains.export.examples import Arrays, drawn
from gated_domains.export.graph import OUTPUTS
from gated_domains.export.subject import Subject
from gated_domains.export.table_front import MISSING, NEVER_SEEN

TOLERANCE = 1e-5
SIZES = (1, 7, 64)
Run = Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]


@dataclass(frozen=True)
class Parity:
    """How far an exported model is from the trained one, at most."""

    difference: float = 0.0
    coverage: float | None = None
    """Of coverage, where that is more than 1e-5, and no more than float32 costs the trained model itself."""

    def __str__(self) -> str:
        if self.coverage is None:
            return f"{self.difference:.0e}"
        return (
            f"{self.difference:.0e}, and coverage by {self.coverage:.0e}: it is steep here, and the trained model, in "
            "float32, is as far from its own value in float64"
        )


def check_parity(
    subject: Subject, run: Run, *, rows: Arrays | None = None, sizes: Sequence[int] = SIZES, what: str = "model"
) -> Parity:
    """The largest difference between an exported model and the trained one; refused above 1e-5.

    Compared on samples drawn by chance, in batches of these sizes, and on all ``rows``, real ones, in batches of these
    sizes and one of those that are left. Numbers are counted in the scale of the training targets, and a last digit of
    float32 is no difference. Coverage is steep where residuals of training hardly differ: it may be as far from the
    trained model's as that, computed in float32, is from its own value in float64.
    """
    difference, coverage = 0.0, None
    for inputs in (*(drawn(subject, size, seed=size) for size in sizes), *_divided(rows or {}, sizes)):
        for name, found in differences(subject, run, inputs).items():
            if found <= TOLERANCE:
                difference = max(difference, found)
            elif name == "coverage" and found <= own_rounding(subject, inputs):
                coverage = max(coverage or 0.0, found)
            else:
                raise DataError(
                    f"the exported {what} is not the trained one: {name} differs by {found:.1e} at batch "
                    f"{_rows(inputs)}, and at most {TOLERANCE:g} is allowed; nothing was written. Please report it, "
                    f"and {subject.instead} instead"
                )
    return Parity(difference, coverage)


@torch.no_grad()
def own_rounding(subject: Subject, inputs: Arrays) -> float:
    """How far the coverage that the trained network finds is from what it finds in float64."""
    network, encoded = copy.deepcopy(subject.network).double(), _encoded(subject, inputs)
    try:
        with evaluating(network):
            exact = subject.predict(network, encoded.double() if encoded.is_floating_point() else encoded).coverage
    except RuntimeError:  # a body that insists on float32: then nothing is known of its rounding, and nothing allowed
        return 0.0
    assert exact is not None
    return float(np.abs(exact.double().numpy() - as_trained(subject, inputs)["coverage"]).max())


def differences(subject: Subject, run: Run, inputs: Arrays) -> dict[str, float]:
    """The largest difference of each output; infinite where either is no number, or where they differ in shape."""
    expected, found = as_trained(subject, inputs), run(inputs)
    if list(expected) != list(found):
        raise DataError(f"the exported model gives {list(found)} where the trained one gives {list(expected)}")
    return {name: _difference(subject, name, expected[name], found[name]) for name in expected}


def _difference(subject: Subject, name: str, expected: NDArray[Any], found: NDArray[Any]) -> float:
    if expected.shape != found.shape or not (np.isfinite(expected).all() and np.isfinite(found).all()):
        return float("inf")
    apart = np.abs(expected.astype(np.float64) - found.astype(np.float64))
    if name == OUTPUTS[0] and subject.task == "number":
        digit = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
        scale = np.asarray(subject.scale or max(1.0, float(np.abs(expected).max())))
        apart = (apart - digit).clip(0) / scale
    return float(apart.max())


@torch.no_grad()
def as_trained(subject: Subject, inputs: Arrays) -> Arrays:
    """What the trained network says, on its usual way: prepared, encoded, predicted, tempered."""
    with evaluating(subject.network):
        said = subject.predict(subject.network, _encoded(subject, inputs))
    outputs = {name: value.float().numpy() for name, value in zip(OUTPUTS, said, strict=True) if value is not None}
    return {**outputs, OUTPUTS[0]: tempered(outputs[OUTPUTS[0]], subject.temperature)}


def _encoded(subject: Subject, inputs: Arrays) -> Tensor:
    encoding = subject.schema.encoding
    if not isinstance(encoding, TableEncoding):
        (raw,) = inputs.values()
        return subject.encode(torch.from_numpy(np.ascontiguousarray(raw)))
    prepared = encoding.prepare(_as_table(encoding, inputs))
    return subject.encode(torch.from_numpy(prepared.values))


def _as_table(encoding: TableEncoding, inputs: Arrays) -> Table:
    """The inputs of a graph as the table that they came from."""
    columns: list[Column] = []
    numbers, names = iter(inputs.get("numbers", np.empty((0, 0))).T), iter(inputs.get("names", np.empty((0, 0))).T)
    for known in encoding.codes:
        if levels := getattr(known, "levels", ()):
            strange = "a name never seen"
            while strange in levels:
                strange += "!"
            values = next(names)
            places = np.where(values == NEVER_SEEN, len(levels), np.where(values == MISSING, -1, values))
            columns.append(Categories(known.name, places.astype(np.int32), (*levels, strange)))
        else:
            columns.append(Numbers(known.name, next(numbers).astype(np.float64)))
    return Table(columns)


def _divided(rows: Arrays, sizes: Sequence[int]) -> Iterator[Arrays]:
    """All rows, the first ones in batches of these sizes."""
    start = 0
    while rows and start < _rows(rows):
        size, *sizes = *sizes, _rows(rows)
        yield {name: value[start : start + size] for name, value in rows.items()}
        start += size


def _rows(inputs: Arrays) -> int:
    return len(next(iter(inputs.values())))
