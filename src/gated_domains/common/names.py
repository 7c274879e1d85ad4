"""Names that settings may hold; others are refused with the known ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

PRESETS = {"recommended": "erm[ema=0.995,fourier_mix=0.9,consistency=1]"}
"""Names for a method with switches and settings; docs/results/what-helps.md has what each part is worth."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that this one may be meant for, if any is near."""
    by_folded = {other.casefold(): other for other in names}
    near = get_close_matches(name.casefold(), list(by_folded), n=1, cutoff=0.6)
    return by_folded[near[0]] if near else None


def known_name(what: str, name: str, names: Iterable[str]) -> str:
    """The name, refused unless it is one of these: the message lists them, and the nearest one."""
    known = list(names)
    if name not in known:
        near = nearest(name, known)
        meant = "" if near is None else f"; did you mean {near!r}?"
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}{meant}")
    return name
