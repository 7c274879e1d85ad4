"""How many bases a layer has room for, and how many it starts with."""

from __future__ import annotations

from typing import Literal

from gated_domains.common.numbers import at_least_one

_AUTO_MAX_BASES = 12


def room(num_bases: int | Literal["auto"], max_bases: int | None) -> tuple[int, int]:
    """How many bases there is room for, and how many are in use at the start."""
    if num_bases == "auto":
        places = at_least_one("max_bases", _AUTO_MAX_BASES if max_bases is None else max_bases)
        if places < 2:
            raise ValueError(f"num_bases='auto' chooses between 2 and max_bases, got max_bases={places}")
        return places, min(5, places)
    used = at_least_one("num_bases", num_bases)
    places = at_least_one("max_bases", used if max_bases is None else max_bases)
    if places < used:
        raise ValueError(f"max_bases={places} leaves no room for num_bases={used}")
    return places, used
