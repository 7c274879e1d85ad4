"""How well a model does: metrics, scores by domain, the rule that selects a model, calibration, statistics over runs.

Knows no method.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gated_domains.evaluation.calibration import fit_temperature, tempered
    from gated_domains.evaluation.metrics import METRICS, Metric, metric_for, metric_named, metrics_for
    from gated_domains.evaluation.scores import DomainScores, score_by_domain
    from gated_domains.evaluation.selection import SELECTION_RULES, SelectionRule, Selector
    from gated_domains.evaluation.statistics import (
        Interval,
        Paired,
        Record,
        Spread,
        bootstrap,
        holm,
        paired,
        record,
        spread,
        wilcoxon,
    )

# Imported when first asked for: computing scores brings torch, which tables of stored ones do without.
_HOMES = {
    "METRICS": "metrics",
    "SELECTION_RULES": "selection",
    "DomainScores": "scores",
    "Interval": "statistics",
    "Metric": "metrics",
    "Paired": "statistics",
    "Record": "statistics",
    "SelectionRule": "selection",
    "Selector": "selection",
    "Spread": "statistics",
    "bootstrap": "statistics",
    "fit_temperature": "calibration",
    "holm": "statistics",
    "metric_for": "metrics",
    "metric_named": "metrics",
    "metrics_for": "metrics",
    "paired": "statistics",
    "record": "statistics",
    "score_by_domain": "scores",
    "spread": "statistics",
    "tempered": "calibration",
    "wilcoxon": "statistics",
}

__all__ = [
    "METRICS",
    "SELECTION_RULES",
    "DomainScores",
    "Interval",
    "Metric",
    "Paired",
    "Record",
    "SelectionRule",
    "Selector",
    "Spread",
    "bootstrap",
    "fit_temperature",
    "holm",
    "metric_for",
    "metric_named",
    "metrics_for",
    "paired",
    "record",
    "score_by_domain",
    "spread",
    "tempered",
    "wilcoxon",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"gated_domains.evaluation.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gated_domains.evaluation' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
