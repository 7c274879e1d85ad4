"""ARM-BN: batch norms that take their statistics from whatever batch of one domain they are given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.layer.prediction import Prediction
from gated_domains.layer.tasks import Task
from gated_domains.methods.across_domains import AcrossDomains
from gated_domains.methods.erm import ERMSettings
from gated_domains.methods.method import Objective, Terms, total
from gated_domains.methods.part_by_part import domain_parts, mean_terms


class ARMBN(AcrossDomains):
    """``1/D sum_d mean_{i in B_d} loss(f(x_i; B_d), y_i)``: batch norms in f take the mean and scale of the batch B_d.

    Each domain of a training batch goes through the network by itself, so the network learns to be normalised by
    samples of one domain. It predicts in the same way: from a batch of one domain, by the statistics of that batch,
    whose labels nobody needs (Zhang et al., 2021, "Adaptive Risk Minimization: Learning to Adapt to Domain Shift").

    So what it says of a sample hangs on those beside it. A single sample has no statistics: it is normalised by the
    running ones of training.
    """

    name = "arm-bn"
    label = "ARM-BN"
    what = "batch norm by the statistics of a batch of one domain, in training as on new data: it adapts without labels"
    settings_type = ERMSettings
    batchwise = True
    modes = ("end_to_end",)

    def __init__(self, backbone: Backbone, outputs: int, task: Task, settings: Any, *, rows: tuple[int, ...]) -> None:
        super().__init__(backbone, outputs, task, settings, rows=rows)
        if not any(_norms(backbone)):
            raise DataError(
                f"{self.label} adapts by batch norm, and the body {type(backbone.body).__name__} has none; "
                f"choose a body with batch norm, or leave {self.name} out"
            )

    def step(self, objective: Objective, batch: DomainBatch, optimizer: torch.optim.Optimizer) -> Terms:
        parts = domain_parts(batch, type(self))
        optimizer.zero_grad(set_to_none=True)
        found = []
        for part in parts:
            found.append(objective(part))
            objective.backward(total(found[-1]) / len(parts))
        optimizer.step()
        return mean_terms(found)

    def predict(self, inputs: Tensor) -> Prediction:
        """What the method says of samples of one domain: in eval mode by their statistics, which are not kept."""
        alone = len(inputs) == 1
        with nullcontext() if self.training or alone else by_their_batch(self.backbone):
            return super().predict(inputs)


@contextmanager
def by_their_batch(model: nn.Module) -> Iterator[None]:
    """Batch norms in eval mode normalise by the batch before them, and keep nothing of it."""
    norms = list(_norms(model))
    kept = [(norm.running_mean, norm.running_var) for norm in norms]
    try:
        for norm in norms:  # without running statistics eval mode has none but the batch's
            norm.running_mean = norm.running_var = None
        yield
    finally:
        for norm, (mean, variance) in zip(norms, kept, strict=True):
            norm.running_mean, norm.running_var = mean, variance


def _norms(model: nn.Module) -> Iterator[_BatchNorm]:
    return (module for module in model.modules() if isinstance(module, _BatchNorm))
