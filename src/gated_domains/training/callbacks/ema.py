"""EMA: the moving average of a model's weights, which often does better than where the last step left them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gated_domains.backbones.finding import evaluating
from gated_domains.data.errors import listing
from gated_domains.layer.precision import at_least_float32
from gated_domains.methods.method import Looks, Method


class EMA:
    """Averages of the trained parameters: ``average <- d average + (1 - d) parameter``, one update a step.

    Over the first steps d = min(decay, (1 + t) / (10 + t)), so that the random start is soon forgotten. Buffers and
    frozen parameters are the module's own: sigma and kappa are choices, running statistics are recomputed in training.
    """

    def __init__(self, module: nn.Module, decay: float = 0.999) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay must lie between 0 and 1, got {decay}; 0.999 averages over about 1,000 steps")
        self.decay = decay
        self.count = 0
        # In half precision a small step towards the parameter would round to none.
        self.averages = {name: at_least_float32(p.detach()).clone() for name, p in trained_parameters(module).items()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Move the averages towards the module's parameters; call it after every optimiser step."""
        pairs = self._pairs(module)
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        self.count += 1
        if pairs:
            parameters = [p.to(average.dtype) for average, p in pairs]
            torch._foreach_lerp_([average for average, _ in pairs], parameters, 1 - decay)

    @contextmanager
    def swapped(self, module: nn.Module) -> Iterator[None]:
        """Inside, the module carries the averages; after, its own parameters again, whatever happened."""
        pairs = self._pairs(module)
        own = [p.detach().clone() for _, p in pairs]
        try:
            with torch.no_grad():  # values in place: optimisers, DDP and compiled graphs hold on to the parameters
                for average, p in pairs:
                    p.copy_(average)
            yield
        finally:
            with torch.no_grad():
                for before, (_, p) in zip(own, pairs, strict=True):
                    p.copy_(before)

    @contextmanager
    def restarting(self, module: nn.Module) -> Iterator[None]:
        """What is rewritten inside, rather than trained, has its average start anew from there."""
        before = [p.detach().clone() for _, p in self._pairs(module)]
        yield
        for old, (average, p) in zip(before, self._pairs(module), strict=True):
            if not torch.equal(old, p):
                average.copy_(p.detach())

    def state(self) -> dict[str, Any]:
        """What ``load_state`` needs to go on exactly; the tensors are not copied."""
        return {"count": self.count, "averages": dict(self.averages)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state``."""
        averages: Mapping[str, Tensor] = state["averages"]
        _same_parameters(averages, self.averages)
        for name, average in self.averages.items():
            average.copy_(averages[name])
        self.count = int(state["count"])

    def _pairs(self, module: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Every average, on the device of its parameter, with that parameter."""
        trained = trained_parameters(module)
        _same_parameters(trained, self.averages)
        for name, parameter in trained.items():
            if self.averages[name].device != parameter.device:
                self.averages[name] = self.averages[name].to(parameter.device)
        return [(self.averages[name], parameter) for name, parameter in trained.items()]


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """What an optimiser moves, by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad and p.is_floating_point()}


def _same_parameters(given: Mapping[str, Tensor], averaged: Mapping[str, Tensor]) -> None:
    odd = given.keys() ^ averaged.keys()
    odd |= {name for name in given.keys() & averaged.keys() if given[name].shape != averaged[name].shape}
    if odd:
        raise ValueError(
            f"these are not the parameters that were averaged: {listing(sorted(odd), 5)} on one side only or of "
            "another shape; make a new EMA after a model is wrapped, frozen or changed"
        )


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
