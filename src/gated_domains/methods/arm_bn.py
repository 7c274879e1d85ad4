"""ARM-BN: batch norms that take their statistics from whatever batch of one domain they are given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.layer.experts import Prediction, Task
from gated_domains.methods.across_domains import AcrossDomains
from gated_domains.methods.erm import ERMSettings
from gated_domains.methods.method import Mode, Objective, Problem, Terms, total
from gated_domains.methods.part_by_part import domain_parts, mean_terms, predicted_by_part


class ARMBNSettings(ERMSettings):
    """``support`` is how many rows of one domain are normalised together, in training as in prediction.

    None: all that a domain has in a training batch (``batch_size / groups_per_batch``).
    """

    support: int | None = Field(default=None, ge=2)


class ARMBN(AcrossDomains):
    """``1/D sum_d mean_{i in B_d} loss(f(x_i; B_d), y_i)``: batch norms in f take the mean and scale of the batch B_d.

    Each domain of a training batch goes through the network by itself, so the network learns to be normalised by
    samples of one domain. It predicts in the same way: from a batch of one domain, by the statistics of that batch,
    whose labels nobody needs (Zhang et al., 2021, "Adaptive Risk Minimization: Learning to Adapt to Domain Shift").

    So its prediction of a sample depends on those beside it. Test rows of a domain are normalised in batches of the
    size that it was trained with, put together at random; rows left over are spread over these batches, and a domain of
    fewer rows is one batch. A single sample has no statistics: it is normalised by the running ones of training. With
    ``consistency`` the two views of an image are normalised together, and both count as rows.
    """

    name = "arm-bn"
    label = "ARM-BN"
    what = "batch norm by the statistics of a batch of one domain, in training as on new data: it adapts without labels"
    settings_type = ARMBNSettings
    batchwise = True
    modes = ("end_to_end",)

    def __init__(self, backbone: Backbone, outputs: int, task: Task, settings: Any, *, rows: tuple[int, ...]) -> None:
        super().__init__(backbone, outputs, task, settings, rows=rows)
        if not any(_norms(backbone)):
            raise DataError(
                f"{self.label} adapts by batch norm, and the body {type(backbone.body).__name__} has none; "
                f"choose a body with batch norm, or leave {self.name} out"
            )

    @classmethod
    def build(cls, settings: Any, problem: Problem, *, mode: Mode) -> ARMBN:
        made = super().build(settings, problem, mode=mode)
        there = problem.rows_a_domain
        if settings.support is not None and there is not None and settings.support > there:
            raise DataError(
                f"support={settings.support} rows of a domain cannot be normalised together where a training batch has "
                f"{there}; choose fewer, a larger batch size, or fewer domains a batch (groups_per_batch)"
            )
        made.support_rows = settings.support or there
        return made

    def teach(self, batch: DomainBatch) -> Tensor:
        return predicted_by_part(self, batch, lambda whole: [c for part in whole.parts() for c in self._contexts(part)])

    def step(self, objective: Objective, batch: DomainBatch, optimizer: torch.optim.Optimizer) -> Terms:
        parts = [context for part in domain_parts(batch, type(self)) for context in self._contexts(part)]
        optimizer.zero_grad(set_to_none=True)
        found = []
        for part in parts:
            found.append(objective(part))
            objective.backward(total(found[-1]) / len(parts))
        optimizer.step()
        return mean_terms(found)

    def _contexts(self, part: DomainBatch) -> list[DomainBatch]:
        """The rows of one domain that are normalised together: all of them, or so many at a time as were asked for."""
        if self.settings.support is None:
            return [part]
        count = max(1, len(part) // self.settings.support)
        return part.split(count, blocks=1)

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
