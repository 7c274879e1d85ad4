"""Running statistics of batch norms, recomputed: they belong to the weights they were computed with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from gated_domains.backbones.backbone import evaluating
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
        norms = moving_norms(method)
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


def moving_norms(model: nn.Module) -> list[_BatchNorm]:
    """Norms whose running statistics training moves; those of a frozen body are not among them."""
    with evaluating(model):
        return [
            module
            for module in model.train().modules()
            if isinstance(module, _BatchNorm) and module.training and module.running_mean is not None
        ]


@contextmanager
def unmoved_norms(model: nn.Module) -> Iterator[None]:
    """The running statistics of batch norms as they were before, whatever happened inside."""
    buffers = [buffer for norm in moving_norms(model) for buffer in norm.buffers()]
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, old in zip(buffers, before, strict=True):
            buffer.copy_(old)
