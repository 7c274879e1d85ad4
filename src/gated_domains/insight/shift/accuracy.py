"""The accuracy that a model will probably have at a new site, learned from sources that models had not seen.

Of every source domain a model trained on the others says how sure it is (its largest probability) and how familiar the
rows are (coverage); whether it is right is known. From these rows

    P(right) = sigmoid(logit(confidence) + a + b logit(confidence) + c (1 - coverage))

with a ridge on a, b and c: where there is little to learn from, the estimate is the plain mean confidence. Every
domain weighs the same. How good that is, each of them tells in turn: it is estimated by what the others taught.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, listing
from gated_domains.insight.shift.correctness import Rows, Weights, checked_confidence, checked_coverage, fit, right

LEVEL = 0.9
FORMAT = 1
WIDEST = 0.4
"""An interval that is wider leaves no point estimate."""
MOSTLY = 0.5
"""Of rows outside what was seen (familiarity 0), more than which leave no point estimate."""
OUTSIDE = "most of its rows are outside what was seen"
WIDE = f"its interval is wider than {100 * WIDEST:.0f} points"


@dataclass(frozen=True, eq=False, kw_only=True)
class LeftOut:
    """What a model that never saw this source domain says of its rows, and whether it is right.

    ``confidence`` is the largest probability of each row; ``coverage`` is None where the model has none. ``of_sources``
    is the accuracy of that model on rows of its own sources, which no estimate exceeds; None where it is not known.
    """

    name: str
    confidence: NDArray[Any]
    coverage: NDArray[Any] | None
    correct: NDArray[Any]
    of_sources: float | None = None


@dataclass(frozen=True, kw_only=True)
class AccuracyEstimate:
    """An accuracy that was not measured, the 90 % interval around it, and how far off such estimates were.

    ``value`` is None where most rows are outside what was seen or the interval is wider than 40 points; ``reason`` says
    which, and ``raw`` is the estimate all the same, for whoever measures how good it is. ``error`` is the mean absolute
    error over the left-out sources, NaN where there was one only and it is not known; the interval then is 0 to 1.
    ``confidence`` is the plain mean confidence, for comparison.
    """

    value: float | None
    low: float
    high: float
    error: float
    confidence: float
    raw: float
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class AccuracyCalibration:
    """How much confidence and coverage are worth on unseen domains, as left-out sources taught it.

    ``weights`` are a, b and c, the last None without coverage. Of every left-out domain ``measured`` holds the true
    accuracy, ``confidence`` the mean confidence, ``estimated`` what the others said of it (nothing where it is alone).
    ``of_sources`` is the accuracy of the model itself on rows of its sources, which no estimate exceeds; None: it is
    not known.
    """

    weights: Weights
    estimated: dict[str, float]
    measured: dict[str, float]
    confidence: dict[str, float]
    of_sources: float | None = None

    @property
    def errors(self) -> dict[str, float]:
        """Estimated minus true accuracy of every left-out domain, by a calibration that had not seen it."""
        return {name: value - self.measured[name] for name, value in self.estimated.items()}

    @property
    def confidence_errors(self) -> dict[str, float]:
        """The same of the plain mean confidence."""
        return {name: value - self.measured[name] for name, value in self.confidence.items()}

    @property
    def error(self) -> float:
        """The mean absolute error; NaN where there is one left-out domain."""
        return float(np.mean(np.abs(list(self.errors.values())))) if self.errors else math.nan

    def estimate(
        self,
        confidence: NDArray[Any],
        coverage: NDArray[Any] | None = None,
        *,
        most: float | None = None,
        groups: NDArray[Any] | None = None,
    ) -> AccuracyEstimate:
        """The accuracy on rows of a new site.

        It is never above ``most``, the accuracy on rows of the sources, by default ``of_sources``. ``groups`` hold a
        label for every row: rows that share one (a patient) are taken to be right or wrong together.
        """
        sure = checked_confidence("the new site", confidence)
        if self.weights[2] is None:
            covered = None
        elif coverage is None:
            raise DataError("this calibration was learned with coverage; give the coverage of the new rows, too")
        else:
            covered = checked_coverage("the new site", coverage, len(sure))
        chances = right(sure, covered, self.weights)
        most = self.of_sources if most is None else most
        value = min(float(chances.mean()), 1.0 if most is None else most)
        sizes = np.ones(len(sure)) if groups is None else np.unique(groups, return_counts=True)[1]
        low, high = self._interval(value, float((chances * (1 - chances)).mean() * (sizes**2).sum()) / len(sure) ** 2)
        reason = WIDE if high - low > WIDEST else ""
        if coverage is not None and float((np.asarray(coverage) <= 0).mean()) > MOSTLY:
            reason, low, high = OUTSIDE, 0.0, 1.0
        return AccuracyEstimate(
            value=None if reason else value,
            low=low,
            high=high,
            error=self.error,
            confidence=float(sure.mean()),
            raw=value,
            reason=reason,
        )

    def _interval(self, value: float, chance: float) -> tuple[float, float]:
        errors = np.array(list(self.errors.values()))
        if len(errors) < 2:
            return 0.0, 1.0
        # Here, not above: whoever only reads a calibration needs no scipy.
        from scipy.special import ndtri, stdtrit

        # Few domains say little about how far off the next may be: a t-quantile of one degree of freedom less, and
        # root mean square errors, which count a common bias as an error.
        upper = (1 + LEVEL) / 2
        reach = math.hypot(
            float(stdtrit(len(errors) - 1, upper)) * math.sqrt(float(np.mean(errors**2))),
            float(ndtri(upper)) * math.sqrt(chance),
        )
        return max(0.0, value - reach), min(1.0, value + reach)

    def describe(self) -> dict[str, Any]:
        """Itself in plain words and numbers, for a JSON file."""
        return {
            "format": FORMAT,
            "weights": list(self.weights),
            "of_sources": self.of_sources,
            "domains": [
                {
                    "name": name,
                    "estimated": self.estimated.get(name),
                    "measured": measured,
                    "confidence": self.confidence[name],
                }
                for name, measured in self.measured.items()
            ],
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> AccuracyCalibration:
        """What ``describe`` gave; refuses what it cannot have given."""
        try:
            return cls._described(description)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"the description of an accuracy calibration is damaged ({error!r}); calibrate the model again"
            ) from error

    @classmethod
    def _described(cls, description: Mapping[str, Any]) -> AccuracyCalibration:
        if description["format"] != FORMAT:
            raise ValueError(f"format {description['format']!r} is not {FORMAT}")
        a, b, c = description["weights"]
        domains = description["domains"]
        names = [domain["name"] for domain in domains]
        if not names or len(set(names)) != len(names) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"domains {names}")
        estimated = {domain["name"]: domain["estimated"] for domain in domains}
        known = {name: _share(value) for name, value in estimated.items() if value is not None}
        if len(known) != (len(names) if len(names) > 1 else 0):
            raise ValueError(f"estimates of {list(known)} for domains {names}")
        return cls(
            weights=(_finite(a), _finite(b), None if c is None else _finite(c)),
            estimated=known,
            measured={domain["name"]: _share(domain["measured"]) for domain in domains},
            confidence={domain["name"]: _share(domain["confidence"]) for domain in domains},
            of_sources=None if description["of_sources"] is None else _share(description["of_sources"]),
        )


def calibrate_accuracy(left_out: Sequence[LeftOut], *, of_sources: float | None = None) -> AccuracyCalibration:
    """Learn from left-out source domains what confidence and coverage are worth on a domain that was never seen.

    With one domain the error of the estimate is unknown (NaN). Coverage counts where every domain has it. As estimates
    of a new site are, those of a left-out domain are capped by the accuracy of its model on its own sources.
    """
    if not left_out:
        raise DataError("there is no left-out source domain to learn from; leave at least one out, better three")
    names = [one.name for one in left_out]
    if len(set(names)) != len(names):
        raise DataError(f"left-out domains must have names of their own, got {listing(names)}")
    covers = all(one.coverage is not None for one in left_out)
    rows = [_checked(one, covers=covers) for one in left_out]
    by_others = {
        name: fit([own for place, own in enumerate(rows) if place != left])
        for left, name in enumerate(names)
        if len(names) > 1
    }
    of_name = dict(zip(names, rows, strict=True))
    return AccuracyCalibration(
        weights=fit(rows),
        estimated={
            one.name: min(
                float(right(of_name[one.name].confidence, of_name[one.name].coverage, by_others[one.name]).mean()),
                1.0 if one.of_sources is None else one.of_sources,
            )
            for one in left_out
            if one.name in by_others
        },
        measured={name: float(own.correct.mean()) for name, own in of_name.items()},
        confidence={name: float(own.confidence.mean()) for name, own in of_name.items()},
        of_sources=of_sources,
    )


def _checked(one: LeftOut, *, covers: bool) -> Rows:
    confidence = checked_confidence(one.name, one.confidence)
    correct = np.asarray(one.correct)
    if correct.shape != confidence.shape or not np.isin(correct, (0, 1)).all():
        raise DataError(
            f"{one.name}: correct must say yes or no of each of {len(confidence):,} rows, got shape {correct.shape}"
        )
    coverage = checked_coverage(one.name, one.coverage, len(confidence)) if covers else None
    return Rows(confidence, coverage, correct.astype(np.float64))


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _share(value: Any) -> float:
    if not 0 <= _finite(value) <= 1:
        raise ValueError(f"{value!r} does not lie between 0 and 1")
    return float(value)
