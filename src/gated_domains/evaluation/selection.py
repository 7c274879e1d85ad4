"""Which epoch's model is kept, and when to stop. Nothing here is ever given a score of the held-out domain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gated_domains.data.errors import DataError
from gated_domains.evaluation.scores import DomainScores, Metric


@dataclass(frozen=True)
class SelectionRule:
    """From the scores of the sources' validation rows alone to a number that is maximised."""

    name: str
    words: str
    number: Callable[[DomainScores], float]

    def __call__(self, validation: DomainScores) -> float:
        return self.number(validation)

    def label(self, metric: Metric) -> str:
        """The rule as it stands under a table: ``source validation accuracy``."""
        return f"{self.words} {metric.label}"


def _overall(validation: DomainScores) -> float:
    return validation.metric.as_gain(validation.overall)


SELECTION_RULES = {"source_validation": SelectionRule("source_validation", "source validation", _overall)}


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
