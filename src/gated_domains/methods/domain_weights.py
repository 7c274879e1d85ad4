"""Weights of source domains that move while a method is trained, always up or down by a factor."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.methods.by_domain import DomainMeans


class DomainWeights(nn.Module):
    """``q_g <- q_g exp(gain_g) / sum_h q_h exp(gain_h)``, no weight below ``least``.

    Kept as logarithms: a weight too small for a float comes back when its domain gains. They are written in place and
    saved with the method, so that a recorded step sees them and a training that was cut goes on with them.
    """

    logarithms: Tensor

    def __init__(self, start: Float[Tensor, " domains"], *, least: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("logarithms", (start / start.sum()).log())
        self.floor = math.log(least) if least > 0 else -math.inf

    @property
    def values(self) -> Float[Tensor, " domains"]:
        """The weights."""
        return self.logarithms.exp()

    @torch.no_grad()
    def gain(self, gains: Float[Tensor, " domains"], present: Float[Tensor, " domains"]) -> None:
        """Move the weights by the gains of those domains that are ``present``."""
        moved = (self.logarithms + gains.to(self.logarithms.dtype) * present).log_softmax(0)
        self.logarithms.copy_(moved.clamp_min(self.floor))

    def weighed(self, risks: DomainMeans) -> Float[Tensor, ""]:
        """``sum_g q_g R_g``, estimated where the batch has B of the G domains by those, times G / B."""
        chance = risks.present.mean().clamp_min(1 / len(risks.counts))
        return (self.values * risks.means).sum() / chance
