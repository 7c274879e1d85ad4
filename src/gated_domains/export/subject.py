"""Subject: what is exported, wherever it comes from: a trained run, or a fitted estimator."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError
from gated_domains.experiments.model import Model
from gated_domains.export.estimator_schema import schema_of_estimator
from gated_domains.layer.experts import Prediction
from gated_domains.layer.units import GatedDomainUnits
from gated_domains.methods import METHODS
from gated_domains.methods.gdu import GDU

Gates = Literal["sample", "batch"]
_NO_GATES = "{label} has no gates that could be by {gates}; leave --gates out"


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """A trained network, how its inputs are read, and what there is to say of it."""

    network: nn.Module
    schema: Schema
    kind: Literal["run", "estimator"]
    name: str
    what: str
    gates: Gates = "sample"
    temperature: float = 1.0
    scale: float | tuple[float, ...] | None = None
    """Of the training targets, where numbers are predicted and it is known; one for each of several."""
    numbers: int = 1
    """How many, where numbers are predicted."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    body: str | None = None
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    """Of the run it comes from."""

    @property
    def units(self) -> GatedDomainUnits | None:
        """The gated layer, where it has one."""
        found = getattr(self.network, "units", None)
        return found if isinstance(found, GatedDomainUnits) else None

    @property
    def exact(self) -> bool:
        """Whether its inputs are taken in float64: an estimator scales them itself, and an offset must not cost any."""
        return self.kind == "estimator"

    @property
    def instead(self) -> str:
        """What to do where it cannot be exported."""
        return "ship the run's folder" if self.kind == "run" else "ship the folder of estimator.save(folder)"

    def encode(self, raw: Tensor) -> Tensor:
        """Prepared samples as the network takes them."""
        return raw.double() if self.exact else self.schema.encoding.tensor(raw)

    def predict(self, network: nn.Module, inputs: Tensor) -> Prediction:
        """What the network, or a copy of it, says of encoded samples."""
        said: Any = network.predict
        return said(inputs) if self.kind == "run" or self.units is None else said(inputs, gates=self.gates)

    @property
    def task(self) -> Literal["classes", "labels", "number"]:
        """What is predicted."""
        if self.schema.class_names is not None:
            return "classes"
        return "number" if self.schema.label_names is None else "labels"

    @property
    def view(self) -> nn.Module | None:
        """What standardises the view that gates see of a raw vector, if gates see that."""
        backbone = getattr(self.network, "backbone", None)
        return backbone.standardised if isinstance(backbone, Backbone) and backbone.sees_raw_input else None


def subject_of_model(model: Model, *, gates: Gates | None, folder: Path | None = None) -> Subject:
    """A trained model to be exported, its gates as it was trained unless others are asked for."""
    network, kind = model.method, METHODS[model.spec.method]
    gates = gates or ("batch" if getattr(network, "test_gates", "sample") == "batch" else "sample")
    if network.batchwise and not isinstance(network, GDU):
        raise DataError(
            f"{kind.label} cannot be exported: what it says of a sample hangs on the samples beside it, and of a "
            "single one it says something else, which one graph for all batch sizes cannot; ship the run's folder"
        )
    return Subject(
        network=with_gates(network, gates, label=kind.label),
        schema=model.schema,
        kind="run",
        name=kind.label,
        what=kind.what,
        gates=gates,
        temperature=model.temperature,
        scale=model.spec.scale if model.schema.class_names is None and model.schema.label_names is None else None,
        settings=dict(model.spec.settings),
        body=model.spec.body,
        trained_on=dict(model.trained_on),
        folder=folder,
    )


def subject_of_estimator(estimator: Any, *, gates: Gates | None) -> Subject:
    """A fitted estimator to be exported: vectors in, by the columns it was fitted on."""
    network = estimator.network_
    if not isinstance(network, nn.Module):
        raise DataError(f"{type(estimator).__name__}.network_ is no network but {type(network).__name__}; fit it first")
    network = copy.deepcopy(network).cpu()
    schema = schema_of_estimator(estimator)
    domains = getattr(estimator, "domains_", None)
    counts = getattr(estimator, "domain_counts_", None)
    label = type(estimator).__name__
    if gates == "batch" and getattr(network, "units", None) is None:
        raise DataError(_NO_GATES.format(label=label, gates=gates))
    return Subject(
        network=network,
        schema=schema,
        kind="estimator",
        name=label,
        # Backticks mark code in a docstring, and would be shown as they are in a card.
        what=(type(estimator).__doc__ or "").strip().split("\n")[0].rstrip(".").replace("`", ""),
        gates=gates or "sample",
        scale=_scale(network) if schema.class_names is None else None,
        settings={name: _written(value) for name, value in estimator.get_params(deep=False).items()},
        numbers=int(getattr(estimator, "outputs_", 1)),
        trained_on={
            "domains": [] if domains is None else [str(name) for name in domains],
            "domain_counts": [] if counts is None else [int(count) for count in counts],
        },
    )


def with_gates(network: nn.Module, gates: Gates, *, label: str) -> nn.Module:
    """The network with gates by sample or by batch; a copy where that changes it."""
    now = getattr(network, "test_gates", "sample")
    if now == gates:
        return network
    if not hasattr(network, "test_gates") or not isinstance(getattr(network, "units", None), GatedDomainUnits):
        raise DataError(_NO_GATES.format(label=label, gates=gates))
    changed: Any = copy.deepcopy(network)
    changed.test_gates = gates
    if hasattr(changed, "batchwise"):
        changed.batchwise = gates == "batch"
    return changed


def _scale(network: Any) -> tuple[float, ...]:
    """Of each number that an estimator predicts."""
    return tuple(network.outputs.scale.tolist())


def _written(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
