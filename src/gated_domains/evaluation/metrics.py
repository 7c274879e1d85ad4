"""Metrics by name: what they are called, which way is better, how they are written for people. Computes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gated_domains.data.errors import DataError, did_you_mean, listing

Task = Literal["classes", "number", "labels"]
DEFAULT_MARGIN = 0.5
"""Points of a score in percent within which two methods are called practically equal."""
AUTO = "auto"
"""As the name of a metric: the usual one for the task."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A score of outputs against targets: which way is better, what it is of, and how it is written for people.

    How it is computed stands in ``formulas.py``, which needs torch; tables and pictures do without.
    """

    name: str
    label: str
    higher_is_better: bool
    percent: bool
    of: Task
    """What it scores: probabilities of classes, numbers, or probabilities of labels."""
    needs_variety: bool = False
    """Whether rows that share one target have no such score, whatever is said of them."""

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

    def margin(self, points: float | None = None) -> float | None:
        """Differences smaller than this are practically none, in units of the score.

        ``points`` is the margin as differences are printed; by default 0.5 for scores in percent, and none for others.
        """
        check_margin(points)
        if points is None and not self.percent:
            return None
        return (DEFAULT_MARGIN if points is None else points) / (100 if self.percent else 1)

    @property
    def unit(self) -> str:
        """What a difference is counted in, to be put after it: `` points``, or nothing."""
        return " points" if self.percent else ""


def significant(value: float, digits: int = 3) -> str:
    """``0.0123``, ``12.3``, ``12300``: significant digits, without an exponent where that stays short."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.{digits - 1}f}"
    rounded = float(f"{value:.{digits - 1}e}")
    before = math.floor(math.log10(abs(rounded))) + 1
    return f"{rounded:.{max(0, digits - before)}f}" if -3 <= before <= 9 else f"{value:.{digits - 1}e}"


# The first of each kind is the usual one.
_ALL = (
    Metric(name="accuracy", label="accuracy", higher_is_better=True, percent=True, of="classes"),
    Metric(name="f1", label="macro F1", higher_is_better=True, percent=True, of="classes"),
    Metric(
        name="average_precision", label="average precision", higher_is_better=True, percent=True, of="classes",
        needs_variety=True,
    ),
    Metric(name="auroc", label="AUROC", higher_is_better=True, percent=True, of="classes", needs_variety=True),
    Metric(name="ece", label="expected calibration error", higher_is_better=False, percent=True, of="classes"),
    Metric(name="log_loss", label="log loss", higher_is_better=False, percent=False, of="classes"),
    Metric(name="rmse", label="root mean squared error", higher_is_better=False, percent=False, of="number"),
    Metric(name="mse", label="mean squared error", higher_is_better=False, percent=False, of="number"),
    Metric(
        name="pearson", label="Pearson correlation", higher_is_better=True, percent=False, of="number",
        needs_variety=True,
    ),
    Metric(
        name="mean_average_precision", label="mean average precision", higher_is_better=True, percent=True, of="labels",
        needs_variety=True,
    ),
    Metric(
        name="mean_auroc", label="mean AUROC", higher_is_better=True, percent=True, of="labels", needs_variety=True
    ),
)  # fmt: skip
METRICS = {metric.name: metric for metric in _ALL}


def check_margin(points: float | None) -> None:
    """Refuse a margin that is not a positive number; None stands for the default."""
    if points is not None and not (points > 0 and math.isfinite(points)):
        raise DataError(f"the margin must be a number above 0, in the units differences are printed in; got {points}")


def metric_named(name: str) -> Metric:
    """A metric by its name."""
    if name not in METRICS:
        raise DataError(f"there is no metric {name!r}{did_you_mean(name, METRICS)}")
    return METRICS[name]


def metrics_for(task: Task) -> tuple[Metric, ...]:
    """All metrics that apply where classes, a number or labels are predicted; the usual one first."""
    return tuple(metric for metric in _ALL if metric.of == task)


def metric_for(task: Task, name: str = AUTO) -> Metric:
    """The metric of that name, refused where it does not apply; unnamed, accuracy for classes and RMSE for numbers."""
    able = metrics_for(task)
    if name == AUTO:
        return able[0]
    metric = metric_named(name)
    if metric not in able:
        scores = {"classes": "classes", "number": "numbers", "labels": "labels"}[metric.of]
        have = {"classes": "classes are", "number": "a number is", "labels": "labels are"}[task]
        raise DataError(
            f"the metric {name!r} scores {scores}, and here {have} predicted; "
            f"metrics for these data: {listing(metric.name for metric in able)}"
        )
    return metric
