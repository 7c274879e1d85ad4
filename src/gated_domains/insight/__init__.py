"""What a trained gated model shows of itself: which rows use which basis, what a basis stands for, what it is worth."""

from gated_domains.insight.making import insight_of

__all__ = ["insight_of"]
