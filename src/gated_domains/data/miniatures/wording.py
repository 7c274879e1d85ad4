"""Text from phrases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def one(phrases: Sequence[str], rng: np.random.Generator) -> str:
    """One of them, by chance."""
    return phrases[int(rng.integers(len(phrases)))]


def sentences(phrases: Iterable[str]) -> str:
    """Phrases as sentences, each with a capital letter and a full stop."""
    return " ".join(f"{phrase[0].upper()}{phrase[1:]}." for phrase in phrases)
