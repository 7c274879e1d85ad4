"""A saved estimator on new data: columns by the names it was fitted on, or vectors of as many numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gated_domains.applying.by_domain import asked_in_parts
from gated_domains.applying.predictor import NO_STREAM, GatesBy
from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError, listing
from gated_domains.data.new_data import NewData
from gated_domains.estimators.saving import load_estimator
from gated_domains.evaluation.scores import Predicted
from gated_domains.export.estimator_schema import schema_of_estimator
from gated_domains.insight.alarm import ChangeAlarm
from gated_domains.layer.stream import GateStream
from gated_domains.layer.units import Gates
from gated_domains.training.prediction import parts_of_one_domain


class EstimatorPredictor:
    """An estimator from the folder it was saved to. ``gates`` None are by sample, where it has any.

    By ``batch``, rows of one domain are gated together, 1,024 at most; by ``stream``, rows join those of earlier calls
    32 at a time, in ``stream`` where one is given. With ``alarm_delta`` an alarm listens to that stream;
    predictions are the same.
    """

    def __init__(
        self,
        folder: Path,
        *,
        device: str = "cpu",
        gates: GatesBy | None = None,
        stream: GateStream | None = None,
        alarm_delta: float | None = None,
    ) -> None:
        self.estimator = load_estimator(folder).set_params(device=torch.device(device).type)
        label = type(self.estimator).__name__
        if gates in ("batch", "stream") and self.estimator.network_.units is None:
            raise DataError(f"{folder}: this {label} has no gates, and they cannot be by {gates}; leave --gates out")
        outputs = getattr(self.estimator, "outputs_", 1)
        if outputs > 1:
            raise DataError(
                f"{folder}: this {label} predicts {outputs} numbers a row, and a file of predictions has one; load it "
                "with load_estimator(folder) and ask its predict"
            )
        self.gates: GatesBy = gates or "sample"
        self._names = getattr(self.estimator, "feature_names_in_", None)
        self._schema = schema_of_estimator(self.estimator)
        self._stream = GateStream() if stream is None else stream
        self.alarm = None if alarm_delta is None else self._listen(alarm_delta)

    @property
    def schema(self) -> Schema:
        """How new data are read."""
        return self._schema

    def predict(self, data: NewData) -> Predicted:
        """What the estimator says of these rows, in order. Of a stream, rows follow those of the call before."""
        values = self._schema.encoding.prepare(data.inputs).read(np.arange(len(data)))
        if self.gates != "batch":
            return self._asked(data, values, self._stream if self.gates == "stream" else "sample")
        parts = parts_of_one_domain(np.arange(len(data)), data.domains)
        return Predicted(**asked_in_parts(parts, lambda part: self._asked(data, values[part], "batch").arrays()))

    def _asked(self, data: NewData, values: NDArray[Any], gates: Gates) -> Predicted:
        # With names, as scikit-learn wants them from whoever fitted with names.
        rows = values if self._names is None else pd.DataFrame(values, columns=self._names)
        try:
            return self.estimator.predicted(rows, gates=gates)
        except ValueError as error:  # NaN, in scikit-learn's words
            raise DataError(f"{data.name}: {error}{where_missing(values, self._names)}") from error

    def _listen(self, delta: float) -> ChangeAlarm:
        units = self.estimator.network_.units
        if units is None or self.gates != "stream":
            raise DataError(NO_STREAM)
        self._stream.watch = alarm = ChangeAlarm(units, delta=delta)
        return alarm


def where_missing(values: NDArray[Any], names: NDArray[Any] | None) -> str:
    """The columns in which numbers are missing, as a message goes on; nothing where none is."""
    places = np.flatnonzero(np.isnan(values).any(0))
    told = places if names is None else names[places]
    return f"\nNumbers are missing in these columns: {listing(told)}" if len(places) else ""
