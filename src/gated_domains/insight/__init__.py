"""What a trained gated model shows of itself: which rows use which basis, what a basis stands for, what it is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gated_domains.insight.making import insight_of

__all__ = ["insight_of"]


def __getattr__(name: str) -> object:
    if name == "insight_of":  # imported when first asked for: predicting needs of this package the alarm alone
        from gated_domains.insight.making import insight_of

        return insight_of
    raise AttributeError(f"module 'gated_domains.insight' has no attribute {name!r}")
