"""Small data that can be learned, methods on it, and trainings of seconds: what the tests of those share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import yaml
from lightning_fabric import Fabric
from torch import Tensor

from gated_domains.backbones.bodies import MLP, Body, SmallCNN
from gated_domains.data.batches import DomainBatch, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import fit_encoding
from gated_domains.evaluation.metrics import SELECTION_RULES, SelectionRule
from gated_domains.methods import METHODS, Classes, Method, Numbers, Problem, Terms
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.training.callbacks.base import Callback, MetricsLog, MetricsWriter, ProgressCallback
from gated_domains.training.callbacks.checkpoint import Checkpoint
from gated_domains.training.engine import Hardware
from gated_domains.training.trainer import Outcome, Trainer
from gated_domains.training.training_data import FrozenBody, TrainingData

CLASSES, DOMAINS = 3, 3


def vectors(rows: int = 240, *, regression: bool = False, seed: int = 0) -> DomainDataset:
    """Six numbers a row: the first three tell the target, the others the domain."""
    rng = np.random.default_rng(seed)
    domains, classes = np.arange(rows) % DOMAINS, rng.integers(CLASSES, size=rows)
    values = rng.normal(size=(rows, 6))
    values[np.arange(rows), classes] += 3
    values[np.arange(rows), 3 + domains] += 5
    targets = 100 + 2 * values[:, 0] - values[:, 1] if regression else classes
    task = "regression" if regression else "classification"
    return DomainDataset.from_arrays(values.astype(np.float32), targets, domains, name="vectors", task=task)


def pictures(rows: int = 240, *, seed: int = 0) -> DomainDataset:
    """Images of 8 x 8 pixels: a bright third tells the class, the colours of all of it the domain."""
    rng = np.random.default_rng(seed)
    domains, classes = np.arange(rows) % DOMAINS, rng.integers(CLASSES, size=rows)
    values = rng.integers(60, size=(rows, 8, 8, 3))
    for row in range(rows):
        values[row, :, 3 * classes[row] : 3 * classes[row] + 3] += 90
        values[row, :, :, domains[row]] += 90
    return DomainDataset.from_arrays(values.astype(np.uint8), classes, domains, name="pictures")


DATASETS = {"images": pictures, "vectors": vectors, "numbers": partial(vectors, regression=True)}


def material(dataset: DomainDataset, *, train: int = 160, validation: int = 60, device: str = "cpu") -> TrainingData:
    """The first rows to train on, the next for validation, the rest held out."""
    rows = np.arange(len(dataset))
    samples = place(dataset, fit_encoding(dataset, rows[:train]), device=device)
    return TrainingData(
        dataset=dataset, samples=samples, train=rows[:train], validation=rows[train : train + validation]
    )  # fmt: skip


def problem(dataset: DomainDataset, body: Body | None = None, *, task: Any = None) -> Problem:
    """What a method is built for; ``body`` in place of a small one. The domains are those of all rows."""
    shape = tuple(fit_encoding(dataset, np.arange(len(dataset))).shape)
    made = (lambda: SmallCNN(shape)) if len(shape) == 3 else (lambda: MLP(shape, (16, 8)))
    counts = [] if dataset.domains is None else np.unique(dataset.domains, return_counts=True)[1].tolist()
    return Problem(
        kind=dataset.inputs.kind,
        shape=shape,
        outputs=dataset.num_classes or 1,
        task=task or (Numbers(100.0, 4.0) if dataset.num_classes is None else Classes()),
        make_body=made if body is None else (lambda: body),
        domains=tuple(counts),
    )


def build(
    name: str,
    dataset: DomainDataset,
    *,
    mode: str = "end_to_end",
    seed: int = 0,
    body: Body | None = None,
    task: Any = None,
    settings: Mapping[str, Any] | None = None,
) -> Method:
    """A method by name, with weights drawn from a seed; for fine-tuning on a frozen body.

    ``gdu[train_gates=batch]`` is a name with settings.
    """
    torch.manual_seed(seed)
    chosen = problem(dataset, body, task=task)
    if mode == "fine_tune":
        chosen = problem(dataset, FrozenBody(chosen.make_body()), task=task)
    name, _, inside = name.partition("[")
    written = {key: yaml.safe_load(value) for key, value in re.findall(r"(\w+)=([^,\]]+)", inside)}
    kind = METHODS[name]
    return kind.build(kind.settings_type(**written, **(settings or {})), chosen, mode=mode)


@cache
def fabric_of(device: str = "cpu", precision: str = "32") -> Fabric:
    return Hardware(device=device, devices=1).fabric(precision)


def cpu(precision: str = "32") -> Fabric:
    return fabric_of("cpu", precision)


class Unwrapped:
    """A method's objective as a step takes it, without a wrapper; in half precision where it is asked for."""

    def __init__(self, method: Method, *, half: bool = False) -> None:
        self.method, self.half = method, half

    def __call__(self, batch: DomainBatch) -> Terms:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            return self.method.objective(batch)

    def backward(self, loss: Tensor) -> None:
        loss.backward()


class Records(list):
    """A journal in memory."""

    def append_metrics(self, record: dict[str, Any]) -> None:
        self.append(record)

    def keep_metrics(self, through_step: int) -> None:
        self[:] = [record for record in self if record["step"] <= through_step]

    def timeless(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in record.items() if name != "seconds"} for record in self]


def training(
    method: Method,
    data: TrainingData,
    *,
    seed: int = 0,
    precision: str = "32",
    journal: MetricsLog | None = None,
    progress: ProgressCallback | None = None,
    checkpoint: Checkpoint | None = None,
    rule: SelectionRule = SELECTION_RULES["source_validation"],
    **more: Any,
) -> Trainer:
    """A training where its data are; ``more`` are its settings."""
    settings = TrainingSettings(**{"epochs": 3, "batch_size": 32, "rate": 1e-2, "precision": precision, **more})
    fabric = fabric_of(data.samples.device.type, precision)
    callbacks = given(None if journal is None else MetricsWriter(journal), progress, checkpoint)
    return Trainer(method, data, settings, fabric=fabric, seed=seed, rule=rule, callbacks=callbacks)


def given(*callbacks: Callback | None) -> list[Callback]:
    """Those that are not None."""
    return [callback for callback in callbacks if callback is not None]


def train(method: Method, data: TrainingData, **more: Any) -> Outcome:
    return training(method, data, **more).fit()


def weights(method: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in method.state_dict().items()}


def identical(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two states are the same to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())
