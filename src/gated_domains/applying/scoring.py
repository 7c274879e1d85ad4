"""Scores of predictions, where new data have targets."""

from __future__ import annotations

from gated_domains.data.errors import DataError
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.scores import DomainScores, Predicted, metric_for, score_by_domain


def score_new(data: NewData, predicted: Predicted) -> DomainScores:
    """The scores of predictions, by the new site's own domains."""
    if data.targets is None:
        raise DataError(f"{data.name} was read without targets: there is nothing to score")
    return score_by_domain(
        predicted.output,
        data.targets,
        domains=data.domains,
        domain_names=data.domain_names,
        metric=metric_for(data.task),
    )
