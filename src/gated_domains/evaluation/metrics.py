"""Metrics by name, and the rules that select an epoch by them. Scores are computed elsewhere: no torch here.

Only one rule, the oracle, is shown the held-out domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean, listing

if TYPE_CHECKING:
    from gated_domains.evaluation.scores import DomainScores

Task = Literal["classes", "number", "labels"]
DEFAULT_MARGIN = 0.5
"""Points of a score in percent within which two methods are called practically equal."""
AUTO = "auto"
"""As the name of a metric: the usual one for the task."""
_LEAST_PROBABILITY = 1e-12  # one confidently wrong row must not decide


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A score of outputs against targets: which way is better, what it is of, and how it is written for people.

    It is computed in ``formulas.py``, which needs torch; tables and figures do without.
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """What the model of an epoch said of the rows that decide, and how well that scored."""

    epoch: int
    output: NDArray[Any]
    targets: NDArray[Any]
    scores: DomainScores


@dataclass(frozen=True, kw_only=True)
class SelectionRule:
    """From the evidence of an epoch to a number that is maximised.

    ``rows`` says whose rows are the evidence: validation rows of the sources, those of a source domain kept apart from
    training, or, for the oracle alone, the held-out rows themselves. A rule that cannot tell before the end that it is
    over does not ``stop_early``.
    """

    name: str
    words: str
    number: Callable[[Evidence], float]
    rows: Literal["validation", "kept_apart", "held_out"] = "validation"
    stop_early: bool = True
    by_score: bool = True
    """Whether the metric decides; it is then named beside the rule."""

    def __call__(self, evidence: Evidence) -> float:
        return self.number(evidence)

    @property
    def oracle(self) -> bool:
        """Whether it looks at what it will be scored on."""
        return self.rows == "held_out"

    def label(self, metric: Metric) -> str:
        """The rule as it stands under a table: ``mean source validation accuracy``."""
        return f"{self.words} {metric.label}" if self.by_score else self.words


def _overall(evidence: Evidence) -> float:
    return evidence.scores.metric.as_gain(evidence.scores.overall)


def _mean(evidence: Evidence) -> float:
    return evidence.scores.metric.as_gain(evidence.scores.mean)


def _mean_over_domains(evidence: Evidence) -> float:
    """The mean over domains; over all rows where no domain has a score, as AUROC has none of a single class."""
    scores = evidence.scores
    return _mean(evidence) if scores.by_domain else _overall(evidence)


def _worst_class(evidence: Evidence) -> float:
    """The smallest share of a class that is told right."""
    if evidence.output.shape[1] < 2:
        raise DataError("there is no worst class where a number is predicted; select by source_validation")
    right = evidence.output.argmax(axis=1) == evidence.targets
    return min(float(right[evidence.targets == label].mean()) for label in np.unique(evidence.targets))


def validation_loss(output: NDArray[Any], targets: NDArray[Any]) -> float:
    """Minus the mean logarithm of the truth's probability (of labels, where known); of numbers, the squared error."""
    values = output.astype(np.float64)
    if targets.ndim == 2:
        known = ~np.isnan(targets)
        said = np.where(targets == 1, values, 1 - values)[known]
        return float(-np.log(said.clip(_LEAST_PROBABILITY)).mean())
    if values.shape[1] == 1:
        return float(np.mean((values[:, 0] - targets) ** 2))
    return float(-np.log(values[np.arange(len(values)), targets].clip(_LEAST_PROBABILITY)).mean())


def _loss(evidence: Evidence) -> float:
    return -validation_loss(evidence.output, evidence.targets)


def fixed_epoch(epoch: int, *, score: float) -> SelectionRule:
    """The rule that keeps one epoch, which something else has chosen by this score, and needs none after it."""
    number = lambda evidence: score - abs(evidence.epoch - epoch)  # noqa: E731
    return SelectionRule(name="fixed_epoch", words=f"epoch {epoch + 1}", number=number, by_score=False)


_RULES = (
    SelectionRule(name="source_validation", words="mean source validation", number=_mean_over_domains),
    SelectionRule(name="source_pooled", words="pooled source validation", number=_overall),
    SelectionRule(name="source_loss", words="source validation loss", number=_loss, by_score=False),
    SelectionRule(name="official", words="published out-of-distribution validation", number=_mean),
    SelectionRule(name="worst_class", words="worst class on source validation", number=_worst_class, by_score=False),
    SelectionRule(name="out_of_domain", words="out-of-domain validation", number=_mean, rows="kept_apart"),
    SelectionRule(name="leave_one_source_out", words="leave-one-source-out", number=_mean, rows="kept_apart"),
    SelectionRule(
        name="last",
        words="the last epoch",
        number=lambda evidence: float(evidence.epoch),
        stop_early=False,
        by_score=False,
    ),
    SelectionRule(name="oracle", words="ORACLE, by the held-out domain itself:", number=_mean, rows="held_out"),
)
SELECTION_RULES = {rule.name: rule for rule in _RULES}


@dataclass
class Selector:
    """Remembers the best epoch; among equals the earlier one. Asks to stop after ``patience`` epochs without a better.

    A score that is NaN or infinite is never the best. ``patience=None`` never asks to stop.
    """

    patience: int | None = None
    best: float | None = field(default=None, init=False)
    best_epoch: int | None = field(default=None, init=False)
    wait: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise DataError(f"patience must be 1 epoch or more, got {self.patience}; leave it out to never stop early")

    def update(self, epoch: int, score: float) -> bool:
        """Take in an epoch's number; whether it is the best so far."""
        if math.isfinite(score) and (self.best is None or score > self.best):
            self.best, self.best_epoch, self.wait = float(score), epoch, 0
            return True
        self.wait += 1
        return False

    @property
    def stop(self) -> bool:
        """Whether patience is at its end."""
        return self.patience is not None and self.wait >= self.patience

    def state(self) -> dict[str, Any]:
        """What a resumed training needs, as plain JSON; a float survives JSON to the last bit."""
        return {"best": self.best, "best_epoch": self.best_epoch, "wait": self.wait}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; ``patience`` stays what this selector was made with."""
        self.best, self.best_epoch, self.wait = state["best"], state["best_epoch"], state["wait"]
