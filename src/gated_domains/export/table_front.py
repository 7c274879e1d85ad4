"""What stands before a model for tables in a graph: columns as a user has them -> the numbers it was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from numpy.typing import NDArray
from torch import Tensor, nn

from gated_domains.data.encoding import FURTHEST, CategoryCode, NumberCode, TableEncoding
from gated_domains.data.inputs import Inputs

MISSING, NEVER_SEEN = -1, -2
"""In place of a name's place among the levels of training."""


class TableFront(nn.Module):
    """``TableEncoding.prepare`` as a graph.

    ``numbers`` are the columns of numbers in float64, NaN where one is missing: in float32 a year or a date would lose
    what tells it from its neighbours before the mean is taken off. ``names`` are the columns of names as places among
    the levels of training, -1 where one is missing and -2 for a name never seen. A table of numbers alone takes no
    names, and one of names no numbers.
    """

    mean: Tensor
    scale: Tensor
    standardised: Tensor
    flagged: Tensor
    column: Tensor
    level: Tensor
    order: Tensor

    def __init__(self, encoding: TableEncoding) -> None:
        super().__init__()
        self.numbers, self.names = number_codes(encoding), name_codes(encoding)
        self.register_buffer("mean", torch.tensor([code.mean for code in self.numbers], dtype=torch.float64))
        scales = [code.scale or 1.0 for code in self.numbers]
        self.register_buffer("scale", torch.tensor(scales, dtype=torch.float64))
        scaled = [place for place, code in enumerate(self.numbers) if code.scale is not None]
        flagged = [place for place, code in enumerate(self.numbers) if code.flag]
        self.register_buffer("standardised", torch.tensor(scaled, dtype=torch.int64))
        self.register_buffer("flagged", torch.tensor(flagged, dtype=torch.int64))
        hot = [(place, level) for place, code in enumerate(self.names) for level in _levels(code)]
        self.register_buffer("column", torch.tensor([place for place, _ in hot], dtype=torch.int64))
        self.register_buffer("level", torch.tensor([level for _, level in hot], dtype=torch.int64))
        self.register_buffer("order", torch.tensor(_order(encoding), dtype=torch.int64))

    def forward(self, *inputs: Tensor) -> Float[Tensor, "batch width"]:
        given = list(inputs)
        parts = self._of_numbers(given.pop(0)) if self.numbers else []
        parts += [self._of_names(given.pop(0))] if self.names else []
        return torch.cat(parts, dim=1).index_select(1, self.order)

    def _of_numbers(self, values: Float64[Tensor, "batch columns"]) -> list[Tensor]:
        missing = values.isnan()
        standard = ((values - self.mean) / self.scale).clamp(-FURTHEST, FURTHEST)
        standard = torch.where(missing, 0.0, standard)
        return [standard.index_select(1, self.standardised).float(), missing.index_select(1, self.flagged).float()]

    def _of_names(self, places: Int64[Tensor, "batch columns"]) -> Tensor:
        return (places.index_select(1, self.column) == self.level).float()


def number_codes(encoding: TableEncoding) -> list[NumberCode]:
    """The columns of numbers, in the order in which a graph takes them."""
    return [code for code in encoding.codes if isinstance(code, NumberCode)]


def name_codes(encoding: TableEncoding) -> list[CategoryCode]:
    """The columns of names, in the order in which a graph takes them."""
    return [code for code in encoding.codes if isinstance(code, CategoryCode)]


def table_arrays(encoding: TableEncoding, table: Inputs) -> dict[str, NDArray[Any]]:
    """The columns of a table as the front takes them, by the names of its inputs."""
    columns = encoding.columns_of(table)
    found: dict[str, NDArray[Any]] = {}
    if numbers := number_codes(encoding):
        found["numbers"] = np.stack([code.checked(columns[code.name]).values for code in numbers], axis=1)
    if names := name_codes(encoding):
        places = []
        for code in names:
            column = code.checked(columns[code.name])
            # An index of -1, a name that is missing, finds the last.
            places.append(np.array([*code.places(column.levels, unseen=NEVER_SEEN), MISSING])[column.values])
        found["names"] = np.stack(places, axis=1).astype(np.int64)
    return found


def _levels(code: CategoryCode) -> list[int]:
    return [*range(len(code.levels)), *[MISSING] * code.flag]


def _order(encoding: TableEncoding) -> list[int]:
    """Where each encoded number lies among all standardised columns, then all flags, then all levels of names."""
    numbers = number_codes(encoding)
    scaled, flagged = sum(code.scale is not None for code in numbers), sum(code.flag for code in numbers)
    places = {"standard": 0, "flag": scaled, "level": scaled + flagged}
    order: list[int] = []

    def take(kind: str, count: int) -> None:
        order.extend(range(places[kind], places[kind] + count))
        places[kind] += count

    for code in encoding.codes:
        if isinstance(code, NumberCode):
            take("standard", int(code.scale is not None))
            take("flag", int(code.flag))
        else:
            take("level", len(_levels(code)))
    return order
