"""Scores: one number a domain, the same over all rows, their mean and the worst; the same again over groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
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
    "has_score",
    "metric_for",
    "metric_named",
    "metrics_for",
    "score_by_domain",
    "significant",
]


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
