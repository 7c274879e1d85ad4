"""EMA: the moving average of a model's weights, and batch norm statistics for averaged weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gated_domains.backbones.backbone import evaluating
from gated_domains.data.errors import listing
from gated_domains.data.sampling import InOrder, Shared
from gated_domains.layer.kernels import at_least_float32
from gated_domains.methods.method import Looks, Method
from gated_domains.training.callbacks.base import Callback
from gated_domains.training.engine import as_computed, from_all, from_first
from gated_domains.training.training_data import sample_rows

if TYPE_CHECKING:
    from gated_domains.training.trainer import Trainer


class EMA(Callback):
    """The moving average of the trained parameters: ``average <- d average + (1 - d) parameter``, one update a step.

    Over the first steps ``d = min(decay, (1 + t) / (10 + t))``, so that the random start is soon forgotten. Buffers and
    frozen parameters are the module's own: sigma and kappa are choices, and running statistics of batch norms are
    recomputed for the averaged weights.

    Parameters
    ----------
    module
        The model whose parameters are averaged.
    decay
        d; 0.999 averages over about 1,000 steps.
    evaluate
        Whether the averages are what is validated and kept. The teacher of `Consistency` is an average that is not.

    Examples
    --------
    >>> ema = EMA(model, decay=0.999)
    >>> ema.update(model)                 # after every optimizer step
    >>> with ema.swapped(model):
    ...     evaluate(model)
    """

    def __init__(self, module: nn.Module, decay: float = 0.999, *, evaluate: bool = True) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay must lie between 0 and 1, got {decay}; 0.999 averages over about 1,000 steps")
        self.decay, self.evaluate = decay, evaluate
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

    def on_step_end(self, trainer: Trainer) -> None:
        self.update(trainer.method)

    def refitting(self, trainer: Trainer) -> AbstractContextManager[None]:
        return self.restarting(trainer.method)

    def evaluation_weights(self, trainer: Trainer) -> AbstractContextManager[None]:
        return self.swapped(trainer.method) if self.evaluate else nullcontext()

    @contextmanager
    def evaluation_statistics(self, trainer: Trainer) -> Iterator[None]:
        """Running statistics of batch norms are those of the trained weights; inside, those of the averages."""
        if not self.evaluate or not moving_norms(trainer.method):
            yield
            return
        with unmoved_norms(trainer.method):
            renew_statistics(trainer)
            yield

    def state_dict(self) -> dict[str, Any]:
        """The averages, not copied, and how many updates they have seen."""
        return {"count": self.count, "averages": dict(self.averages)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
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
    """What an optimizer moves, by name."""
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


def renew_statistics(trainer: Trainer) -> None:
    """Recompute the running statistics of batch norms, then what gates take from the data, for the current weights."""
    method, fabric = trainer.method, trainer.fabric
    renew_norms(method, lambda: training_inputs(trainer), around=fabric.autocast)
    for norm in moving_norms(method):
        for statistics in (norm.running_mean, norm.running_var):
            cast(Tensor, statistics).copy_(from_all(fabric, cast(Tensor, statistics)).mean(0))
    from_first(fabric, method.buffers())
    method.renew(trainer.sample_inputs, epoch=trainer.epoch, optimizer=None)


def training_inputs(trainer: Trainer) -> Iterator[Tensor]:
    """Random training inputs for the statistics of batch norms, augmented and Fourier-mixed as in training.

    Batches have the size of training, as moments by basis are shrunk towards those of their batch, and are shared by
    all processes. Sampling by domain and MixStyle are not repeated. The random state of the training does not advance.
    """
    settings, rank, world = trainer.settings, trainer.fabric.global_rank, trainer.fabric.world_size
    rows = sample_rows(trainer.data, trainer.seed, large=trainer.large)
    size = min(len(rows), max(2 * world, -(-settings.batch_size // settings.accumulate)))  # one row has no variance
    batches = InOrder(rows[: len(rows) // size * size], size)
    generator = torch.Generator(trainer.device).manual_seed(trainer.seed + rank)
    for inputs in trainer.data.samples.input_batches(Shared(batches, rank, world)):
        plain = trainer.update.augment(as_computed(inputs, trainer.fabric), generator)
        mixed = plain if trainer.update.fourier is None else trainer.update.fourier.mix(plain, generator)
        yield mixed if trainer.update.consistency is None else torch.cat([plain, mixed])
