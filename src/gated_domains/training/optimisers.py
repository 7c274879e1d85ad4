"""Optimisers, and the learning rate as a function of the step alone, so that resuming needs no state of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gated_domains.methods.method import Method
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
