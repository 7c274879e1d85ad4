"""What batch norms keep of training, taken anew: running statistics belong to the weights they were taken with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gated_domains.backbones.finding import evaluating
from gated_domains.methods.method import Looks, Method


@torch.no_grad()
def renew_norms(
    method: Method, looks: Looks, *, around: Callable[[], AbstractContextManager[object]] = nullcontext
) -> None:
    """Running statistics of the norms that training moves become the mean over batches of training inputs.

    Nothing else is in train mode, so nothing is dropped out; the batches of a frozen body are left as they are.
    ``around`` is entered for every batch, for the precision of the training.
    """
    with evaluating(method):
        norms = _moving(method.train())
        method.eval()
        method.training = True  # itself alone: one that adapts to batches it predicts would take nothing up
        before = {norm: norm.momentum for norm in norms}
        try:
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # the mean over all batches, one like the other
                norm.train()
            first = None
            for inputs in looks() if norms else ():
                first = first or len(inputs)
                if 1 < len(inputs) == first:  # a last batch of a few rows would count as much as the others
                    with around():
                        method.predict(inputs)
        finally:
            for norm, momentum in before.items():
                norm.momentum = momentum


def _moving(model: nn.Module) -> list[_BatchNorm]:
    """Norms that keep running statistics and are in train mode, as those of a frozen body never are."""
    return [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.training and module.running_mean is not None
    ]
