"""How long trainings will take, from those that are done and how far the others are, several at a time."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_WARMING_UP = 5.0  # seconds


@dataclass
class _Lane:
    """What one worker is at."""

    kind: str = ""
    epochs: int = 1
    share: float = 0.0
    began: float = field(default_factory=lambda: time.monotonic())
    before: float = 0.0  # seconds of this training when its last known epoch ended
    ended: int = 0  # epochs known to have ended


class TimeLeft:
    """Trainings by kind, of which ``workers`` go on at a time."""

    def __init__(self, kinds: Sequence[str], *, workers: int = 1) -> None:
        self.waiting = list(kinds)
        self.workers = workers
        self.epoch: float | None = None
        """Seconds of the first epoch that tells."""
        self._took: dict[str, list[float]] = defaultdict(list)
        self._epochs, self._ends_alone = 1, True
        self._lanes: dict[int, _Lane] = defaultdict(_Lane)

    def began(self, kind: str, *, epochs: int, worker: int) -> None:
        self._lanes[worker], self._ends_alone = _Lane(kind, epochs), False

    def stepped(self, share: float, *, worker: int) -> None:
        self._lanes[worker].share = share

    def epochs(self, worker: int) -> int:
        """How many epochs the training of a worker has at most."""
        return self._lanes[worker].epochs

    def epoch_ended(self, record: dict[str, Any], *, worker: int) -> bool:
        """Whether it is known by this epoch, for the first time, how long one takes: a short first one warms up."""
        if self.epoch is not None:
            return False
        lane = self._lanes[worker]
        # A training that goes on tells of its next epoch first: the time until then is that of all before it.
        ended = record["epoch"] + 1
        seconds = (record["seconds"] - lane.before) / max(1, ended - lane.ended)
        lane.before, lane.ended = record["seconds"], ended
        if seconds < _WARMING_UP and record["epoch"] == 0 and lane.epochs > 1:
            return False
        self.epoch, self._epochs = seconds, lane.epochs
        return True

    def ended(self, kind: str, *, worker: int, seconds: float | None = None) -> None:
        """A training is done; it took the time since it began where nobody knows better."""
        self._took[kind].append(time.monotonic() - self._lanes[worker].began if seconds is None else seconds)
        self.gone(kind)
        self._lanes.pop(worker, None)

    def gone(self, kind: str) -> None:
        """One of this kind is not waited for any more."""
        if kind in self.waiting:
            self.waiting.remove(kind)

    def lost(self, worker: int) -> None:
        """What a worker was at goes back to those that wait."""
        self._lanes.pop(worker, None)

    @property
    def known(self) -> bool:
        """Whether there is anything to tell from: an epoch, or ends where nothing else is heard of."""
        return self.epoch is not None or (self._ends_alone and any(self._took.values()))

    @property
    def seconds(self) -> float:
        """What is left: the work of all, shared, but no less than any one training still takes."""
        under_way = [lane for lane in self._lanes.values() if lane.kind in self.waiting]
        unbegun = Counter(self.waiting) - Counter(lane.kind for lane in under_way)
        left = [self._whole(kind) for kind in unbegun.elements()]
        left += [(1 - lane.share) * self._whole(lane.kind) for lane in under_way]
        return max(0.0, sum(left) / self.workers, *left)

    def _whole(self, kind: str) -> float:
        """Seconds of a training of this kind; of others, then of all epochs like the first, where none is known."""
        took = self._took[kind] or [seconds for others in self._took.values() for seconds in others]
        return sum(took) / len(took) if took else (self.epoch or 0.0) * self._epochs
