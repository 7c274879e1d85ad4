"""Scores: one number a domain, the same over all rows, their mean and the worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean


@dataclass(frozen=True)
class Metric:
    """A score of outputs against targets, which way is better, and how it is written for people."""

    name: str
    label: str
    score: Callable[[NDArray[Any], NDArray[Any]], float]
    higher_is_better: bool
    percent: bool

    def better(self, one: float, other: float) -> bool:
        """Whether one score is strictly better than another."""
        return one > other if self.higher_is_better else one < other

    def best_of(self, values: Iterable[float]) -> float:
        return max(values) if self.higher_is_better else min(values)

    def worst_of(self, values: Iterable[float]) -> float:
        return min(values) if self.higher_is_better else max(values)

    def as_gain(self, value: float) -> float:
        """The score as a number to be maximised."""
        return value if self.higher_is_better else -value

    def shown(self, value: float) -> str:
        """The score for people: ``71.2`` (percent, one decimal), or three significant digits."""
        text = f"{100 * value:.1f}" if self.percent else significant(value)
        # A rounded zero has no sign.
        return text.removeprefix("-") if not text.strip("-0.") else text

    def shown_difference(self, value: float) -> str:
        """A difference of two scores for people, with its sign: ``+0.3``."""
        text = self.shown(value)
        return text if text.startswith("-") or not text.strip("0.") else f"+{text}"

    @property
    def unit(self) -> str:
        """What a difference is counted in, to be put after it: `` points``, or nothing."""
        return " points" if self.percent else ""


def significant(value: float, digits: int = 3) -> str:
    """``0.0123``, ``12.3``, ``12300``: significant digits, without an exponent where that stays short."""
    if value == 0 or not np.isfinite(value):
        return f"{value:.{digits - 1}f}"
    rounded = float(f"{value:.{digits - 1}e}")
    before = int(np.floor(np.log10(abs(rounded)))) + 1
    return f"{rounded:.{max(0, digits - before)}f}" if -3 <= before <= 9 else f"{value:.{digits - 1}e}"


def _accuracy(output: NDArray[Any], targets: NDArray[Any]) -> float:
    return float((output.argmax(axis=1) == targets).mean())


def _rmse(output: NDArray[Any], targets: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean((output[:, 0].astype(np.float64) - targets) ** 2)))


METRICS = {
    "accuracy": Metric("accuracy", "accuracy", _accuracy, higher_is_better=True, percent=True),
    "rmse": Metric("rmse", "root mean squared error", _rmse, higher_is_better=False, percent=False),
}


def metric_named(name: str) -> Metric:
    """A metric by its name."""
    if name not in METRICS:
        raise DataError(f"there is no metric {name!r}{did_you_mean(name, METRICS)}")
    return METRICS[name]


def metric_for(num_classes: int | None) -> Metric:
    """Accuracy for classes, root mean squared error where a number is predicted."""
    return METRICS["rmse" if num_classes is None else "accuracy"]


@dataclass(frozen=True)
class DomainScores:
    """Scores of one model: by domain (those that have rows), and over all rows together."""

    metric: Metric
    by_domain: Mapping[str, float]
    overall: float

    @property
    def mean(self) -> float:
        """The mean over domains, each counting the same."""
        return float(np.mean(list(self.by_domain.values())))

    @property
    def worst(self) -> float:
        """The worst domain's score: the lowest accuracy, the largest error."""
        return self.metric.worst_of(self.by_domain.values())

    def as_json(self) -> dict[str, Any]:
        return {"metric": self.metric.name, "by_domain": dict(self.by_domain), "overall": self.overall}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> DomainScores:
        by_domain = {str(name): float(value) for name, value in stored["by_domain"].items()}
        return cls(metric_named(stored["metric"]), by_domain, float(stored["overall"]))


def score_by_domain(
    output: NDArray[Any],
    targets: NDArray[Any],
    *,
    domains: NDArray[Any] | None,
    domain_names: Sequence[str],
    metric: Metric,
) -> DomainScores:
    """The score of every domain that has rows. ``output``: probabilities (rows, classes), or numbers (rows, 1).

    ``domains`` are indices into ``domain_names``; without them all rows are one group, ``all``.
    """
    _check(output, targets, metric)
    if domains is None:
        domains, domain_names = np.zeros(len(targets), np.int64), ("all",)
    elif len(domains) != len(targets):
        raise DataError(f"{len(targets):,} targets but {len(domains):,} domains; there must be one for each")
    present = np.unique(domains)
    if present[0] < 0 or present[-1] >= len(domain_names):
        outside = present[0] if present[0] < 0 else present[-1]
        raise DataError(f"domain {outside} is outside 0 to {len(domain_names) - 1}, the domains that have names")
    by_domain = {
        domain_names[index]: metric.score(output[domains == index], targets[domains == index])
        for index in present.tolist()
    }
    return DomainScores(metric, by_domain, metric.score(output, targets))


def _check(output: NDArray[Any], targets: NDArray[Any], metric: Metric) -> None:
    if output.ndim != 2 or targets.ndim != 1 or len(output) != len(targets):
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
    if targets.dtype.kind in "iu" and metric.name == "accuracy" and targets.max() >= output.shape[1]:
        raise DataError(f"a target is class {targets.max()}, but outputs are for {output.shape[1]} classes")
