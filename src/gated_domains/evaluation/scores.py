"""Predictions and their scores: by domain, over all rows, mean and worst, by groups, or as the publisher asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Rows
from gated_domains.data.labels import groups_among
from gated_domains.data.published import TEST, Grouping, Published
from gated_domains.evaluation.metrics import (
    METRICS,
    Metric,
    metric_for,
    metric_named,
    metrics_for,
    significant,
)
from gated_domains.evaluation.statistics import percentile

__all__ = [
    "METRICS",
    "DomainScores",
    "Metric",
    "Predicted",
    "Scorer",
    "has_score",
    "metric_for",
    "metric_named",
    "metrics_for",
    "official_scores",
    "score_by_domain",
    "significant",
]
MOST_DOMAINS = 1_000
"""Rows of more domains than this are scored together: a scaffold of two molecules has no score to speak of."""


@dataclass(frozen=True)
class Predicted:
    """Predictions of rows, in their order."""

    output: NDArray[Any]
    beta: NDArray[Any] | None = None
    residual: NDArray[Any] | None = None
    coverage: NDArray[Any] | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is there, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class DomainScores:
    """Scores of one model: by domain (those that have one), and over all rows together.

    ``by_group`` has scores by other groups than domains, where those were asked for. Domains and groups whose rows have
    no such score, as one of one class has no AUROC, are named in ``unscored`` and ``unscored_groups``; no mean holds
    them.
    """

    metric: Metric
    by_domain: Mapping[str, float]
    overall: float
    by_group: Mapping[str, float] | None = None
    unscored: tuple[str, ...] = ()
    unscored_groups: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """The mean over domains, each counting the same."""
        return float(np.mean(self._known(self.by_domain)))

    @property
    def worst(self) -> float:
        """The worst domain's score: the lowest accuracy, the largest error."""
        return self.metric.worst_of(self._known(self.by_domain))

    @property
    def worst_group(self) -> float:
        """The worst group's score; without other groups a domain is one."""
        return self.percentile(0)

    def percentile(self, k: int) -> float:
        """The score that k percent of the groups fall short of, between two of them on the line that joins them.

        WILDS takes the 10th over users. It is counted from the bad end: the 10th of errors is an error that 10 % of the
        groups exceed. ``percentile(0)`` is the worst group.
        """
        groups = self.by_domain if self.by_group is None else self.by_group
        return percentile(self._known(groups), k, higher_is_better=self.metric.higher_is_better)

    def _known(self, scores: Mapping[str, float]) -> list[float]:
        if not scores:
            raise DataError(f"no domain or group by itself has a score: {_why(self.metric)}; choose another metric")
        return list(scores.values())

    def as_json(self) -> dict[str, Any]:
        stored: dict[str, Any] = {
            "metric": self.metric.name, "by_domain": dict(self.by_domain), "overall": self.overall
        }  # fmt: skip
        if self.by_group is not None:
            stored["by_group"] = dict(self.by_group)
        for name, missing in (("unscored", self.unscored), ("unscored_groups", self.unscored_groups)):
            if missing:
                stored[name] = list(missing)
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> DomainScores:
        """Scores as ``as_json`` stored them."""
        by_group = stored.get("by_group")
        return cls(
            metric_named(stored["metric"]),
            {str(name): float(value) for name, value in stored["by_domain"].items()},
            float(stored["overall"]),
            None if by_group is None else {str(name): float(value) for name, value in by_group.items()},
            tuple(map(str, stored.get("unscored", ()))),
            tuple(map(str, stored.get("unscored_groups", ()))),
        )


