"""The model of a run on new data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from gated_domains.applying.predictor import NO_STREAM, GatesBy
from gated_domains.data.batches import place
from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.calibration import tempered
from gated_domains.evaluation.scores import Predicted
from gated_domains.experiments.model import Model
from gated_domains.insight.alarm import ChangeAlarm
from gated_domains.layer.stream import GateStream
from gated_domains.methods.gdu import GDU
from gated_domains.methods.method import Method
from gated_domains.runs.folder import RunFolder
from gated_domains.training.prediction import predict_rows


class RunPredictor:
    """A Predictor: the model of a run. ``gates`` None: as it was trained to predict.

    ``"batch"``: by the mean of rows of one domain, at most 1,024 together, of one part of one file. ``"stream"``, or a
    GateStream: by the last rows, 32 new ones at a time, from part to part and file to file. With ``alarm_delta`` an
    alarm listens to that stream; predictions are the same. ``sources`` are the domains that it was trained on, where
    they are known.
    """

    def __init__(
        self,
        model: Model,
        *,
        device: str = "cpu",
        gates: GatesBy | GateStream | None = None,
        alarm_delta: float | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        self.sources = list(sources)
        self.model, self.device = model, torch.device(device)
        self.method = model.method.to(self.device)
        if gates is not None:
            _gate(self.method, gates)
        self.alarm = None if alarm_delta is None else _listen(self.method, alarm_delta)

    @classmethod
    def of(
        cls,
        folder: RunFolder,
        *,
        device: str = "cpu",
        gates: GatesBy | GateStream | None = None,
        alarm_delta: float | None = None,
    ) -> RunPredictor:
        """The model in a run's folder."""
        sources = folder.result().sources
        return cls(Model.load(folder.path), device=device, gates=gates, alarm_delta=alarm_delta, sources=sources)

    @property
    def schema(self) -> Schema:
        """How new data are read."""
        return self.model.schema

    def predict(self, data: NewData) -> Predicted:
        """What the model says of every row, in order, at the temperature it was calibrated to."""
        samples = place(data, self.schema.encoding, device=self.device)
        found = predict_rows(self.method, samples, np.arange(len(data)))
        return replace(found, output=tempered(found.output, self.model.temperature))


def _gate(method: Method, gates: GatesBy | GateStream) -> None:
    if isinstance(method, GDU):
        method.predict_by(GateStream() if gates == "stream" else gates)
    elif gates != "sample" or method.batchwise:
        by = "stream" if isinstance(gates, GateStream) else gates
        looks = ", and says of a row what the rows beside it make likely" if method.batchwise else ""
        raise DataError(f"{method.label} has no gates{looks}: it cannot be gated by {by}; leave --gates out")


def _listen(method: Method, delta: float) -> ChangeAlarm:
    if not isinstance(method, GDU) or not isinstance(method.test_gates, GateStream):
        raise DataError(NO_STREAM)
    method.test_gates.watch = alarm = ChangeAlarm(method.units, delta=delta)
    return alarm


def predict_new(model: Model, data: NewData, *, device: str = "cpu") -> Predicted:
    """What a model says of every row, as it was trained to."""
    return RunPredictor(model, device=device).predict(data)
