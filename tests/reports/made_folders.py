"""Small run folders made up for tests: ``result.json``, ``run.json``, ``model.json``, curves and predictions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from made_results import results
from numpy.typing import NDArray

from gated_domains.runs.collection import RunCollection, gather
from gated_domains.runs.result import RunResult

CLASSES = ("cat", "dog", "<b>eel</b>")
SCORES = {
    "gdu": {"mnist": [0.71, 0.75], "street": [0.62, 0.60], "usps": [0.91, 0.93]},
    "erm": {"mnist": [0.70, 0.68], "street": [0.64, 0.66], "usps": [0.88, 0.90]},
}


def folder_of_runs(root: Path, found: Iterable[RunResult] | None = None, **others: Any) -> Path:
    """A folder with a run folder for every result (unless given, those of ``SCORES``); ``others`` as in ``a_run``."""
    for number, result in enumerate(results(SCORES) if found is None else found):
        a_run(root / f"{number:04d}", result, **others)
    return root


def gathered(root: Path, found: Iterable[RunResult] | None = None, **others: Any) -> RunCollection:
    """The same, read again."""
    return gather([folder_of_runs(root, found, **others)])


def a_run(
    folder: Path,
    result: RunResult,
    *,
    epochs: int = 3,
    curve: Sequence[Mapping[str, Any]] | None = None,
    arrays: Mapping[str, NDArray[Any]] | None = None,
    class_names: Sequence[str] = CLASSES,
    rows: int = 40,
) -> Path:
    """One run folder. ``curve=()`` and ``arrays={}`` leave their file out."""
    folder.mkdir(parents=True)
    _write(folder / "result.json", result.to_json())
    _write(folder / "run.json", {"format": 1, "recipe": {"method": result.method}, "data": {"name": result.data}})
    _write(folder / "model.json", {"format": 1, "schema": {"class_names": list(class_names) or None}})
    records = a_curve(result, epochs) if curve is None else curve
    if records:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    found = some_predictions(result, rows, max(2, len(class_names))) if arrays is None else arrays
    if found:
        np.savez_compressed(folder / "predictions.npz", **found)
    return folder


def a_curve(result: RunResult, epochs: int = 3) -> list[dict[str, Any]]:
    """Records of epochs: the loss falls, the score climbs; a gated run has a penalty and measures."""
    gated = result.method == "gdu"
    return [
        {
            "epoch": epoch,
            "step": 10 * (epoch + 1),
            "seconds": float(epoch + 1),
            "rate": 0.001,
            "train": {"task": (1.5 + 0.1 * result.seed) / (epoch + 1), **({"reconstruction": 0.01} if gated else {})},
            "validation": {"metric": result.metric, "by_domain": {"usps": score}, "overall": score},
            "selection": score,
            "measures": {"gate_entropy": 0.8, "srip": 0.6 / (epoch + 1), "coverage": 0.7} if gated else {},
        }
        for epoch in range(epochs)
        for score in [0.5 + 0.1 * epoch + 0.01 * result.seed]
    ]


def some_predictions(result: RunResult, rows: int = 40, classes: int = 3) -> dict[str, NDArray[Any]]:
    """Probabilities of classes for as many validation as test rows, the same for the same run."""
    rng = np.random.default_rng([result.seed, *result.run.encode()])
    targets = rng.integers(0, classes, rows)
    output = rng.dirichlet(np.ones(classes), rows) + 0.7 * np.eye(classes)[targets]
    return {
        "rows": np.arange(rows),
        "part": np.repeat(np.array([0, 1], np.uint8), [rows // 2, rows - rows // 2]),
        "targets": targets,
        "domains": np.arange(rows) % 2,
        "output": (output / output.sum(axis=1, keepdims=True)).astype(np.float32),
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
