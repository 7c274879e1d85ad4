"""The control: a gated model beside a linear head on the same rows, and whether the difference can be told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gated_domains.evaluation.formulas import FORMULAS
from gated_domains.evaluation.metrics import Metric
from gated_domains.insight.doctor.findings import Finding

Outcome = Literal["better", "worse", "not told apart"]
_DRAWS, _FEW_DRAWS, _AT_ONCE = 2_000, 200, 1_000_000
NAME = "linear head"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Scores of both on some rows, and ``gated - linear`` with its 95 % interval."""

    part: str
    metric: Metric
    gated: float
    linear: float
    low: float
    high: float
    rows: int

    @property
    def difference(self) -> float:
        return self.gated - self.linear

    @property
    def outcome(self) -> Outcome:
        """What the interval says of the gated model; touching 0 says nothing."""
        gains = sorted(self.metric.as_gain(end) for end in (self.low, self.high))
        return "better" if gains[0] > 0 else "worse" if gains[1] < 0 else "not told apart"

    def describe(self) -> str:
        """In words: ``held out: 71.2 beside 70.9, +0.3 points (-0.8 to +1.4)``."""
        shown = self.metric.shown_difference
        return (
            f"{self.part} {self.metric.shown(self.gated)} beside {self.metric.shown(self.linear)}, "
            f"{shown(self.difference)}{self.metric.unit} ({shown(self.low)} to {shown(self.high)})"
        )

    def as_value(self) -> dict[str, Any]:
        """Its numbers."""
        named = ("gated", "linear", "difference", "low", "high", "rows", "outcome")
        return {name: getattr(self, name) for name in named}


def beside(
    part: str,
    metric: Metric,
    gated: NDArray[Any],
    linear: NDArray[Any],
    targets: NDArray[Any],
    *,
    groups: NDArray[np.int64] | None = None,
    seed: int = 0,
) -> Beside:
    """Both outputs against the targets; the interval by redrawing rows in pairs, within groups where there are some.

    2,000 times, or 200 for a metric that is no mean over rows, as many rows as there are (of a group) are drawn with
    replacement, the same for both; the interval lies between the 2.5th and the 97.5th percentile of the differences.
    """
    score = FORMULAS[metric.name]
    differences = _redrawn(metric, gated, linear, targets, _members(groups, len(targets)), seed)
    low, high = np.percentile(differences, [2.5, 97.5])
    return Beside(
        part=part,
        metric=metric,
        gated=score(gated, targets),
        linear=score(linear, targets),
        low=float(low),
        high=float(high),
        rows=len(targets),
    )


def finding(parts: Sequence[Beside], *, how: str, about: dict[str, Any] | None = None) -> Finding:
    """One finding of all parts: look where the gated model is worse on any. ``how`` says what the linear head is."""
    metric = parts[0].metric
    value = {"metric": metric.name, **(about or {}), **{part.part: part.as_value() for part in parts}}
    numbers = f"{metric.label}: {'; '.join(part.describe() for part in parts)}; {how}"
    outcomes = {part.outcome for part in parts}
    if "worse" in outcomes:
        where = " and ".join(part.part for part in parts if part.outcome == "worse")
        return Finding(
            name=NAME,
            level="look",
            value=value,
            says=f"a retrained linear head is better on {where} ({numbers})",
            cure="train longer, hold the deviations back (a larger deviation_decay or deviation_alpha, coverage on), "
            "or take the linear head",
        )
    if "better" in outcomes:
        where = " and ".join(part.part for part in parts if part.outcome == "better")
        says = f"better than a retrained linear head on {where} ({numbers})"
    else:
        says = f"not told apart: gates bring no more than a retrained linear head here ({numbers})"
    return Finding(name=NAME, level="ok", value=value, says=says)


def _members(groups: NDArray[np.int64] | None, rows: int) -> list[NDArray[np.int64]]:
    """The rows of each group, those of one with one."""
    if groups is None:
        return [np.arange(rows)]
    return [np.flatnonzero(groups == number) for number in np.unique(groups)]


def _redrawn(
    metric: Metric,
    gated: NDArray[Any],
    linear: NDArray[Any],
    targets: NDArray[Any],
    members: list[NDArray[np.int64]],
    seed: int,
) -> NDArray[np.float64]:
    """Differences of the metric over redrawn rows."""
    rng = np.random.default_rng(seed)
    a_row = _OF_ROWS.get(metric.name)
    if a_row is not None:
        terms, whole = a_row
        both = np.stack([terms(gated, targets), terms(linear, targets)])
        means = np.sum([_redrawn_sums(both[:, own], rng) for own in members], axis=0) / len(targets)
        return np.asarray(whole(means[0]) - whole(means[1]))
    score, found = FORMULAS[metric.name], []
    for _ in range(_FEW_DRAWS):
        drawn = np.concatenate([own[rng.integers(len(own), size=len(own))] for own in members])
        if metric.needs_variety and not varied(targets[drawn]):
            continue  # such rows have no score
        found.append(score(gated[drawn], targets[drawn]) - score(linear[drawn], targets[drawn]))
    return np.array(found or [0.0])


def varied(targets: NDArray[Any]) -> bool:
    """Whether some target, or some label, has more than one value."""
    return bool((np.nanmin(targets, axis=0) < np.nanmax(targets, axis=0)).any()) if len(targets) else False


def _redrawn_sums(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """(2, draws): sums over as many columns as there are, drawn with replacement, the same for both rows."""
    columns, counts = np.unique(values, axis=1, return_counts=True)
    if len(counts) < values.shape[1] // 4:
        # Of few different values (right or wrong, twice) it is enough to draw how often each comes up.
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
