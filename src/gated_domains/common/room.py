"""How many bases a layer has room for, and how many it starts with."""

from __future__ import annotations

from typing import Literal

from gated_domains.common.numbers import at_least_one

_MAX_BASES = 12


def room(num_bases: int | Literal["auto", "adaptive"], max_bases: int | None) -> tuple[int, int]:
    """How many bases there is room for, and how many are in use at the start."""
    if num_bases == "adaptive":  # where a layer can be that, room_to_grow is asked
        raise ValueError("num_bases='adaptive' is there for layers in PyTorch alone; take a number or 'auto'")
    if num_bases == "auto":
        places = at_least_one("max_bases", _MAX_BASES if max_bases is None else max_bases)
        if places < 2:
            raise ValueError(f"num_bases='auto' chooses between 2 and max_bases, got max_bases={places}")
        return places, min(5, places)
    used = at_least_one("num_bases", num_bases)
    places = at_least_one("max_bases", used if max_bases is None else max_bases)
    if places < used:
        raise ValueError(f"max_bases={places} leaves no room for num_bases={used}")
    return places, used


def room_to_grow(max_bases: int | None) -> tuple[int, int]:
    """The same where bases are split in training: one is in use at the start."""
    places = at_least_one("max_bases", _MAX_BASES if max_bases is None else max_bases)
    if places < 2:
        raise ValueError(f"num_bases='adaptive' grows from 1 to max_bases, got max_bases={places}")
    return places, 1
