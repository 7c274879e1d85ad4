"""A trained model with gates, opened: what gates and experts see of rows, and the rows that it was trained on."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.applying.of_estimator import where_missing
from gated_domains.applying.of_run import RunPredictor
from gated_domains.applying.opening import kind_of
from gated_domains.backbones.backbone import Backbone, evaluating
from gated_domains.data.batches import place
from gated_domains.data.dataset import DomainDataset, Schema
from gated_domains.data.errors import DataError, expanded
from gated_domains.data.inputs import Rows
from gated_domains.data.labels import Reading
from gated_domains.data.like import read_like
from gated_domains.data.new_data import NewData
from gated_domains.data.sampling import InOrder
from gated_domains.estimators.estimator import NetworkEstimator
from gated_domains.estimators.gated import Gated
from gated_domains.evaluation.scores import Predicted
from gated_domains.experiments.recipe_checks import read_recipe
from gated_domains.experiments.run_features import runner_of
from gated_domains.experiments.runner import Runner
from gated_domains.export.estimator_schema import schema_of_estimator
from gated_domains.layer.units import GatedDomainUnits
from gated_domains.methods.gdu import GDU
from gated_domains.runs.folder import RECIPE, RunFolder, open_run_folder
from gated_domains.runs.recipe import Recipe
from gated_domains.training.engine import Hardware
from gated_domains.training.training_data import LARGE_BATCH, LOOK_BATCH, has_large_body

_NO_GATES = "{what} has no gates to look at: {label} is no gated model; open one that has (gdu, GDUClassifier)"


class Looked(NamedTuple):
    """Rows as a model sees them, and what it says of each by itself, whatever its gates are of in service."""

    view: Float[Tensor, "rows gating"]
    """What gates see."""
    features: Float[Tensor, "rows features"]
    """What experts see."""
    predicted: Predicted


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedOn:
    """The rows that a model was trained on, those of the same domains that it was not, and those of domains held out.

    Targets are known everywhere. ``validation`` and ``held_out`` are None where there are none.
    """

    train: NewData
    validation: NewData | None
    held_out: NewData | None

    @property
    def unseen(self) -> NewData | None:
        """Validation rows of the domains that were trained on; None where there are no two, or they are of others."""
        rows, train = self.validation, self.train
        if rows is None or len(rows) < 2:
            return None
        if rows.domains is not None and train.domains is not None and not np.isin(rows.domains, train.domains).all():
            return None  # it was selected by a domain that it was not trained on
        return rows

    @property
    def familiar(self) -> NewData:
        """Rows of the domains of training that were not trained on, where there are some; else those that were."""
        return self.train if self.unseen is None else self.unseen


class GatedModel(ABC):
    """A trained model with gates. ``name`` is where it lies, ``label`` what it is, ``sources`` its known domains."""

    name: str
    label: str
    sources: tuple[str, ...]

    @property
    @abstractmethod
    def units(self) -> GatedDomainUnits:
        """The gated layer."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """How new data are read."""

    @abstractmethod
    def look(self, data: NewData) -> Looked:
        """What the model sees and says of these rows, in order."""

    @abstractmethod
    def trained_on(
        self,
        what: str | os.PathLike[str] | None = None,
        *,
        reading: Reading | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> TrainedOn:
        """The rows it was trained on: of a run those of its recipe, read again; of an estimator ``what`` is named."""


class GatedRun(GatedModel):
    """The gated model of a run's folder."""

    def __init__(self, folder: RunFolder, *, device: str = "cpu") -> None:
        self.folder = folder
        self.predictor = RunPredictor.of(folder, device=device)
        method = self.predictor.method
        if not isinstance(method, GDU):
            raise DataError(_NO_GATES.format(what=folder.path, label=method.label))
        method.predict_by("sample")
        self.method = method
        self.name, self.label = str(folder.path), method.label
        self.sources = tuple(self.predictor.sources)

    @property
    def units(self) -> GatedDomainUnits:
        return self.method.units

    @property
    def schema(self) -> Schema:
        return self.predictor.schema

    @torch.no_grad()
    def look(self, data: NewData) -> Looked:
        samples = place(data, self.schema.encoding, device=self.predictor.device)
        at_once = LARGE_BATCH if has_large_body(self.method) else LOOK_BATCH
        backbone = cast(Backbone, self.method.backbone)
        with evaluating(self.method):
            batches = samples.input_batches(InOrder(np.arange(len(data)), at_once))
            seen = [(backbone.look(inputs), self.method.features(inputs)) for inputs in batches]
        view, features = (torch.cat(parts) for parts in zip(*seen, strict=True))
        return Looked(view, features, self.predictor.predict(data))

    def trained_on(
        self,
        what: str | os.PathLike[str] | None = None,
        *,
        reading: Reading | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> TrainedOn:
        """``what`` names the data where they have moved; other data than those of training are refused."""
        runner = self.runner(what, data_dir=data_dir)
        dataset, split = runner.planner.known_classes(self.recipe)
        train, *others = (
            as_new_data(dataset.take(rows)) if len(rows) else None
            for rows in (split.train, split.validation, split.test)
        )
        assert train is not None
        return TrainedOn(train=train, validation=others[0], held_out=others[1])

    def runner(
        self,
        what: str | os.PathLike[str] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        hardware: Hardware | None = None,
    ) -> Runner:
        """Makes runs of the same data beside this one; other data than those of training are refused."""
        return runner_of(self.folder, self.predictor.model, what, data_dir=data_dir, hardware=hardware)

    @property
    def recipe(self) -> Recipe:
        """What was asked for."""
        return read_recipe(self.folder.path / RECIPE)


class GatedEstimator(GatedModel):
    """A fitted gated estimator."""

    def __init__(self, estimator: NetworkEstimator, *, name: str | None = None) -> None:
        label = type(estimator).__name__
        if not isinstance(estimator, Gated):
            raise DataError(_NO_GATES.format(what=name or label, label=label))
        self.estimator = estimator
        self.name, self.label = name or label, label
        self.sources = tuple(str(domain) for domain in estimator.domains_)

    @property
    def units(self) -> GatedDomainUnits:
        return self.estimator.network_.units

    @property
    def schema(self) -> Schema:
        return schema_of_estimator(self.estimator)

    def table(self, data: NewData) -> Any:
        """The rows as ``fit`` takes them: with names, as scikit-learn wants them from whoever fitted with names."""
        values = self.schema.encoding.prepare(data.inputs).read(np.arange(len(data)))
        names = getattr(self.estimator, "feature_names_in_", None)
        return values if names is None else pd.DataFrame(values, columns=names)

    def look(self, data: NewData) -> Looked:
        rows = self.table(data)
        try:
            standard = self.estimator.standard(rows)
            return Looked(standard, standard, self.estimator.predicted(rows))
        except ValueError as error:  # NaN, in scikit-learn's words
            names = getattr(self.estimator, "feature_names_in_", None)
            raise DataError(f"{data.name}: {error}{where_missing(np.asarray(rows), names)}") from error

    def trained_on(
        self,
        what: str | os.PathLike[str] | None = None,
        *,
        reading: Reading | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> TrainedOn:
        """Rows of ``what``; those of domains that the estimator was not fitted on are held out."""
        if what is None:
            raise DataError(
                f"{self.name}: a saved estimator does not hold the rows it was fitted on; name the file (--data FILE "
                "--target COLUMN, and --domain COLUMN where one names the domains)"
            )
        data = read_like(what, self.schema, targets=True, reading=reading, data_dir=data_dir)
        if data.domains is None or not self.sources:
            return TrainedOn(train=data, validation=None, held_out=None)
        seen = np.isin(np.array(data.domain_names), self.sources)[data.domains]
        if not seen.any():
            raise DataError(
                f"{data.name} has none of the domains that {self.name} was fitted on, "
                f"{', '.join(self.sources)}; name the file of training"
            )
        return TrainedOn(
            train=data.take(np.flatnonzero(seen)), validation=None, held_out=_part(data, np.flatnonzero(~seen))
        )


def open_gated(path: str | os.PathLike[str], *, device: str = "cpu") -> GatedModel:
    """The gated model in a run's folder (or one that begins with these letters), or of a saved estimator."""
    place = expanded(path)
    kind = kind_of(place)
    if kind == "run":
        return GatedRun(open_run_folder(place), device=device)
    if kind == "onnx":
        raise DataError(
            f"{place} holds a graph, and nothing of what its gates were made from; name the run's folder or the saved "
            "estimator that it was exported from"
        )
    from gated_domains.estimators.saving import load_estimator

    estimator = load_estimator(Path(place)).set_params(device=torch.device(device).type)
    return GatedEstimator(estimator, name=str(place))


def as_new_data(dataset: DomainDataset) -> NewData:
    """The very data of training, so that nothing has to be matched."""
    return NewData(
        name=dataset.name,
        inputs=dataset.inputs,
        class_names=dataset.answers,
        label_names=dataset.label_names,
        targets=dataset.targets,
        domains=dataset.domains,
        domain_names=dataset.domain_names,
        metadata=dataset.metadata,
        notes=dataset.notes,
    )


def _part(data: NewData, rows: Rows) -> NewData | None:
    return data.take(rows) if len(rows) else None
