"""The eight data sets of WILDS that the paper reports on, with their published divisions, metrics and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gated_domains.data.wilds.sets import FOLDS, WILDS, WildsSet, is_wilds, wilds_set

if TYPE_CHECKING:
    from gated_domains.data.wilds.loading import load_wilds

__all__ = ["FOLDS", "WILDS", "WildsSet", "is_wilds", "load_wilds", "wilds_set"]


def __getattr__(name: str) -> object:
    if name == "load_wilds":  # imported when first asked for: the names of the data sets need no reader
        from gated_domains.data.wilds.loading import load_wilds

        return load_wilds
    raise AttributeError(f"module 'gated_domains.data.wilds' has no attribute {name!r}")
