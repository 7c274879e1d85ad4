"""Consistency: a teacher's prediction for one view of an image is the target for its other view.

The teacher is the moving average of the weights; the views are the image as it is and in a mixed style.

Q. Xu et al. (2021), "A Fourier-based framework for domain generalization" (FACT); A. Tarvainen and H. Valpola (2017),
"Mean teachers are better role models".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch
from lightning_fabric import Fabric
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from gated_domains.backbones.backbone import unmoved_buffers
from gated_domains.data.batches import DomainBatch
from gated_domains.methods.method import Method
from gated_domains.training.ema import EMA
from gated_domains.training.engine import as_computed

TEACHER_DECAY = 0.995
"""Of the teacher, where the training averages no weights itself."""
_RAMP = 0.3  # of all steps, over which the weight rises from 0


class Consistency:
    """Puts both views into a batch, with the teacher's predictions as soft targets.

    Parameters
    ----------
    method
        What is trained.
    teacher
        The average of its weights.
    weight
        The weight of the loss once the ramp is over.
    fabric
        What runs the training.
    """

    def __init__(self, method: Method, teacher: EMA, *, weight: float, fabric: Fabric) -> None:
        self.method, self.teacher, self.weight, self.fabric = method, teacher, weight, fabric
        # On the device and changed in place, because a captured CUDA graph reads it there.
        self._current = torch.zeros((), device=fabric.device)

    def begin_step(self, step: int, steps: int) -> None:
        """Set the weight for a step: it rises linearly over the first 30 % of all steps."""
        self._current.fill_(self.weight * min(1.0, step / max(1.0, _RAMP * steps)))

    def both_views(self, plain: DomainBatch, mixed: DomainBatch) -> DomainBatch:
        """Each sample twice in a row, as it is and mixed; so blocks of one domain stay blocks."""
        rows = torch.arange(2 * len(plain), device=plain.inputs.device) // 2
        inputs = torch.stack([plain.inputs, mixed.inputs], 1).flatten(0, 1)
        twice = replace(plain.select(rows), inputs=inputs)
        as_teacher = self.teacher.swapped(self.method), unmoved_buffers(self.method), without_dropout(self.method)
        with ExitStack() as stack:
            for context in (torch.no_grad(), self.fabric.autocast(), *as_teacher):
                stack.enter_context(context)
            output = self.method.teach(replace(twice, inputs=as_computed(twice.inputs, self.fabric)))
        of_other_view = output.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
        return replace(twice, soft_targets=of_other_view, soft_weight=self._current)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """No dropout inside; all other modules in the mode they are in."""
    dropouts = [module for module in model.modules() if isinstance(module, _DropoutNd) and module.training]
    try:
        for module in dropouts:
            module.training = False
        yield
    finally:
        for module in dropouts:
            module.training = True
