"""One step of all members: gradients by one vmapped pass, updates by one optimiser, and no word to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from gated_domains.methods.method import Method, Terms, total
from gated_domains.training.engine import as_computed
from gated_domains.training.loop import Training
from gated_domains.training.population.adam import StackedAdam
from gated_domains.training.population.stacking import Stack
from gated_domains.training.population.suitable import term_weights
from gated_domains.training.population.tables import Tables

State = dict[str, Tensor]


class StackedStep:
    """``step()`` takes the next of the steps that were ``laid_out``, with all that is counted on the way.

    Everything it reads and writes lies in tensors that stay where they are, so that a graph can replay it.
    """

    def __init__(self, members: Sequence[Training], method: Method, stack: Stack, tables: Tables) -> None:
        first, self.method = members[0], method
        self.fabric, device = first.fabric, first.device
        self.stack, self.tables, self.adam = stack, tables, StackedAdam(members, stack.weights)
        self.scales = _scales(members)
        steps, rows = max(len(member.sampler) for member in members), len(next(first.sampler.batches(0)))
        self.order = torch.zeros((steps, len(members), rows), dtype=torch.int32, device=device)
        # On a GPU in the numbers that a member's own optimiser has its rate in there.
        exact = torch.float64 if device.type == "cpu" else torch.float32
        self.rates = torch.zeros((steps, len(self.adam.blocks)), dtype=exact, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.names: list[str] = []
        self.sums = torch.zeros((len(members), 0), dtype=torch.float64, device=device)
        self.broken = torch.full((len(members),), -1, dtype=torch.int64, device=device)
        self.values = torch.zeros((len(members), 0), device=device)
        self.ema = first.ema
        self.counts = torch.tensor([float(member.ema.count) if member.ema else 0.0 for member in members])
        self.counts = self.counts.to(device, torch.float64)

    def lay_out(self, order: Tensor, rates: Sequence[Sequence[float]]) -> None:
        """Make ready some steps: the rows of each member, ``(steps, members, rows)``, and the learning rates."""
        self.at.zero_()
        self.order[: len(order)] = order.to(self.order.device, non_blocking=True)
        self.rates[: len(rates)] = torch.tensor(rates, dtype=self.rates.dtype).to(self.rates.device)

    def __call__(self) -> None:
        picks = self.order.index_select(0, self.at).squeeze(0)
        inputs = as_computed(self.tables.inputs(picks), self.fabric)
        targets = as_computed(self.tables.labels(picks), self.fabric)
        gradients, terms = self._gradients(inputs, targets)
        self.adam.step(gradients, self.rates.index_select(0, self.at).squeeze(0))
        if self.stack.averages:
            self._average()
        self._count(terms)
        self.at.add_(1)

    def counted(self) -> tuple[Tensor, Tensor, Tensor]:
        """Since it was last asked: sums of the terms, the place of the first loss that was no number, its terms."""
        sums, broken, values = (kept.to("cpu", copy=True) for kept in (self.sums, self.broken, self.values))
        self.sums.zero_()
        self.broken.fill_(-1)
        return sums, broken, values

    def _gradients(self, inputs: Tensor, targets: Tensor) -> tuple[State, Terms]:
        method = self.method

        def loss(weights: State, rest: State, x: Tensor, y: Tensor, scales: State) -> tuple[Tensor, Terms]:
            terms = cast(Terms, functional_call(method, {**weights, **rest}, (x, y)))
            terms = {name: _scaled(term, scales.get(name)) for name, term in terms.items()}
            return total(terms), terms

        each: Any = vmap(grad(loss, has_aux=True), randomness="error")
        with self._precision():
            gradients, terms = each(self.stack.weights, self.stack.rest, inputs, targets, self.scales)
        gradients = {name: gradients[name].to(w.dtype).contiguous() for name, w in self.stack.weights.items()}
        return gradients, terms

    def _precision(self) -> AbstractContextManager[Any]:
        return self.fabric.strategy.precision.forward_context()

    @torch.no_grad()
    def _average(self) -> None:
        """As ``EMA.update`` does it, with the count of each member."""
        assert self.ema is not None
        towards = 1 - ((1 + self.counts) / (10 + self.counts)).clamp(max=self.ema.decay)
        for name, averages in self.stack.averages.items():
            share = towards.to(averages.dtype).reshape(-1, *(1,) * (averages.ndim - 1))
            averages.lerp_(self.stack.weights[name].to(averages.dtype), share)
        self.counts.add_(1)

    def _count(self, terms: Terms) -> None:
        values = torch.stack([term.float() for term in terms.values()], dim=1)
        if not self.names:
            self.names = list(terms)
            self.sums = self.sums.new_zeros(values.shape)
            self.values = torch.zeros_like(values)
        self.sums.add_(torch.stack([term.double() for term in terms.values()], dim=1))
        new = (self.broken < 0) & ~torch.isfinite(values.sum(1))
        self.values.copy_(torch.where(new.unsqueeze(1), values, self.values))
        self.broken.copy_(torch.where(new, self.at, self.broken))


def _scales(members: Sequence[Training]) -> State:
    """By how much each term of a member outweighs that of the first; nothing where all weigh it alike."""
    weights = [term_weights(member.method) for member in members]
    scales = {name: [own[name] / weight for own in weights] for name, weight in weights[0].items() if weight > 0}
    device = members[0].device
    kept = {name: own for name, own in scales.items() if any(scale != 1 for scale in own)}
    return {name: torch.tensor(own, dtype=torch.float64, device=device) for name, own in kept.items()}


def _scaled(term: Tensor, scale: Tensor | None) -> Tensor:
    return term if scale is None else term * scale.to(term.dtype)


class _Asking(torch.nn.Module):
    """A question to a method, as a call."""

    def __init__(self, method: Method, question: Callable[[Method, Tensor], Any]) -> None:
        super().__init__()
        self.method, self.question = method, question

    def forward(self, inputs: Tensor) -> Any:
        return self.question(self.method, inputs)


def say(method: Method, weights: State, rest: State, inputs: Tensor) -> Tensor:
    """What every member predicts, ``(members, rows, outputs)``, of inputs of its own."""
    return cast(Tensor, _asked(method, lambda one, x: one.predict(x).output, {**weights, **rest}, inputs))


def read(method: Method, weights: State, rest: State, inputs: Tensor) -> list[dict[str, float]]:
    """The measures of every member, on inputs of its own; the device is waited for once."""
    found: State = _asked(method, lambda one, x: one.readings(x), {**weights, **rest}, inputs)
    if not found:
        return [{} for _ in inputs]
    values = torch.stack([value.double() for value in found.values()], dim=1).tolist()
    return [dict(zip(found, own, strict=True)) for own in values]


@torch.no_grad()
def _asked(method: Method, question: Callable[[Method, Tensor], Any], tensors: State, inputs: Tensor) -> Any:
    asking = _Asking(method, question)

    def one(own: State, x: Tensor) -> Any:
        return functional_call(asking, {f"method.{name}": value for name, value in own.items()}, (x,))

    return vmap(one, randomness="error")(tensors, inputs)
