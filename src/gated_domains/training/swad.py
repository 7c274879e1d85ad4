"""SWAD: the mean of the weights over every step of the flat valley that the validation loss goes through.

Cha et al. (2021), "SWAD: Domain Generalization by Seeking Flat Minima".

>>> swad = SWAD()
>>> swad.update(model)                  # after every step
>>> swad.segment_ended(loss)            # after every segment, some steps each, until swad.over
>>> swad.apply(model)                   # what batch norms keep is then of other weights: renew_norms
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gated_domains.layer.kernels import at_least_float32
from gated_domains.training.ema import trained_parameters
from gated_domains.training.valley import Valley


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


class SWAD:
    """Means of the trained parameters by segment, and of them the mean over the valley of the validation loss.

    A segment is some steps between two evaluations of the validation loss, several an epoch. Buffers and frozen
    parameters are the module's own. What is kept are the means of a few segments until the valley has begun, then two:
    of the segments in it, and of the last ones above its rim, which may yet turn out to be in it.
    """

    def __init__(self) -> None:
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

    def state(self) -> dict[str, Any]:
        """What ``load_state`` needs to go on exactly; the tensors are not copied."""
        means = [self.segment, self.inside, self.above, *self.waiting]
        return {
            "losses": list(self.valley.losses),
            "ends": list(self.ends),
            "means": [[mean.count, mean.values] for mean in means],
        }

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Go on from a ``state``, on this device."""
        self.valley, self.ends = Valley(losses=list(state["losses"])), list(state["ends"])
        means = (
            MeanWeights(count, {name: value.to(device, copy=True) for name, value in values.items()})
            for count, values in state["means"]
        )
        self.segment, self.inside, self.above, *self.waiting = means
