"""View: what a backbone gives, for the experts and for the gates."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class View(NamedTuple):
    """What experts see of a batch and what gates see of it."""

    features: Float[Tensor, "batch features"]
    gating: Float[Tensor, "batch gating"] | None = None
    """None: the features."""
