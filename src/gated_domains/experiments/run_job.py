"""A run between its recipe and its result: what must be made, its training before the first step, what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightning_fabric import Fabric
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding
from gated_domains.data.splits import HoldOut
from gated_domains.experiments.model import Shape
from gated_domains.experiments.recipe import Recipe
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.layer.tasks import Task
from gated_domains.methods import Method
from gated_domains.training.callbacks.progress import ProgressCallback
from gated_domains.training.trainer import Outcome, Trainer
from gated_domains.training.training_data import TrainingData


@dataclass(frozen=True, eq=False, kw_only=True)
class RunJob:
    """A run that must be made: its recipe, what it reads and where it writes."""

    recipe: Recipe
    split: HoldOut
    dataset: DomainDataset
    """The data as its sources have it: what columns are, and which classes there are."""
    encoding: Encoding
    material: TrainingData
    shape: Shape
    task: Task
    folder: RunFolder
    fabric: Fabric
    before: Sequence[RunFolder]
    choosing: Sequence[RunFolder]
    watcher: ProgressCallback | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Ready:
    """A training before its first step, and the seconds that features took."""

    training: Trainer
    extracting: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Made:
    """What came of a run."""

    method: Method
    outcome: Outcome
    predicted: dict[str, NDArray[Any]]
    temperature: float
    notes: list[str]
    peak_memory: int | None = None
    """In bytes; None where it is not known, as of several that share a process."""
