"""Optimizers, the learning rate as a function of the step, and steps recorded as CUDA graphs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import first_line
from gated_domains.methods.method import Method, Terms
from gated_domains.training.settings import TrainingSettings


def make_optimizer(method: Method, settings: TrainingSettings, device: torch.device) -> torch.optim.Optimizer:
    """The optimiser over the method's parameter groups, fused; on a GPU fit for a graph where it can be."""
    groups = method.parameter_groups()
    on_gpu = device.type == "cuda"
    # One kernel for all weights: on a CPU too a fifth of the time.
    shared: dict[str, Any] = {"lr": settings.rate, "weight_decay": settings.weight_decay, "fused": True}
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=settings.momentum, **shared)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    optimizer = kind(groups, capturable=on_gpu, **shared)
    if on_gpu:
        rates_to(optimizer, device)
    return optimizer


def rates_to(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep learning rates as numbers on the device, where a recorded step reads them anew each time."""
    for group in optimizer.param_groups:
        group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32).to(device)


def lay_out_state(optimizer: torch.optim.Optimizer) -> None:
    """State in the memory order of its parameters, as it was before it was saved.

    A fused optimiser goes through memory, not through indices: beside a convolution that lies channels last, moments
    that came back in the plain order would each be taken for another's.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The same learning rate for every group."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def rate_at(step: int, steps: int, settings: TrainingSettings, *, drops: int = 0) -> float:
    """The learning rate of a step, of as many as there are; ``drops`` counts how often a plateau has lowered it."""
    epoch_steps = steps / settings.epochs
    rising = settings.warmup * epoch_steps
    if step < rising:
        return settings.rate * (step + 1) / (rising + 1)
    if settings.schedule == "step":
        return settings.rate * settings.decay ** int(step / max(1.0, epoch_steps))
    if settings.schedule == "plateau":
        return settings.rate * settings.decay**drops
    return settings.rate * _BY_SHARE[settings.schedule]((step - rising) / max(1.0, steps - rising))


_BY_SHARE: dict[str, Callable[[float], float]] = {
    "cosine": lambda share: 0.5 * (1 + math.cos(math.pi * share)),
    "linear": lambda share: 1.0 - share,
    "constant": lambda share: 1.0,
}


_WARM_UP = 3  # steps that are taken one kernel at a time, so that libraries choose their algorithms before recording


Step = Callable[[DomainBatch], Terms]


class GraphedStep:
    """``step(batch)``, as a graph from the fourth batch on; batches of another shape are stepped as ever.

    A small network on a fast GPU waits for the host most of the time: a graph is one launch. All that a step writes
    (weights, optimiser state, running statistics) it writes in place, and what it reads between steps (learning rate,
    coverage) must be changed in place. The terms it returns are overwritten by the next call.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.taken = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.failed = False
        self.aside: torch.cuda.Stream | None = None
        self.batch: DomainBatch | None = None
        self.terms: Terms = {}

    def __call__(self, batch: DomainBatch) -> Terms:
        if self.failed or self.taken < _WARM_UP:
            return self._stepped(batch)
        if self.graph is None and not self._recorded(batch):
            return self._stepped(batch)
        assert self.batch is not None
        assert self.graph is not None
        if _shapes(batch) != _shapes(self.batch):
            return self.step(batch)
        for kept, new in zip(_tensors(self.batch), _tensors(batch), strict=True):
            kept.copy_(new)
        self.graph.replay()
        return self.terms

    def _stepped(self, batch: DomainBatch) -> Terms:
        self.taken += 1
        if self.failed:
            return self.step(batch)
        # On the stream that recording will be on.
        current, stream = torch.cuda.current_stream(), self._stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            terms = {name: term.detach() for name, term in self.step(batch).items()}
        current.wait_stream(stream)
        return terms

    def _stream(self) -> torch.cuda.Stream:
        """What steps are recorded on: the stream of this training where it has one, for libraries keep scratch memory
        by stream, and graphs recorded on one stream must not run at the same time.
        """
        current = torch.cuda.current_stream()
        if current != torch.cuda.default_stream():
            return current
        if self.aside is None:
            self.aside = torch.cuda.Stream()
        return self.aside

    def _recorded(self, batch: DomainBatch) -> bool:
        self.batch = batch.each(torch.clone)
        self.graph = record(self._noted, stream=self._stream(), what="the step")
        self.failed = self.graph is None
        return not self.failed

    def _noted(self) -> None:
        assert self.batch is not None
        self.terms = {name: term.detach() for name, term in self.step(self.batch).items()}


def record(call: Callable[[], object], *, stream: torch.cuda.Stream, what: str) -> torch.cuda.CUDAGraph | None:
    """All that a call launches, as a graph; None where it cannot be recorded, with a warning that says ``what``."""
    graph, random_numbers = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state()
    try:
        # Others may be reading samples ahead.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            call()
    except RuntimeError as error:
        torch.cuda.synchronize()
        _end_recording(random_numbers)
        warnings.warn(
            f"{what} cannot be recorded as a CUDA graph ({first_line(error)}); without, it runs slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return graph


def _end_recording(random_numbers: Tensor) -> None:
    """A recording that broke off leaves the generator in the belief that it goes on; a whole one ends that."""
    some = torch.zeros((), device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
        some.add_(0)
    torch.cuda.set_rng_state(random_numbers)


def _tensors(batch: DomainBatch) -> list[Tensor]:
    return [tensor for tensor in (batch.inputs, batch.targets, batch.domains) if tensor is not None]


def _shapes(batch: DomainBatch) -> list[torch.Size]:
    return [tensor.shape for tensor in _tensors(batch)]
