"""Where a setting is searched: ranges that stand beside a default, and how one value is drawn from each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gated_domains.settings import Settings


@dataclass(frozen=True)
class Between:
    """Numbers from ``low`` to ``high``: spread evenly, or with ``log`` evenly in their logarithm; ``whole`` ones."""

    low: float | int
    high: float | int
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"a range goes from a lower to a higher number (above 0 with log), got {self}")
        if self.whole and (int(self.low), int(self.high)) != (self.low, self.high):
            raise ValueError(f"a range of whole numbers begins and ends with one, got {self}")

    def draw(self, rng: np.random.Generator) -> float | int:
        """A number from the range."""
        # The half below the first and above the last give both ends of a range of whole numbers their full share.
        edge = 0.5 if self.whole else 0.0
        low, high = self.low - edge, self.high + edge
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else rng.uniform(low, high)
        return self.tidy(float(value))

    def tidy(self, value: float | int) -> float | int:
        """The number of the range nearest to a value, in four digits: all that matters, and that one wants to read."""
        if self.whole:
            return int(min(max(round(value), self.low), self.high))
        return float(min(max(float(f"{value:.4g}"), self.low), self.high))


@dataclass(frozen=True)
class OneOf:
    """One of some values: ``OneOf(("none", "tanh"))``."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError(f"there must be two values or more to choose from, got {self.values}")

    def draw(self, rng: np.random.Generator) -> Any:
        """One of the values."""
        return self.values[int(rng.integers(len(self.values)))]


Range = Between | OneOf
"""Values that a setting may take in a search."""


def search_space(kind: type[Settings]) -> dict[str, Range]:
    """The ranges declared in settings, by name: ``weight: Annotated[float, Between(0.1, 10, log=True)] = 1.0``."""
    return {
        name: about
        for name, field in kind.model_fields.items()
        for about in field.metadata
        if isinstance(about, Between | OneOf)
    }


def drawn(space: Mapping[str, Range], rng: np.random.Generator) -> dict[str, Any]:
    """One value for each setting, by chance."""
    return {name: span.draw(rng) for name, span in space.items()}
