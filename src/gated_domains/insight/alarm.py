"""ChangeAlarm: says at which row of a stream the gates began to see something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.errors import DataError
from gated_domains.layer.gates import residual, simplex
from gated_domains.layer.units import GatedDomainUnits

DELTA = 0.05
"""How readily an alarm is raised. Larger: earlier, and more often for nothing.

Chosen with the detector by ``benchmarks/stream_alarm.py``, on features of PACS and on digits, where in a million rows
without a change ADWIN at 0.05 raised one alarm (in half a million drawn otherwise, four); it heard half of all
switches of domains within 20 rows, nine in ten within 36. At 0.002 that takes 28 and 52 rows; at 0.5 it takes 12 and
28, for 20 alarms in the million. Chosen on digits alone it is 0.05 again, with no alarm in 480,000 rows of PACS; chosen
on PACS alone it is 0.2, with four in 600,000 rows of digits. Page-Hinkley has a threshold in units of the signal
instead of a probability, and where it is as early it raises 100. KSWIN tests every row anew, which is hundreds of times
as slow.
"""
_CLOCK = 8  # rows between two looks of ADWIN: at its own 32 every change is heard some 20 rows later
_RECENT = 256  # rows that are kept to find out where a change began
_LEAST = 5  # rows after a change, as ADWIN has it


@runtime_checkable
class Detector(Protocol):
    """A detector of changes of one number, as river has them."""

    @property
    def drift_detected(self) -> bool:
        """Whether the last number was one too many."""
        ...

    def update(self, x: float) -> object:
        """Take the next number."""
        ...


@dataclass(frozen=True)
class Alarm:
    """A change that was heard at ``row`` of the stream, the first being 0, and probably began at row ``since``.

    ``before`` and ``after`` are means of the signal: since the alarm before this one, and from ``since`` on.
    """

    row: int
    signal: str
    before: float
    after: float
    since: int

    def __str__(self) -> str:
        moved = "rose" if self.after > self.before else "fell"
        rows = self.row - self.since + 1
        return f"{self.signal} {moved} from {self.before:.0%} to {self.after:.0%} in the last {rows:,} rows"


class ChangeAlarm:
    """Listens to the gates of every new row of a stream: ``GateStream(watch=ChangeAlarm(units))``.

    There is a detector for each basis in use, of its weight for the row alone, and one for the row's coverage; all of
    these lie between 0 and 1. ``delta`` is of all detectors together: each gets its share. What is heard is a change
    against the rows before. A stream that is unlike the training data from its first row on raises no alarm.

    ``detector`` makes another kind of river's detectors, of the delta it is given.
    """

    def __init__(
        self,
        units: GatedDomainUnits,
        *,
        delta: float = DELTA,
        detector: Callable[[float], Detector] | None = None,
    ) -> None:
        if not 0 < delta < 1:
            raise DataError(f"the delta of an alarm must lie between 0 and 1, got {delta:g}; {DELTA:g} is usual")
        self.units = units
        self.delta = delta
        self.signals = [f"gate {place + 1}" for place in units.active.nonzero()[:, 0].tolist()] + ["coverage"]
        self.rows = 0
        """Rows that were heard so far."""
        self.raised: list[Alarm] = []
        """Every alarm so far, in order."""
        self._make = _adwin() if detector is None else detector
        self._begin()

    def __call__(self, rows: Float[Tensor, "rows gating"]) -> None:
        """Listen to rows of the view that gates see, oldest first."""
        self.hear(heard_of(self.units, rows).double().cpu().numpy())

    def hear(self, values: NDArray[np.float64]) -> None:
        """Listen to rows whose signals are known, (rows, signals), oldest first."""
        start = 0
        for place, row in enumerate(values.tolist()):
            for detector, value in zip(self._detectors, row, strict=True):
                detector.update(value)
            self.rows += 1
            fired = [signal for signal, detector in enumerate(self._detectors) if detector.drift_detected]
            if fired:
                self._remember(values[start : place + 1])
                # One change moves several signals: it is told by the one that moved most.
                found = [self._change(signal) for signal in fired]
                self.raised.append(max(found, key=lambda alarm: abs(alarm.after - alarm.before)))
                self._begin()
                start = place + 1
        self._remember(values[start:])

    def _begin(self) -> None:
        """Forget what was heard, and listen anew."""
        self._detectors = [self._make(self.delta / len(self.signals)) for _ in self.signals]
        self._recent = np.empty((0, len(self.signals)))
        self._older, self._sums = 0, np.zeros(len(self.signals))

    def _remember(self, values: NDArray[np.float64]) -> None:
        joined = np.concatenate([self._recent, values])
        gone, self._recent = joined[:-_RECENT], joined[-_RECENT:]
        self._older += len(gone)
        self._sums = self._sums + gone.sum(0)

    def _change(self, signal: int) -> Alarm:
        """The change of a signal: where the means before and after it differ most, ``n m (a - b)^2 / (n + m)``.

        Not the window that ADWIN is left with: it cuts no more than it must, and keeps rows from before the change.
        """
        recent = self._recent[:, signal]
        count, total = self._older + len(recent), self._sums[signal] + recent.sum()
        first = 0 if self._older else 1
        cuts = np.arange(first, max(len(recent) - _LEAST, first) + 1)
        before = self._sums[signal] + np.concatenate([[0.0], recent.cumsum()])[cuts]
        rows = self._older + cuts
        means, later = before / rows, (total - before) / (count - rows)
        best = int(np.argmax(rows * (count - rows) * (later - means) ** 2))
        since = self.rows - len(recent) + int(cuts[best])
        return Alarm(self.rows - 1, self.signals[signal], float(means[best]), float(later[best]), since)


@torch.no_grad()
def heard_of(units: GatedDomainUnits, rows: Float[Tensor, "rows gating"]) -> Float[Tensor, "rows signals"]:
    """What a ChangeAlarm listens to: the weight of each basis in use for each row alone, and the row's coverage.

    Coverage also where the layer does not use it; before it is fitted it is 1 for every row.
    """
    weighed = units.weigh(rows)
    weights = simplex(weighed.beta, units.active)[:, units.active]
    left = residual(weighed.products, units.gate.explaining(weighed.products))
    return torch.cat([weights, units.coverage(left).unsqueeze(-1)], dim=-1)


def _adwin() -> Callable[[float], Detector]:
    try:
        from river.drift import ADWIN
    except ImportError as error:
        raise DataError(
            "the alarm on a stream needs the package river, which is not installed: "
            "pip install 'gated-domains[alarm]'; or leave --alarm out"
        ) from error

    def make(delta: float) -> Detector:
        detector: Detector = ADWIN(delta=delta, clock=_CLOCK)
        return detector

    return make
