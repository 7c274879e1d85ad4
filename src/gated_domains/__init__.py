"""Gated Domain Units: train on several sources, hold up on one never seen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Public names and where they live; imported when first asked for, so that `choose` works without torch.
_HOMES = {
    "AcrossDomains": "gated_domains.methods.across_domains",
    "Backbone": "gated_domains.backbones",
    "Between": "gated_domains.settings.search",
    "Comparison": "gated_domains.reports.table",
    "CosineGate": "gated_domains.layer",
    "DomainBatch": "gated_domains.data",
    "DomainDataset": "gated_domains.data",
    "ERMClassifier": "gated_domains.estimators",
    "ERMRegressor": "gated_domains.estimators",
    "ERMSettings": "gated_domains.methods.erm",
    "GDUClassifier": "gated_domains.estimators",
    "GDURegressor": "gated_domains.estimators",
    "GateStream": "gated_domains.layer",
    "GateWarning": "gated_domains.common.validation",
    "GatedDomainUnits": "gated_domains.layer",
    "GatedOutput": "gated_domains.layer",
    "Hardware": "gated_domains.training.engine",
    "InnerProducts": "gated_domains.layer",
    "LoadedModel": "gated_domains.applying.opening",
    "METHODS": "gated_domains.methods",
    "MMDGate": "gated_domains.layer",
    "Method": "gated_domains.methods",
    "Prediction": "gated_domains.methods",
    "Problem": "gated_domains.methods",
    "ProjectionGate": "gated_domains.layer",
    "Reading": "gated_domains.data",
    "Run": "gated_domains.experiments.train",
    "Settings": "gated_domains.settings",
    "compare": "gated_domains.experiments.compare",
    "examine": "gated_domains.insight.doctor",
    "export_model": "gated_domains.export",
    "fit_head": "gated_domains.backbones",
    "gate_norms": "gated_domains.backbones",
    "hold_outs": "gated_domains.data",
    "load_data": "gated_domains.data",
    "load_dataset": "gated_domains.data",
    "load_estimator": "gated_domains.estimators",
    "load_model": "gated_domains.applying.opening",
    "model_head": "gated_domains.backbones",
    "open_run": "gated_domains.experiments.train",
    "renew_head": "gated_domains.backbones",
    "replace_head": "gated_domains.backbones",
    "suggest_num_bases": "gated_domains.choose",
    "suggest_sigma": "gated_domains.choose",
    "train": "gated_domains.experiments.train",
}

if TYPE_CHECKING:
    from gated_domains.applying.opening import LoadedModel, load_model
    from gated_domains.backbones import Backbone, fit_head, gate_norms, model_head, renew_head, replace_head
    from gated_domains.choose import suggest_num_bases, suggest_sigma
    from gated_domains.data import DomainBatch, DomainDataset, Reading, hold_outs, load_data, load_dataset
    from gated_domains.estimators import ERMClassifier, ERMRegressor, GDUClassifier, GDURegressor, load_estimator
    from gated_domains.experiments.compare import compare
    from gated_domains.experiments.train import Run, open_run, train
    from gated_domains.export import export_model
    from gated_domains.insight.doctor import examine
    from gated_domains.layer import (
        CosineGate,
        GatedDomainUnits,
        GatedOutput,
        GateStream,
        GateWarning,
        InnerProducts,
        MMDGate,
        ProjectionGate,
    )
    from gated_domains.methods import METHODS, Method, Prediction, Problem
    from gated_domains.methods.across_domains import AcrossDomains
    from gated_domains.methods.erm import ERMSettings
    from gated_domains.reports.table import Comparison
    from gated_domains.settings import Settings
    from gated_domains.settings.search import Between
    from gated_domains.training.engine import Hardware

__all__ = [
    "METHODS",
    "AcrossDomains",
    "Backbone",
    "Between",
    "Comparison",
    "CosineGate",
    "DomainBatch",
    "DomainDataset",
    "ERMClassifier",
    "ERMRegressor",
    "ERMSettings",
    "GDUClassifier",
    "GDURegressor",
    "GateStream",
    "GateWarning",
    "GatedDomainUnits",
    "GatedOutput",
    "Hardware",
    "InnerProducts",
    "LoadedModel",
    "MMDGate",
    "Method",
    "Prediction",
    "Problem",
    "ProjectionGate",
    "Reading",
    "Run",
    "Settings",
    "__version__",
    "compare",
    "examine",
    "export_model",
    "fit_head",
    "gate_norms",
    "hold_outs",
    "load_data",
    "load_dataset",
    "load_estimator",
    "load_model",
    "model_head",
    "open_run",
    "renew_head",
    "replace_head",
    "suggest_num_bases",
    "suggest_sigma",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'gated_domains' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
