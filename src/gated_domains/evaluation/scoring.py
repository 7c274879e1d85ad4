"""Scorer: from what a model says of some rows of a data set to scores, by domains or as the publisher asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.groups import groups_among
from gated_domains.data.inputs import Rows
from gated_domains.data.published import TEST, Grouping, Published
from gated_domains.evaluation.metrics import Metric, metric_named
from gated_domains.evaluation.scores import DomainScores, has_score, score_by_domain

MOST_DOMAINS = 1_000
"""Rows of more domains than this are scored together: a scaffold of two molecules has no score to speak of."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Scorer:
    """Scores of rows of one data set in one metric.

    ``score_by`` names what groups are scored beside domains. With ``pooled`` all rows are one domain of that name. With
    ``official`` the groups, and what of the metric counts, are the publisher's; by domain there is then the one score
    that counts.
    """

    dataset: DomainDataset
    metric: Metric
    score_by: tuple[str, ...] = ()
    pooled: str | None = None
    official: bool = False

    def __call__(self, output: NDArray[Any], rows: Rows) -> DomainScores:
        data = self.dataset
        if self.official and data.published is not None:
            return official_scores(
                data.published, output, data.targets[rows], rows, metric=self.metric, name=self.pooled or TEST
            )
        domains, names = self._domains(rows)
        groups = groups_among(data, rows, self.score_by) if self.score_by else None
        return score_by_domain(
            output,
            data.targets[rows],
            domains=domains,
            domain_names=names,
            metric=self.metric,
            groups=None if groups is None else groups.index[rows],
            group_names=() if groups is None else groups.names,
        )

    def has_score(self, rows: Rows) -> bool:
        """Whether these rows have such a score, whatever is said of them; of groups that count, one must have it."""
        targets, published = self.dataset.targets, self.dataset.published
        if not len(rows) or not has_score(self.metric, targets[rows]):
            return False
        if not self.official or published is None or not _counts_groups(published, self.metric):
            return True
        return any(
            has_score(self.metric, targets[rows[of_each == place]])
            for of_each in (grouping.index[rows] for grouping in published.groupings)
            for place in np.unique(of_each[of_each >= 0])
        )

    def _domains(self, rows: Rows) -> tuple[NDArray[Any] | None, Sequence[str]]:
        if self.pooled is not None:
            return np.zeros(len(rows), np.int64), (self.pooled,)
        if self.dataset.domains is None or len(np.unique(self.dataset.domains[rows])) > MOST_DOMAINS:
            return None, ()
        return self.dataset.domains[rows], self.dataset.domain_names


def official_scores(
    published: Published,
    output: NDArray[Any],
    targets: NDArray[Any],
    rows: Rows,
    *,
    metric: Metric | None = None,
    name: str = TEST,
) -> DomainScores:
    """The score that counts for the publisher, as that of one domain called ``name``; the average case is ``overall``.

    ``targets`` and ``output`` are of these ``rows``. ``by_group`` has the groups that the publisher scores. In another
    metric than the published one, that of all rows counts.
    """
    metric = metric or metric_named(published.metric)
    groups: dict[str, float] = {}
    unscored: list[str] = []
    overall = None
    counted = published.groupings if metric.name == published.metric else ()
    for grouping in counted or (Grouping((), np.full(len(published.parts), -1)),):
        found = score_by_domain(
            output,
            targets,
            domains=None,
            domain_names=(),
            metric=metric,
            groups=grouping.index[rows],
            group_names=grouping.names,
        )
        overall = found.overall
        groups |= found.by_group or {}
        unscored += found.unscored_groups
    assert overall is not None
    scores = DomainScores(metric, {name: overall}, overall, groups or None, (), tuple(unscored))
    if not _counts_groups(published, metric):
        return scores
    if not groups:
        raise DataError(
            f"none of the groups that {published.name} is scored by has a score ({metric.label}) in these "
            f"{len(rows):,} rows; take more of the data"
        )
    counts = scores.percentile({"worst_group": 0, "percentile_10": 10}[published.statistic])
    return DomainScores(metric, {name: counts}, overall, groups, (), tuple(unscored))


def _counts_groups(published: Published, metric: Metric) -> bool:
    """Whether a group decides, and not all rows together."""
    return metric.name == published.metric and published.statistic != "overall"