def score_by_domain(
    output: NDArray[Any],
    targets: NDArray[Any],
    *,
    domains: NDArray[Any] | None,
    domain_names: Sequence[str],
    metric: Metric,
    groups: NDArray[Any] | None = None,
    group_names: Sequence[str] = (),
) -> DomainScores:
    """The score of every domain that has rows.

    ``output`` has probabilities (rows, classes or labels), or numbers (rows, 1).
    ``domains`` are indices into ``domain_names``; without them all rows are one domain, ``all``. ``groups`` are indices
    into ``group_names``, -1 for a row of none. A metric that all rows together have no score in is refused.
    """
    # Here, not above: descriptions of metrics and stored scores need no torch.
    from gated_domains.evaluation.formulas import FORMULAS

    _check(output, targets, metric)
    if domains is None:
        domains, domain_names = np.zeros(len(targets), np.int64), ("all",)
    if not has_score(metric, targets):
        raise DataError(f"{len(targets):,} rows have no {metric.label}: {_why(metric)}; choose another metric")
    formula = FORMULAS[metric.name]

    def of_each(index: NDArray[Any], names: Sequence[str], what: str) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        places = _present(index, len(targets), names, what)
        # Sorted once: of thousands of domains each would otherwise look at all rows.
        order = np.argsort(index, kind="stable")
        ends = np.searchsorted(index[order], places, side="right")
        starts = np.searchsorted(index[order], places, side="left")
        for place, start, end in zip(places, starts, ends, strict=True):
            own = order[start:end]
            found[names[place]] = formula(output[own], targets[own]) if has_score(metric, targets[own]) else None
        return found

    by_domain = of_each(domains, domain_names, "domain")
    by_group = {} if groups is None else of_each(groups, group_names, "group")
    return DomainScores(
        metric,
        {name: score for name, score in by_domain.items() if score is not None},
        formula(output, targets),
        None if groups is None else {name: score for name, score in by_group.items() if score is not None},
        tuple(name for name, score in by_domain.items() if score is None),
        tuple(name for name, score in by_group.items() if score is None),
    )


def has_score(metric: Metric, targets: NDArray[Any]) -> bool:
    """Whether rows with these targets have such a score; of several methods scored on them, all have it or none."""
    if metric.of == "labels":
        return bool(((targets == 1).any(axis=0) & (targets == 0).any(axis=0)).any())
    return not metric.needs_variety or bool((targets != targets[0]).any())


def _present(index: NDArray[Any], rows: int, names: Sequence[str], what: str) -> list[int]:
    """The domains or groups that have rows; one without a name is refused. A row may be of no group."""
    if len(index) != rows:
        raise DataError(f"{rows:,} targets but {len(index):,} {what}s; there must be one for each")
    present: list[int] = np.unique(index).tolist()
    if what == "group" and present[0] == -1:
        present = present[1:]
    outside = [place for place in present if not 0 <= place < len(names)]
    if outside:
        raise DataError(f"{what} {outside[0]} is outside 0 to {len(names) - 1}, the {what}s that have names")
    return present


def _why(metric: Metric) -> str:
    return {
        "classes": "their targets are all of one class",
        "number": "their targets are all the same",
        "labels": "no label is known to be both yes and no among them",
    }[metric.of]


def _check(output: NDArray[Any], targets: NDArray[Any], metric: Metric) -> None:
    if metric.of == "labels" and targets.ndim == 1:
        metric_for("classes" if targets.dtype.kind in "iu" else "number", metric.name)
    if metric.of != "labels" and targets.ndim == 2 and targets.shape == output.shape:
        metric_for("labels", metric.name)
    wanted = output.shape if metric.of == "labels" else output.shape[:1]
    if output.ndim != 2 or targets.shape != wanted:
        shapes = f"{output.shape} and {targets.shape}"
        raise DataError(f"outputs must be (rows, classes) or (rows, 1) and targets (rows,), got {shapes}")
    if not len(targets):
        raise DataError(f"there are no rows to take the {metric.label} of")
    finite = np.isfinite(output).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise DataError(
            f"the output of row {row} is {output[row].tolist()[:5]} ({int((~finite).sum()):,} such rows of "
            f"{len(output):,}): the model has diverged; lower the learning rate, or train in 32 bits"
        )
    if metric.of == "labels":
        return
    if metric.of == "number":
        metric_for("number" if output.shape[1] == 1 else "classes", metric.name)
        return
    metric_for("classes" if targets.dtype.kind in "iu" else "number", metric.name)
    outside = targets.min() if targets.min() < 0 else targets.max()
    if not 0 <= outside < output.shape[1]:
        raise DataError(f"a target is class {outside}, but outputs are for {output.shape[1]} classes")


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
