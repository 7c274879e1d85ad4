"""How well a model does: metrics, scores by domain, the rule that selects a model, calibration, statistics over runs.

Knows no method.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gated_domains.evaluation.calibration import fit_temperature, tempered
    from gated_domains.evaluation.metrics import (
        METRICS,
        SELECTION_RULES,
        Metric,
        SelectionRule,
        Selector,
        metric_for,
        metric_named,
        metrics_for,
    )
    from gated_domains.evaluation.scores import DomainScores, score_by_domain
    from gated_domains.evaluation.statistics import (
        Effect,
        Interval,
        RandomEffects,
        Record,
        Spread,
        decide,
        domain_record,
        domains_to_decide,
        equivalent,
        holm,
        new_domain_effect,
        random_effects,
        sign_flip_p,
        spread,
        these_domains_effect,
        welch_effect,
    )

# Imported when first asked for: computing scores brings torch, which tables of stored ones do without.
_HOMES = {
    "METRICS": "metrics",
    "SELECTION_RULES": "metrics",
    "DomainScores": "scores",
    "Effect": "statistics",
    "Interval": "statistics",
    "Metric": "metrics",
    "RandomEffects": "statistics",
    "Record": "statistics",
    "SelectionRule": "metrics",
    "Selector": "metrics",
    "Spread": "statistics",
    "decide": "statistics",
    "domain_record": "statistics",
    "domains_to_decide": "statistics",
    "equivalent": "statistics",
    "fit_temperature": "calibration",
    "holm": "statistics",
    "metric_for": "metrics",
    "metric_named": "metrics",
    "metrics_for": "metrics",
    "new_domain_effect": "statistics",
    "random_effects": "statistics",
    "score_by_domain": "scores",
    "sign_flip_p": "statistics",
    "spread": "statistics",
    "tempered": "calibration",
    "these_domains_effect": "statistics",
    "welch_effect": "statistics",
}

__all__ = [
    "METRICS",
    "SELECTION_RULES",
    "DomainScores",
    "Effect",
    "Interval",
    "Metric",
    "RandomEffects",
    "Record",
    "SelectionRule",
    "Selector",
    "Spread",
    "decide",
    "domain_record",
    "domains_to_decide",
    "equivalent",
    "fit_temperature",
    "holm",
    "metric_for",
    "metric_named",
    "metrics_for",
    "new_domain_effect",
    "random_effects",
    "score_by_domain",
    "sign_flip_p",
    "spread",
    "tempered",
    "these_domains_effect",
    "welch_effect",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"gated_domains.evaluation.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gated_domains.evaluation' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
