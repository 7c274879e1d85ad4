"""Predictor: what every shipped model has in common."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from gated_domains.data.new_data import NewData
from gated_domains.data.schema import Schema
from gated_domains.evaluation.predicted import Predicted

#: What gates compare with the bases: each sample, a batch of one site, or the last rows of a stream.
GatesBy = Literal["sample", "batch", "stream"]


@runtime_checkable
class Predictor(Protocol):
    """A trained model that reads new data by its schema and says something of every row."""

    @property
    def schema(self) -> Schema:
        """How new data are read."""
        ...

    def predict(self, data: NewData) -> Predicted:
        """What the model says of these rows, in order. Of a stream, rows follow those of the call before."""
        ...
