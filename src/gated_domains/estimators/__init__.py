"""Gated Domain Units in scikit-learn's manners."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gated_domains.estimators.gated import GDUClassifier, GDURegressor
    from gated_domains.estimators.plain import ERMClassifier, ERMRegressor
    from gated_domains.estimators.saving import load_estimator

CARD = "estimator.json"
"""The file by which the folder of a saved estimator is known; here, where asking for it does not bring scikit-learn."""

# Imported when first asked for.
_HOMES = {
    "ERMClassifier": "plain",
    "ERMRegressor": "plain",
    "GDUClassifier": "gated",
    "GDURegressor": "gated",
    "load_estimator": "saving",
}

__all__ = ["ERMClassifier", "ERMRegressor", "GDUClassifier", "GDURegressor", "load_estimator"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"gated_domains.estimators.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gated_domains.estimators' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
