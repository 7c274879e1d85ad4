"""The columns of a table as they are, for a model that was fitted on named columns and scales them by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gated_domains.data.encoding.base import Encoding
from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Inputs, Measurements
from gated_domains.data.tables import Numbers, Table

if TYPE_CHECKING:
    from torch import Tensor


class ColumnsEncoding(Encoding):
    """Columns of numbers in the order of their names, float64 until a batch is made. A missing one stays NaN.

    Whether a missing number is refused is for the model to say.
    """

    kind = "columns"

    def __init__(self, names: Sequence[str]) -> None:
        if isinstance(names, str) or not names or not all(isinstance(name, str) for name in names):
            raise DataError(f"the columns of an encoding are one or more names, got {names!r}")
        # As a file has them: spaces around a name are none of its own there.
        self.names = tuple(name.strip() for name in names)
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated:
            raise DataError(f"two columns of an encoding are called {repeated[0]!r}; give each its own name")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.names),)

    def prepare(self, inputs: Inputs) -> Measurements:
        if not isinstance(inputs, Table):
            raise DataError(f"this encoding was made for a table, got {inputs.describe()}")
        columns = {column.name: column for column in inputs.columns}
        absent = [name for name in self.names if name not in columns]
        if absent:
            raise DataError(f"columns seen in training are missing here: {listing(absent)}")
        values = np.empty((len(inputs), *self.shape))
        for place, name in enumerate(self.names):
            column = columns[name]
            if not isinstance(column, Numbers):
                raise DataError(f"column {name!r} held numbers in training, and now holds names")
            values[:, place] = column.values
        return Measurements(values)

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.float()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "names": list(self.names)}
