"""Numbers that settings may hold; others are refused, each with the value and the cure."""

from __future__ import annotations

import math
import operator
from typing import SupportsFloat


def positive(name: str, value: SupportsFloat) -> float:
    """The value as a float, refused unless it is finite and above zero."""
    number = _number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite, got {number}")
    return number


def at_least_one(name: str, value: int) -> int:
    """The value, refused unless it is a whole number of one or more."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # NumPy's integers too
    except TypeError:
        number = -1
    if number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return number


def not_negative(name: str, value: SupportsFloat) -> float:
    """The value as a float, refused unless it is finite and zero or more."""
    number = _number(name, value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {number}")
    return number


def flag(name: str, value: object) -> bool:
    """The value, refused unless it is True or False: ``"no"`` and ``None`` would pass for one of them."""
    if str(value) not in ("True", "False") or isinstance(value, str):  # NumPy's too, which are no bool
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _number(name: str, value: SupportsFloat) -> float:
    try:
        if not isinstance(value, str):  # "1" is a slip of whoever reads a file, and counts as one
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be a number, got {value!r}")
