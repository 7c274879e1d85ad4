"""Logits and Prediction: what a network gives before it is read, and what a trained one says of some samples."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Logits(NamedTuple):
    """What a task reads of a network without gates."""

    prediction: Tensor
    variance: Tensor | None = None


class Prediction(NamedTuple):
    """Probabilities of the classes, or the number predicted; of a gated method also what its gates saw."""

    output: Float[Tensor, "batch outputs"]
    beta: Float[Tensor, "batch bases"] | None = None
    residual: Float[Tensor, " batch"] | None = None
    """``||phi(x) - sum_j beta_j mu_j||^2``: how unlike anything the bases express a sample is."""
    coverage: Float[Tensor, " batch"] | None = None
    """How much of the deviations from the shared expert a sample gets, 0 to 1."""
