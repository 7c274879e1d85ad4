"""The problem a method is built for: inputs of one shape, a body that turns them into features, what is predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gated_domains.backbones.bodies import Body
from gated_domains.layer.precision import at_least_float32
from gated_domains.layer.tasks import MultiClass, Predicted, Regression, Task


@dataclass(frozen=True, kw_only=True)
class Problem:
    """All a method needs to know before it sees data.

    ``kind`` is that of the inputs (images, features, table) and ``shape`` that of one encoded sample. ``make_body``
    gives a fresh body at each call, or a trained one to be kept as it is.
    """

    kind: str
    shape: tuple[int, ...]
    outputs: int
    task: Task
    make_body: Callable[[], Body]
    domains: tuple[int, ...] = ()
    """Training rows of each source domain, in the order of the indices in a batch; empty where none are known."""
    rows_a_domain: int | None = None
    """Rows of one domain in a training batch, on average where batches are not made up in blocks; None: not known."""


class Classes(MultiClass):
    """One of several classes, by cross-entropy; with class weights ``mean_i w(y_i) l_i``.

    The weights are meant to average 1 over the training rows. So they are never divided by their sum over a batch, and
    the mean over several processes is the mean over the whole batch.
    """

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        return F.cross_entropy(out.prediction, target) if self.class_weight is None else self.losses(out, target).mean()

    def losses(self, out: Predicted, target: Tensor) -> Float[Tensor, " batch"]:
        logits = at_least_float32(out.prediction)
        if self.class_weight is not None:
            self.class_weight = self.class_weight.to(logits)  # once: a copy at each step cannot be recorded in a graph
        return F.cross_entropy(logits, target, weight=self.class_weight, reduction="none")


class Numbers(Regression):
    """A number, standardised by the mean and scale of the training targets, so that any unit trains alike."""

    def __init__(self, mean: float = 0.0, scale: float = 1.0) -> None:
        self.mean, self.scale = mean, scale

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        return super().loss(out, (target - self.mean) / self.scale)

    def losses(self, out: Predicted, target: Tensor) -> Float[Tensor, " batch"]:
        return super().losses(out, (target - self.mean) / self.scale)

    def read(self, out: Predicted) -> Tensor:
        # In half precision a mean far from 0 would swallow the rest.
        return at_least_float32(out.prediction) * self.scale + self.mean

    def divergence(self, out: Predicted, soft: Tensor) -> Float[Tensor, ""]:
        """The mean squared error in standardised units, as in ``loss``."""
        return super().divergence(out, soft) / self.scale**2

    def __repr__(self) -> str:
        return f"Numbers(mean={self.mean:.4g}, scale={self.scale:.4g})"
