"""A trained model on new data: its predictions as a table, and its scores where there are targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import torch

from gated_domains.data.batches import place
from gated_domains.data.errors import DataError
from gated_domains.data.files import written_whole
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.calibration import tempered
from gated_domains.evaluation.scores import DomainScores, metric_for, score_by_domain
from gated_domains.experiments.model import Model
from gated_domains.training.predicting import Predicted, predict_rows

SUFFIXES = (".csv", ".parquet")


def predict_new(model: Model, data: NewData, *, device: str = "cpu") -> Predicted:
    """What the model says of every row, in order, at the temperature it was calibrated to."""
    samples = place(data, model.schema.encoding, device=torch.device(device))
    found = predict_rows(model.method.to(device), samples, np.arange(len(data)))
    return replace(found, output=tempered(found.output, model.temperature))


def score_new(data: NewData, predicted: Predicted) -> DomainScores:
    """The scores of predictions, by the new site's own domains."""
    if data.targets is None:
        raise DataError(f"{data.name} was read without targets: there is nothing to score")
    return score_by_domain(
        predicted.output,
        data.targets,
        domains=data.domains,
        domain_names=data.domain_names,
        metric=metric_for(data.task),
    )


def prediction_table(data: NewData, predicted: Predicted) -> pa.Table:
    """One line a row: where it comes from, the prediction, probabilities, and what the gates saw."""
    rows, ours = {"row": np.arange(len(data))}, _columns(data, predicted)
    # A column that was asked for is never lost to one of ours that is called the same.
    taken = {**rows, **ours}
    kept = {f"given {name}" if name in taken else name: values.tolist() for name, values in data.metadata.items()}
    return pa.table({name: pa.array(values) for name, values in {**rows, **kept, **ours}.items()})


def _columns(data: NewData, predicted: Predicted) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if data.domains is not None:
        columns["domain"] = [data.domain_names[index] for index in data.domains]
    if data.label_names is not None:
        names = np.array(data.label_names)
        columns["prediction"] = [", ".join(names[yes]) for yes in predicted.output > 0.5]  # the labels that are likely
        columns.update({f"p({name})": predicted.output[:, place] for place, name in enumerate(data.label_names)})
    elif data.class_names is None:
        columns["prediction"] = predicted.output[:, 0]
    else:
        columns["prediction"] = [data.class_names[index] for index in predicted.output.argmax(1)]
        columns["probability"] = predicted.output.max(1)
        columns.update({f"p({name})": predicted.output[:, place] for place, name in enumerate(data.class_names)})
    if predicted.residual is not None:
        columns["novelty"] = predicted.residual
    if predicted.coverage is not None:
        columns["coverage"] = predicted.coverage
    if predicted.beta is not None:
        columns.update({f"gate {place + 1}": predicted.beta[:, place] for place in range(predicted.beta.shape[1])})
    return columns


def predictions_path(path: Path) -> Path:
    """A path that predictions can be written to; refused before anything is computed."""
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(
            f"{path}: predictions are written as .csv or .parquet, not {path.suffix or 'without a suffix'!r}"
        )
    return path


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as its suffix says, whole or not at all."""
    with written_whole(predictions_path(path)) as draft:
        if path.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(table, draft)
        else:
            pyarrow.parquet.write_table(table, draft)
