"""Two models on the same rows: the difference of their scores, and its 95 % interval over redrawn rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gated_domains.evaluation.formulas import FORMULAS
from gated_domains.evaluation.metrics import Metric

Outcome = Literal["better", "worse", "not significant"]
OF_ONE_SEED = "95 % intervals over rows of one seed, not over seeds or domains"
_DRAWS, _FEW_DRAWS, _AT_ONCE = 2_000, 200, 1_000_000
_ROUNDING = 1e-6  # of a score: less is no difference


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Scores of two models on the same rows, and ``first - second`` with its 95 % interval."""

    part: str
    metric: Metric
    first: float
    second: float
    low: float
    high: float
    rows: int

    @property
    def difference(self) -> float:
        return self.first - self.second

    @property
    def outcome(self) -> Outcome:
        """How the first model compares with the second; an interval that touches 0 is not significant."""
        gains = sorted(self.metric.as_gain(end) for end in (self.low, self.high))
        rounding = _ROUNDING * max(abs(self.first), abs(self.second))
        return "better" if gains[0] > rounding else "worse" if gains[1] < -rounding else "not significant"

    @property
    def negligible(self) -> bool:
        """Whether the whole interval is within the margin of practical equality, 0.5 points of a score in percent."""
        margin = self.metric.margin() or _ROUNDING * max(abs(self.first), abs(self.second))
        return max(abs(self.low), abs(self.high)) <= margin

    def describe(self) -> str:
        """In words: ``held out 71.2 against 70.9, +0.3 points (-0.8 to +1.4)``."""
        shown = self.metric.shown_difference
        return (
            f"{self.part} {self.metric.shown(self.first)} against {self.metric.shown(self.second)}, "
            f"{shown(self.difference)}{self.metric.unit} ({shown(self.low)} to {shown(self.high)})"
        )

    def as_value(self, first: str, second: str) -> dict[str, Any]:
        """Its numbers, the scores under the names of the models."""
        others = ("difference", "low", "high", "rows", "outcome")
        return {first: self.first, second: self.second, **{name: getattr(self, name) for name in others}}


def compare_paired(
    part: str,
    metric: Metric,
    first: NDArray[Any],
    second: NDArray[Any],
    targets: NDArray[Any],
    *,
    within: NDArray[np.int64] | None = None,
    together: NDArray[Any] | None = None,
    seed: int = 0,
) -> Paired:
    """Both outputs against the targets; the interval by a paired bootstrap over rows.

    2,000 times, or 200 for a metric that is no mean over rows, as many rows as there are are drawn with replacement,
    the same for both models; the interval lies between the 2.5th and the 97.5th percentile of the differences. Rows are
    drawn within the strata ``within`` (domains), and rows of one cluster of ``together`` (a patient) are drawn as one.
    """
    score = FORMULAS[metric.name]
    drawing = _Drawing.of(len(targets), within, together)
    differences = _redrawn(metric, first, second, targets, drawing, seed)
    low, high = np.percentile(differences, [2.5, 97.5])
    return Paired(
        part=part,
        metric=metric,
        first=score(first, targets),
        second=score(second, targets),
        low=float(low),
        high=float(high),
        rows=len(targets),
    )


@dataclass(frozen=True, eq=False)
class _Drawing:
    """Which rows are drawn as one (``clusters``, the rows of each), and which of these clusters a stratum has."""

    clusters: list[NDArray[np.int64]]
    strata: list[NDArray[np.int64]]

    @classmethod
    def of(cls, rows: int, within: NDArray[np.int64] | None, together: NDArray[Any] | None) -> _Drawing:
        keys = [np.zeros(rows, np.int64) if within is None else np.unique(within, return_inverse=True)[1]]
        keys.append(np.arange(rows) if together is None else np.unique(together, return_inverse=True)[1])
        # A cluster that lies in two strata is two clusters.
        pairs, cluster = np.unique(np.stack(keys, 1), axis=0, return_inverse=True)
        order = np.argsort(cluster.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(cluster.ravel()))[:-1]
        strata = [np.flatnonzero(pairs[:, 0] == number) for number in np.unique(pairs[:, 0])]
        return cls(np.split(order, ends), strata)

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums over the rows of each cluster: (kinds, rows) to (kinds, clusters)."""
        starts = np.cumsum([0, *map(len, self.clusters)])[:-1]
        return np.add.reduceat(values[:, np.concatenate(self.clusters)], starts, axis=1)

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Rows of as many clusters as each stratum has, drawn with replacement."""
        drawn = [own[rng.integers(len(own), size=len(own))] for own in self.strata]
        return np.concatenate([self.clusters[number] for number in np.concatenate(drawn)])


def _redrawn(
    metric: Metric,
    first: NDArray[Any],
    second: NDArray[Any],
    targets: NDArray[Any],
    drawing: _Drawing,
    seed: int,
) -> NDArray[np.float64]:
    """Differences of the metric over redrawn rows."""
    rng = np.random.default_rng(seed)
    a_row = _OF_ROWS.get(metric.name)
    if a_row is not None:
        terms, whole = a_row
        each = drawing.sums(np.stack([terms(first, targets), terms(second, targets), np.ones(len(targets))]))
        sums = np.sum([_redrawn_sums(each[:, own], rng) for own in drawing.strata], axis=0)
        return np.asarray(whole(sums[0] / sums[2]) - whole(sums[1] / sums[2]))
    score, found = FORMULAS[metric.name], []
    for _ in range(_FEW_DRAWS):
        drawn = drawing.draw(rng)
        if metric.needs_variety and not varied(targets[drawn]):
            continue  # such rows have no score
        found.append(score(first[drawn], targets[drawn]) - score(second[drawn], targets[drawn]))
    return np.array(found or [0.0])


def varied(targets: NDArray[Any]) -> bool:
    """Whether some target, or some label, has more than one value."""
    return bool((np.nanmin(targets, axis=0) < np.nanmax(targets, axis=0)).any()) if len(targets) else False


def _redrawn_sums(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """(kinds, draws): sums over as many columns as there are, drawn with replacement, the same for all kinds."""
    columns, counts = np.unique(values, axis=1, return_counts=True)
    if len(counts) < values.shape[1] // 4:
        # Where values repeat (right or wrong, twice), it is enough to draw how often each occurs.
        times = rng.multinomial(values.shape[1], counts / counts.sum(), size=_DRAWS)
        return columns @ times.T.astype(np.float64)
    size, found = values.shape[1], []
    at_once = max(1, _AT_ONCE // size)
    for start in range(0, _DRAWS, at_once):
        drawn = rng.integers(size, size=(min(at_once, _DRAWS - start), size))
        found.append(values[:, drawn].sum(-1))
    return np.concatenate(found, axis=1)


def _right(output: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.float64]:
    return (output.argmax(1) == targets).astype(np.float64)


def _squared(output: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray((output[:, 0].astype(np.float64) - targets) ** 2)


_Terms = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float64]]
# Metrics that are a function of a mean over rows: what each row adds, and the function.
_OF_ROWS: dict[str, tuple[_Terms, Callable[[NDArray[np.float64]], NDArray[np.float64]]]] = {
    "accuracy": (_right, lambda mean: mean),
    "rmse": (_squared, np.sqrt),
}
