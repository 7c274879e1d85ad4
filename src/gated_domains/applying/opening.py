"""A trained model of any kind, loaded from its path. Nothing is ever unpickled."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gated_domains.applying.of_run import RunPredictor
from gated_domains.applying.predictor import NO_STREAM, GatesBy, Predictor
from gated_domains.applying.tables import prediction_table
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, expanded
from gated_domains.data.inputs import Table
from gated_domains.data.labels import Reading
from gated_domains.data.like import new_data_of, read_like
from gated_domains.data.new_data import NewData
from gated_domains.estimators import CARD
from gated_domains.insight.alarm import DELTA
from gated_domains.layer.stream import GateStream
from gated_domains.runs.folder import open_run_folder

WINDOW = 256
"""Rows of a stream that gates are of, unless another number is asked for."""
PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".pt2")
_KNOWN = "the folder of a run, that of a saved estimator, or an .onnx file"
_PICKLED = (
    "holds pickled Python, which could run anything and is never loaded; "
    "save with estimator.save(...) or export to ONNX"
)


class LoadedModel:
    """A trained model that predicts on new data, read as its training data were.

    New data are a file or folder, the name of a data set, a pandas or Arrow table, or a ``DomainDataset`` of images,
    features or texts.

    Attributes
    ----------
    classes
        The names of the classes; None where a number is predicted.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        schema = predictor.schema
        self.classes = schema.class_names or schema.label_names

    def predict(self, source: Any, *, reading: Reading | None = None) -> NDArray[Any]:
        """The predicted class, or number, of every row.

        Parameters
        ----------
        source
            New data; targets are not needed.
        reading
            What is named otherwise than in training, such as the domain column.
        """
        column = self.predict_table(source, reading=reading).column("prediction")
        return np.asarray(column.to_pylist())

    def predict_proba(self, source: Any, *, reading: Reading | None = None) -> NDArray[np.float32]:
        """The probability of every class, a row for each row of the data."""
        if self.classes is None:
            raise DataError("a number is predicted, which has no probabilities; use predict")
        return self.predictor.predict(self._read(source, reading)).output

    def predict_table(self, source: Any, *, reading: Reading | None = None) -> pa.Table:
        """Predictions, probabilities and what the gates saw, as ``gated-domains predict`` writes them."""
        data = self._read(source, reading)
        return prediction_table(data, self.predictor.predict(data))

    def _read(self, source: Any, reading: Reading | None) -> NewData:
        schema = self.predictor.schema
        if isinstance(source, DomainDataset):
            if isinstance(source.inputs, Table):  # its columns were read without regard to those of training
                raise DataError(f"{source.name}: give the file, or a pandas or Arrow table, instead of a loaded table")
            return new_data_of(source, schema, targets=False)
        if isinstance(source, str | os.PathLike):
            return read_like(source, schema, targets=False, reading=reading)
        table = source if isinstance(source, pa.Table) else pa.Table.from_pandas(source, preserve_index=False)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "table.parquet")
            pq.write_table(table, path)
            return read_like(path, schema, targets=False, reading=reading)


def load_model(path: str | os.PathLike[str], *, device: str = "cpu", gates: GatesBy | None = None) -> LoadedModel:
    """Load the model of a run, a saved estimator, or an ONNX file.

    Parameters
    ----------
    path
        The folder of a run (or the first characters of its name), the folder of an estimator, or an ``.onnx`` file.
    device
        ``"cpu"`` or ``"cuda"``.
    gates
        What gates compare with the bases: ``"sample"``, ``"batch"`` or ``"stream"``; by default as in training.

    Returns
    -------
    LoadedModel

    Examples
    --------
    >>> import gated_domains as gd
    >>> run = gd.train("synthetic", method="erm", training={"epochs": 1}, progress=False)
    >>> gd.load_model(run.path).predict("synthetic").shape
    (1800,)
    """
    return LoadedModel(open_model(path, device=device, gates=gates))


def open_model(
    path: str | os.PathLike[str],
    *,
    device: str = "cpu",
    gates: GatesBy | None = None,
    window: int | None = None,
    half_life: float | None = None,
    alarm: bool = False,
    alarm_delta: float | None = None,
) -> Predictor:
    """The model in a run's folder (or one that begins with these letters), of a saved estimator, or in an ONNX file.

    ``gates`` None: as in training. ``window``: rows of a stream that gates average over, and ``half_life``: rows after
    which a row weighs half as much. ``alarm``: whether changes of a stream are detected, and ``alarm_delta``: the
    sensitivity of the alarm (0.05).
    """
    if not os.fspath(path):
        raise DataError(f"no model is named; give {_KNOWN}")
    path = expanded(path)
    chosen = {"window": window, "half-life": half_life}
    said = [f"a {name} of {value:g} rows" for name, value in chosen.items() if value is not None]
    if said and gates != "stream":
        raise DataError(f"{said[0]} is for gates of a stream; add --gates stream, or leave it out")
    delta = _alarm_delta(alarm, alarm_delta, gates)
    kind = kind_of(path)
    if kind == "run":
        by = _stream(window, half_life) if gates == "stream" else gates
        return RunPredictor.of(open_run_folder(path), device=device, gates=by, alarm_delta=delta)
    if kind == "onnx":
        from gated_domains.applying.of_onnx import OnnxPredictor

        return OnnxPredictor(path, gates=gates)
    from gated_domains.applying.of_estimator import EstimatorPredictor

    stream = _stream(window, half_life)
    return EstimatorPredictor(path, device=device, gates=gates, stream=stream, alarm_delta=delta)


def _alarm_delta(alarm: bool, delta: float | None, gates: GatesBy | None) -> float | None:
    if not alarm and delta is not None:
        raise DataError(f"an alarm delta of {delta:g} is for an alarm; add --alarm, or leave it out")
    if alarm and gates != "stream":
        raise DataError(NO_STREAM)
    return (DELTA if delta is None else delta) if alarm else None


def _stream(window: int | None, half_life: float | None) -> GateStream:
    try:
        return GateStream(window or WINDOW, half_life=half_life)
    except ValueError as error:
        raise DataError(f"gates of a stream: {error}") from error


def kind_of(path: Path) -> str:
    """What lies there, as far as names tell; refused where it is none of those known."""
    if path.is_dir():
        if (path / CARD).is_file():
            return "estimator"
        inside = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
        if not inside:
            raise DataError(f"{path} is an empty folder; give {_KNOWN}")
        if all(entry.suffix.lower() in PICKLES for entry in inside):
            raise DataError(f"{path} {_PICKLED}")
        return "run"
    if path.suffix.lower() in PICKLES:
        raise DataError(f"{path} {_PICKLED}" if path.exists() else f"{path}: there is no such file; give {_KNOWN}")
    if path.suffix.lower() == ".onnx":
        if not path.is_file():
            raise DataError(f"{path}: there is no such file; check the spelling")
        return "onnx"
    if path.exists():
        raise DataError(f"{path} is no model; give {_KNOWN}")
    return "run"  # its first letters, perhaps
