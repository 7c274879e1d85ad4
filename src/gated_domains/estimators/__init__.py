"""Gated Domain Units in scikit-learn's manners."""

from gated_domains.estimators.gated import GDUClassifier, GDURegressor
from gated_domains.estimators.plain import ERMClassifier, ERMRegressor
from gated_domains.estimators.saving import load_estimator

__all__ = ["ERMClassifier", "ERMRegressor", "GDUClassifier", "GDURegressor", "load_estimator"]
