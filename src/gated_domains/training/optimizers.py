"""From a batch to an update of the weights: optimizers, learning rates, and steps recorded as CUDA graphs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from gated_domains.backbones.backbone import Body
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import first_line
from gated_domains.methods.method import Method, Terms, total
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.training.augmentation import augmented
from gated_domains.training.callbacks.ema import EMA
from gated_domains.training.engine import WrappedObjective
from gated_domains.training.mixing import TEACHER_DECAY, Consistency, FourierMix, Mixing, start_mixing
from gated_domains.training.training_data import TrainingData

Step = Callable[[DomainBatch], Terms]
_IMAGES = 4  # dimensions of a batch of them
_WARM_UP = 3  # steps that are taken one kernel at a time, so that libraries choose their algorithms before recording


class UpdateStep:
    """One update of a method's weights by a batch: with augmentation, mixed styles and accumulated gradients.

    Parameters
    ----------
    method
        What is trained, on its device.
    data
        What it is trained on.
    settings
        The optimizer, and which of the switches are on.
    fabric
        Device, precision and processes.
    compiled
        Whether torch.compile makes the objective, where it can be one graph.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
        The optimizer, without Fabric's wrapper.
    advance : callable
        The update itself, by an augmented batch; on a GPU recorded as a CUDA graph where it can be.
    ema : EMA or None
        The average of the weights that is validated and kept.
    teacher : EMA or None
        A second average, for consistency alone, where ``ema`` is off.
    mixing, fourier, consistency
        MixStyle, Fourier mixing and consistency; None where they are off.
    """

    def __init__(
        self, method: Method, data: TrainingData, settings: TrainingSettings, *, fabric: Fabric, compiled: bool = False
    ) -> None:
        self.method, self.settings, self.fabric = method, settings, fabric
        static = self._prepare_bodies()
        self.optimizer = make_optimizer(method, settings, fabric.device)
        wrapped, self._stepper = fabric.setup(method, self.optimizer)
        compiled = compiled and static and fabric.world_size == 1  # one graph, for batches of one shape
        compiled = compiled and not settings.checkpoint_activations and settings.precision in ("32", "bf16")
        self.objective = WrappedObjective(fabric, wrapped, compiled=method if compiled else None)
        self.ema = None if settings.ema is None else EMA(method, decay=settings.ema)
        self.mixing: Mixing | None = None
        if settings.mixstyle is not None:
            self.mixing = start_mixing(method, settings.mixstyle, data=data, group_by=settings.group_by, fabric=fabric)
        self.fourier: FourierMix | None = None
        encoding = data.samples.encoding
        if settings.fourier_mix is not None and len(encoding.shape) == _IMAGES - 1:  # features stay as they are
            self.fourier = FourierMix(settings.fourier_mix, black=encoding.black)
        self.teacher: EMA | None = None
        self.consistency: Consistency | None = None
        if settings.consistency is not None and self.fourier is not None:
            if self.ema is None:
                self.teacher = EMA(method, decay=TEACHER_DECAY, evaluate=False)
            average = self.ema or self.teacher
            assert average is not None
            self.consistency = Consistency(method, average, weight=settings.consistency, fabric=fabric)
        self.advance: Step = self._advance
        recordable = settings.optimizer != "sgd" and fabric.world_size == 1 and static
        if fabric.device.type == "cuda" and recordable:
            self.advance = GraphedStep(self.advance)

    def __call__(self, batch: DomainBatch, *, step: int, steps: int, drops: int = 0) -> Terms:
        """Update the weights by a batch, as step ``step`` of ``steps``; the terms of the loss before the update.

        ``drops`` counts how often a plateau has lowered the learning rate.
        """
        set_rate(self.optimizer, rate_at(step, steps, self.settings, drops=drops))
        if self.settings.augment != "none":
            batch = replace(batch, inputs=self.augment(batch.inputs))
        if self.consistency is not None:
            self.consistency.begin_step(step, steps)
        return {name: term.detach() for name, term in self.advance(batch).items()}

    def augment(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images augmented as the settings say; cached features of a frozen body stay as they are."""
        if self.settings.augment == "none" or inputs.ndim != _IMAGES:
            return inputs
        return augmented(inputs, self.settings.augment, generator)

    def load_optimizer(self, state: dict[str, Any]) -> None:
        """Continue with the state of an optimizer as it was saved."""
        self.optimizer.load_state_dict(state)
        lay_out_state(self.optimizer)
        if self.fabric.device.type == "cuda" and self.settings.optimizer != "sgd":
            rates_to(self.optimizer, self.fabric.device)

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know of mixing."""
        mixings = [mixing for mixing in (self.mixing, self.fourier) if mixing is not None]
        return tuple(note for mixing in mixings for note in mixing.notes(self.fabric.world_size))

    def release(self) -> None:
        """Let go of what would outlast the training: the memory of a recorded step, the mixer on the body."""
        self.advance = self._advance
        if self.mixing is not None:
            self.mixing.mixer.remove()

    def _advance(self, batch: DomainBatch) -> Terms:
        mixed = batch if self.fourier is None else self.fourier(batch)
        if self.settings.accumulate > 1:
            return self._accumulated(batch, mixed)
        batch = self._with_views(batch, mixed)
        if self.mixing is not None:
            return self.mixing.step(self.method, self.objective, batch, self._stepper)
        return self.method.step(self.objective, batch, self._stepper)

    def _with_views(self, plain: DomainBatch, mixed: DomainBatch) -> DomainBatch:
        """What the objective gets: both views with a teacher's predictions, or the mixed one alone."""
        return mixed if self.consistency is None else self.consistency.both_views(plain, mixed)

    def _accumulated(self, batch: DomainBatch, mixed: DomainBatch) -> Terms:
        """One update by the gradients of the batch's parts, added up."""
        parts = list(zip(batch.cut(self.settings.accumulate), mixed.cut(self.settings.accumulate), strict=True))
        self._stepper.zero_grad(set_to_none=True)
        sums: Terms = {}
        for number, views in enumerate(parts, start=1):
            share, part = len(views[0]) / len(batch), self._with_views(*views)
            # Processes share gradients once, after the last part.
            with self.fabric.no_backward_sync(self.objective.module, enabled=number < len(parts)):
                terms = self.objective(part)
                self.objective.backward(total(terms) * share)
            for name, term in terms.items():
                sums[name] = sums[name] + share * term.detach() if name in sums else share * term.detach()
        self._stepper.step()
        return sums

    def _prepare_bodies(self) -> bool:
        """Let bodies save memory where settings ask for it; whether all of them take batches of one shape."""
        bodies = [part for part in self.method.modules() if isinstance(part, Body)]
        if self.settings.checkpoint_activations:
            for body in bodies:
                body.checkpoint_activations(True)
        return all(body.static for body in bodies)


def make_optimizer(method: Method, settings: TrainingSettings, device: torch.device) -> torch.optim.Optimizer:
    """The optimizer over the method's parameter groups, fused; on a GPU fit for a graph where it can be."""
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

    A fused optimizer goes through memory, not through indices: beside a convolution that lies channels last, moments
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


class GraphedStep:
    """``step(batch)``, as a graph from the fourth batch on; batches of another shape are stepped as ever.

    A small network on a fast GPU waits for the host most of the time: a graph is one launch. All that a step writes
    (weights, optimizer state, running statistics) it writes in place, and what it reads between steps (learning rate,
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
