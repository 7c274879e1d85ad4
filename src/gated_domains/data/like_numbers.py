"""A new table for a model that knows how many numbers it saw, and none of their names: columns in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Features, Inputs, refuse_non_finite
from gated_domains.data.like_table import LikeTable
from gated_domains.data.readers.cells import as_numbers, is_number

if TYPE_CHECKING:
    import pyarrow as pa


class LikeNumbers(LikeTable):
    """A CSV or Parquet file for a model of vectors: its columns of numbers, where there are as many; see ``read_like``.

    The target, the domain and what is kept beside are none of them, wherever they are named.
    """

    def samples(self, table: pa.Table, notes: list[str]) -> Inputs:
        (width,) = self.schema.encoding.shape
        others = {self.reading.target, self.reading.domain, *self.reading.metadata}
        names = [name for name in table.column_names if name not in others and is_number(table.column(name).type)]
        if len(names) != width:
            raise DataError(
                f"holds a table, but the model was trained on vectors of features, {width:,} numbers each without "
                f"names: columns of numbers would be taken in their order, but there are {len(names):,} "
                f"({listing(names) or 'none'}); leave out what is no input with --drop, or give an .npz"
            )
        values = np.stack([as_numbers(table.column(name)) for name in names], axis=1)
        refuse_non_finite(values, names)
        notes.append(f"the model knows no names of columns: columns are taken in their order, {listing(names, 5)}")
        return Features(values)
