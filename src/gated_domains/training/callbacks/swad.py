"""SWAD: the mean of the weights over every step of the flat valley that the validation loss goes through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gated_domains.backbones.backbone import evaluating, unmoved_buffers
from gated_domains.evaluation.metrics import Evidence, validation_loss
from gated_domains.layer.kernels import at_least_float32
from gated_domains.training.callbacks.base import Callback
from gated_domains.training.callbacks.ema import renew_statistics, trained_parameters

if TYPE_CHECKING:
    from gated_domains.training.trainer import Trainer


@dataclass
class Valley:
    """Validation losses, counted from 0, and the valley that they go through.

    It begins with the first loss that none of the ``converged - 1`` after it undercuts. The mean of these
    ``converged`` losses times ``ratio`` is its rim. It is over once ``tolerated`` losses in a row lie above the rim,
    and ends with the one before those.
    """

    converged: int = 3
    tolerated: int = 6
    ratio: float = 1.3
    losses: list[float] = field(default_factory=list)

    def see(self, loss: float) -> None:
        """One more loss; what follows the valley is not looked at."""
        if not self.over:
            self.losses.append(loss)

    @property
    def start(self) -> int | None:
        """The index of its first loss, as soon as there is one."""
        windows = zip(*(self.losses[ahead:] for ahead in range(self.converged)), strict=False)
        return next((index for index, window in enumerate(windows) if window[0] == min(window)), None)

    @property
    def rim(self) -> float | None:
        """The loss above which it has been left."""
        start = self.start
        return None if start is None else self.ratio * float(np.mean(self.losses[start : start + self.converged]))

    @property
    def above(self) -> int:
        """How many losses in a row, up to the last one, lie above the rim."""
        rim = self.rim
        within = [] if rim is None else [index for index, loss in enumerate(self.losses) if loss <= rim]
        return len(self.losses) - 1 - within[-1] if within else 0

    @property
    def over(self) -> bool:
        """Whether it has been left for good."""
        return self.above >= self.tolerated

    @property
    def interval(self) -> tuple[int, int]:
        """The indices of its first and last loss; where it has not begun, of the last ``converged`` of all."""
        last, start = len(self.losses) - 1, self.start
        if start is None:
            return max(0, last + 1 - self.converged), last
        return start, last - self.above if self.over else last


class MeanWeights:
    """The mean of the trained parameters over some steps."""

    def __init__(self, count: int = 0, values: Mapping[str, Tensor] | None = None) -> None:
        self.count, self.values = count, dict(values or {})

    @torch.no_grad()
    def add(self, parameters: Mapping[str, Tensor]) -> None:
        """One more step."""
        self.count += 1
        if self.count == 1:
            self.values = {name: at_least_float32(p.detach()).clone() for name, p in parameters.items()}
        else:
            self._move([parameters[name] for name in self.values], 1 / self.count)

    @torch.no_grad()
    def join(self, other: MeanWeights) -> None:
        """All steps of another mean."""
        if self.count == 0:
            self.count, self.values = other.count, {name: value.clone() for name, value in other.values.items()}
        elif other.count:
            self.count += other.count
            self._move([other.values[name] for name in self.values], other.count / self.count)

    def _move(self, towards: Sequence[Tensor], share: float) -> None:
        values = list(self.values.values())
        torch._foreach_lerp_(values, [new.to(value) for new, value in zip(towards, values, strict=True)], share)


class SWAD(Callback):
    """Means of the trained parameters by segment, and of them the mean over the valley of the validation loss.

    A segment is some steps between two evaluations of the validation loss, several an epoch. Buffers and frozen
    parameters are the module's own. What is kept are the means of a few segments until the valley has begun, then two:
    of the segments in it, and of the last ones above its rim, which may yet turn out to be in it.

    Parameters
    ----------
    segments
        Segments an epoch.
    stops_early
        Whether a training ends once the valley has been left for good.

    References
    ----------
    Cha et al. (2021), "SWAD: Domain Generalization by Seeking Flat Minima".

    Examples
    --------
    >>> swad = SWAD()
    >>> swad.update(model)                  # after every step
    >>> swad.segment_ended(loss)            # after every segment, until swad.over
    >>> swad.apply(model)                   # then recompute statistics of batch norms: renew_norms
    """

    def __init__(self, *, segments: int = 4, stops_early: bool = True) -> None:
        self.segments, self.stops_early = segments, stops_early
        self.valley = Valley()
        self.segment = MeanWeights()
        self.ends: list[int] = []
        self.waiting: list[MeanWeights] = []
        self.inside, self.above = MeanWeights(), MeanWeights()

    @property
    def over(self) -> bool:
        """Whether nothing that follows is averaged."""
        return self.valley.over

    @property
    def interval(self) -> tuple[int, int]:
        """The first and the last step that are averaged, from 0."""
        first, last = self.valley.interval
        return (self.ends[first - 1] if first else 0), self.ends[last] - 1

    @property
    def note(self) -> str:
        """What was averaged, in words that hold for many trainings; ``interval`` has the steps."""
        if self.valley.start is None:
            return "the weights are the average over the last steps (SWAD): the validation loss had not settled"
        return "the weights are the average over the flat valley of the validation loss (SWAD)"

    def update(self, module: nn.Module) -> None:
        """Count the module's parameters in; call it after every optimiser step."""
        if not self.over:
            self.segment.add(trained_parameters(module))

    def segment_ended(self, loss: float) -> None:
        """A segment is over, with this validation loss."""
        if self.over:
            return
        self.valley.see(loss)
        self.ends.append((self.ends[-1] if self.ends else 0) + self.segment.count)
        self.waiting = [*self.waiting, self.segment][-self.valley.converged :]
        self.segment = MeanWeights()
        rim = self.valley.rim
        if rim is None:
            return
        for seen, mean in zip(self.valley.losses[-len(self.waiting) :], self.waiting, strict=True):
            self.above.join(mean)
            if seen <= rim:
                self.inside.join(self.above)
                self.above = MeanWeights()
        self.waiting = []

    def average(self) -> dict[str, Tensor]:
        """The mean over the steps of ``interval``, by name."""
        mean = MeanWeights()
        for part in [*self.waiting, self.inside, *([] if self.over else [self.above])]:
            mean.join(part)
        return mean.values

    @torch.no_grad()
    def apply(self, module: nn.Module) -> None:
        """Give the module the average, in place."""
        average = self.average()
        for name, parameter in trained_parameters(module).items():
            parameter.copy_(average[name])

    @contextmanager
    def restarting(self, module: nn.Module) -> Iterator[None]:
        """What is rewritten inside, rather than trained, has its averages start anew from there."""
        before = {name: p.detach().clone() for name, p in trained_parameters(module).items()}
        yield
        for name, parameter in trained_parameters(module).items():
            if not torch.equal(before[name], parameter):
                for mean in (self.segment, *self.waiting, self.inside, self.above):
                    if name in mean.values:
                        mean.values[name].copy_(parameter.detach())

    def refitting(self, trainer: Trainer) -> AbstractContextManager[None]:
        return self.restarting(trainer.method)

    def on_step_end(self, trainer: Trainer) -> None:
        """Count the weights in, and at the end of a segment evaluate the validation loss."""
        self.update(trainer.method)
        if not self.over and self._ends_segment(trainer.batch, len(trainer.sampler)):
            # An evaluation must not change the training.
            with unmoved_buffers(trainer.method), trainer.evaluation_mode():
                self._see(trainer, trainer.predict_validation())

    def on_validation_end(self, trainer: Trainer, evidence: Evidence, score: float) -> None:
        """The last segment of an epoch ends with the epoch."""
        self._see(trainer, evidence.output)

    def on_epoch_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Stop the training when nothing more would be averaged."""
        trainer.should_stop = trainer.should_stop or (self.over and self.stops_early)

    def on_fit_end(self, trainer: Trainer) -> None:
        """Give the method the average, and statistics that belong to it."""
        self.apply(trainer.method)
        with evaluating(trainer.method):
            # Twice: gates of the raw input decide what norms see, and norms what gates of early blocks see.
            trainer.method.renew(trainer.sample_inputs, epoch=trainer.epoch, optimizer=None)
            renew_statistics(trainer)

    def _ends_segment(self, batch: int, steps: int) -> bool:
        """Whether a segment ends after this batch of an epoch, other than the last one."""
        return batch in {steps * number // self.segments for number in range(1, self.segments)}

    def _see(self, trainer: Trainer, output: NDArray[Any]) -> None:
        targets = trainer.data.dataset.targets[trainer.data.validation]
        self.segment_ended(trainer.fabric.broadcast(validation_loss(output, targets)))

    def state_dict(self) -> dict[str, Any]:
        """Losses and means; the tensors are not copied."""
        means = [self.segment, self.inside, self.above, *self.waiting]
        return {
            "losses": list(self.valley.losses),
            "ends": list(self.ends),
            "means": [[mean.count, mean.values] for mean in means],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.valley, self.ends = Valley(losses=list(state["losses"])), list(state["ends"])
        means = (
            MeanWeights(count, {name: value.clone() for name, value in values.items()})
            for count, values in state["means"]
        )
        self.segment, self.inside, self.above, *self.waiting = means
