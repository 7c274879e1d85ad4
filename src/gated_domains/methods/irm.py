"""IRM: features on which the same classifier is the best one in every source domain."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import DomainBatch
from gated_domains.layer.experts import Logits, Task
from gated_domains.layer.kernels import at_least_float32
from gated_domains.methods.across_domains import AcrossDomains
from gated_domains.methods.by_domain import average, domain_means, told_apart
from gated_domains.methods.erm import ERMSettings
from gated_domains.methods.method import Looks, Terms
from gated_domains.settings.search import Between


class IRMSettings(ERMSettings):
    """``weight`` is that of the penalty once ``anneal_epochs`` epochs are done; before, it is 1."""

    weight: Annotated[float, Between(0.1, 1e5, log=True)] = Field(default=100.0, ge=0)
    anneal_epochs: Annotated[int, Between(0, 6, whole=True)] = Field(default=3, ge=0)


class IRM(AcrossDomains):
    """``(mean_e R_e + lambda mean_e (d R_e(w f) / d w at w = 1)^2) / max(lambda, 1)`` over source domains e.

    R_e(w f) is the risk of domain e with all outputs multiplied by w: where its slope is 0 in every domain, none of
    them would have the classifier otherwise. lambda is 1 for the first epochs, then ``weight``; the division keeps the
    loss in range when it jumps. With s_i the slope of one row's loss, the square of the domain's slope is estimated by
    ``mean_{i != j} s_i s_j`` over its rows in the batch: right on average, unlike the square of their mean, and what
    the product of the slopes of two halves is on average over all ways to halve. It can be below 0. A domain with one
    row has no such pair and is left out of the penalty. With ``consistency`` s_i is the mean over the two views of an
    image.

    M. Arjovsky, L. Bottou, I. Gulrajani and D. Lopez-Paz (2019), "Invariant risk minimization", there IRMv1. The state
    of an optimiser is kept when lambda jumps; some start it anew.
    """

    name = "irm"
    label = "IRM"
    what = "ERM, and a penalty on source domains that would scale the outputs otherwise (IRMv1)"
    settings_type = IRMSettings

    settings: IRMSettings
    early: Tensor

    def __init__(
        self, backbone: Backbone, outputs: int, task: Task, settings: IRMSettings, *, rows: tuple[int, ...]
    ) -> None:
        super().__init__(backbone, outputs, task, settings, rows=rows)
        self.register_buffer("early", torch.tensor(float(settings.anneal_epochs > 0)))

    def objective(self, batch: DomainBatch) -> Terms:
        out = self.logits(batch.inputs)
        losses, slopes = self.with_slopes(out, batch.targets)
        by_row, rows = torch.stack([losses, slopes], 1), batch
        if batch.soft_targets is not None:  # two views of a sample are not independent: their mean counts as one row
            by_row, rows = by_row.unflatten(0, (-1, 2)).mean(1), batch.select(slice(0, None, 2))
        by_row = torch.cat([by_row, by_row[:, 1:].square()], 1)
        found = domain_means(by_row, *told_apart(rows, len(self.rows)))
        risks, slope, square = found.means.unbind(1)
        # sum_{i != j} s_i s_j = (sum s)^2 - sum s^2, and there are n (n - 1) pairs.
        squares = (found.counts * slope.square() - square) / (found.counts - 1).clamp_min(1)
        penalty = average(squares, (found.counts > 1).to(squares.dtype))
        # Not torch.where, which would bring both numbers to the GPU at every step.
        early = self.early.to(penalty.dtype)
        weight = early + (1 - early) * self.settings.weight
        scale = weight.clamp_min(1)
        terms = {"task": average(risks, found.present) / scale, "irm": weight / scale * penalty}
        return {**terms, **{name: term / scale for name, term in self.consistency(out, batch).items()}}

    def renew(self, looks: Looks, *, epoch: int, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not None:
            self.early.fill_(float(epoch < self.settings.anneal_epochs))

    def with_slopes(self, out: Logits, targets: Tensor) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Each row's loss, and its derivative by a factor on the row's outputs, at 1."""
        outputs = at_least_float32(out.prediction)
        with torch.enable_grad():
            factor = torch.ones(len(outputs), 1, dtype=outputs.dtype, device=outputs.device, requires_grad=True)
            losses = self.task.losses(Logits(outputs * factor), targets)
            (slopes,) = torch.autograd.grad(losses.sum(), factor, create_graph=True)
        return losses, slopes.squeeze(1)
