"""How well a model does: scores by domain, the rule that selects a model, statistics over runs. Knows no method."""

from gated_domains.evaluation.scores import METRICS, DomainScores, Metric, metric_for, score_by_domain
from gated_domains.evaluation.selection import SELECTION_RULES, SelectionRule, Selector
from gated_domains.evaluation.statistics import Paired, Spread, paired, spread

__all__ = [
    "METRICS",
    "SELECTION_RULES",
    "DomainScores",
    "Metric",
    "Paired",
    "SelectionRule",
    "Selector",
    "Spread",
    "metric_for",
    "paired",
    "score_by_domain",
    "spread",
]
