"""The table of predictions: a line a row, its columns always of the same names and types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.scores import Predicted


def prediction_table(
    data: NewData,
    predicted: Predicted,
    *,
    start: int = 0,
    file: str | None = None,
    alarms: Sequence[int] | None = None,
) -> pa.Table:
    """One line a row: where it comes from, the prediction, probabilities, and what the gates saw.

    ``start`` is the row of the first in its file. With ``file``, the name of it stands beside, and so does the domain
    even where nobody knows it: other files may have some. ``alarms``: places of rows at which one was heard, where
    somebody listened.
    """
    place: dict[str, pa.Array] = {"row": pa.array(np.arange(start, start + len(data)))}
    if file is not None:
        place["file"] = pa.array([file] * len(data), pa.string())
    ours = _columns(data, predicted, always_domain=file is not None)
    if alarms is not None:
        ours["alarm"] = pa.array(np.isin(np.arange(len(data)), alarms))
    # A column that was asked for is never lost to one of ours that is called the same.
    taken = {**place, **ours}
    kept = {f"given {name}" if name in taken else name: _kept(values) for name, values in data.metadata.items()}
    return pa.table({**place, **kept, **ours})


def _columns(data: NewData, predicted: Predicted, *, always_domain: bool) -> dict[str, pa.Array]:
    columns: dict[str, Any] = {}
    if data.domains is not None:
        columns["domain"] = _picked(data.domain_names, data.domains)
    elif always_domain:
        columns["domain"] = pa.nulls(len(data), pa.string())
    if data.label_names is not None:
        names = np.array(data.label_names)
        likely = [", ".join(names[yes]) for yes in predicted.output > 0.5]
        columns["prediction"] = pa.array(likely, pa.string())
        columns.update({f"p({name})": predicted.output[:, place] for place, name in enumerate(data.label_names)})
    elif data.class_names is None:
        columns["prediction"] = predicted.output[:, 0]
    else:
        columns["prediction"] = _picked(data.class_names, predicted.output.argmax(1))
        columns["probability"] = predicted.output.max(1)
        columns.update({f"p({name})": predicted.output[:, place] for place, name in enumerate(data.class_names)})
    if predicted.residual is not None:
        columns["novelty"] = predicted.residual
    if predicted.coverage is not None:
        columns["coverage"] = predicted.coverage
    if predicted.beta is not None:
        columns.update({f"gate {place + 1}": predicted.beta[:, place] for place in range(predicted.beta.shape[1])})
    return {name: pa.array(values) if isinstance(values, np.ndarray) else values for name, values in columns.items()}


def _picked(names: tuple[str, ...], places: NDArray[np.int64]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(places))


_TYPES = {"b": pa.bool_(), "i": pa.int64(), "f": pa.float64(), "U": pa.string(), "S": pa.binary(), "O": pa.string()}


def _kept(values: NDArray[Any]) -> pa.Array:
    """Metadata, of a type that does not depend on which values these rows have."""
    kind = _TYPES.get(values.dtype.kind)
    return pa.array(values) if kind is None else pa.array(values.tolist(), kind)


def fitted(table: pa.Table, schema: pa.Schema, *, where: str) -> pa.Table:
    """The table with the columns of those before it: what it lacks is empty; what they lack is refused."""
    new = [name for name in table.column_names if name not in schema.names]
    if new:
        raise DataError(
            f"{where} has a column {new[0]!r} that the files before it lack; predict on it apart, or name it first"
        )
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            columns.append(_cast(table.column(field.name), field.type))
        except pa.ArrowException as error:
            raise DataError(
                f"{where}: column {field.name!r} holds {table.column(field.name).type}, but {field.type} in the files "
                "before it; predict on it apart"
            ) from error
    return pa.table(columns, schema=schema)


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_floating(values.type) and pa.types.is_integer(kind):  # whole numbers, some of them missing
        values = pyarrow.compute.if_else(pyarrow.compute.is_nan(values), pa.scalar(None, values.type), values)
    return values if values.type == kind else values.cast(kind)
