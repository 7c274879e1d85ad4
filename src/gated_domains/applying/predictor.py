"""Predictor: what every shipped model has in common."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from gated_domains.data.dataset import Schema
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.scores import Predicted
from gated_domains.insight.alarm import ChangeAlarm

#: What gates compare with the bases: each sample, a batch of one site, or the last rows of a stream.
GatesBy = Literal["sample", "batch", "stream"]

NO_STREAM = "an alarm listens to gates of a stream; add --gates stream, or leave --alarm out"


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


@runtime_checkable
class HasAlarm(Protocol):
    """A model whose stream of rows may be listened to."""

    @property
    def alarm(self) -> ChangeAlarm | None:
        """What was heard in all calls so far; None where nobody listens."""
        ...
