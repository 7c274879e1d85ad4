"""Methods beside each other within a category."""

from __future__ import annotations


def offset(number: int, methods: int) -> float:
    """How far from the middle of its category a method stands."""
    return (number - (methods - 1) / 2) / (methods + 1)


def band_height(methods: int) -> int:
    """Pixels that a category takes."""
    return max(30, 9 * (methods + 1))
