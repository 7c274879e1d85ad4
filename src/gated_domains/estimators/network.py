"""What an estimator trains: standardised inputs, a linear or a gated head, and how its outputs are read."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.estimators.scaling import Scaling
from gated_domains.layer.experts import Binary, Logits, Predicted, Prediction, Regression, Task
from gated_domains.layer.gates import GatedOutput, Weighed, residual
from gated_domains.layer.units import GatedDomainUnits, Gates


class TwoClasses(Binary):
    """One of two classes by one logit, as logistic regression has it; read as the probabilities of both."""

    def read(self, out: Predicted) -> Tensor:
        # Not 1 - yes: a small probability would be rounded away.
        return torch.cat([-out.prediction, out.prediction], dim=-1).sigmoid()


class Network(nn.Module, ABC):
    """Standardised inputs -> a head -> outputs; numbers that are predicted are standardised, too."""

    units: GatedDomainUnits | None

    def __init__(self, inputs: Scaling, outputs: Scaling, task: Task) -> None:
        super().__init__()
        self.inputs, self.outputs, self.task = inputs, outputs, task

    @abstractmethod
    def predict(self, inputs: Float[Tensor, "batch features"]) -> Prediction:
        """Probabilities or numbers, and what gates found."""

    @abstractmethod
    def logits(self, inputs: Float[Tensor, "batch features"]) -> Float[Tensor, "batch outputs"]:
        """The head's raw outputs."""

    @abstractmethod
    def loss(
        self,
        standard: Float[Tensor, "batch features"],
        targets: Tensor,
        weights: Float[Tensor, " batch"],
        weighed: Weighed | None = None,
    ) -> Float[Tensor, ""]:
        """``sum_i w_i loss_i + rows * penalties``: what a batch adds to the objective, before its division by rows.

        Of standardised inputs; ``weighed`` where the gates of these rows are known already.
        """

    @abstractmethod
    def ridge(self) -> Float[Tensor, ""]:
        """``alpha / 2 ||W||^2``; biases and bases are let be."""

    @property
    @abstractmethod
    def head(self) -> nn.Module:
        """What is trained."""

    @property
    def dtype(self) -> torch.dtype:
        """The precision that the head computes in; scaling is always exact."""
        return next(self.head.parameters()).dtype

    def trained(self) -> list[nn.Parameter]:
        """What is learned: bases that are to stay where they are do not belong to it."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def standard(self, inputs: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        """The inputs as the head sees them."""
        standard: Tensor = self.inputs(inputs)
        return standard.to(self.dtype)

    def read(self, out: Predicted) -> Tensor:
        """What the outputs stand for."""
        said = self.task.read(out)
        return self.outputs.undo(said) if isinstance(self.task, Regression) else said

    def standard_targets(self, targets: Tensor) -> Tensor:
        """Targets as the loss takes them."""
        if not isinstance(self.task, Regression):
            return targets
        standard: Tensor = self.outputs(targets)
        return standard.to(self.dtype)


class PlainNetwork(Network):
    """A linear head: empirical risk minimisation."""

    units: None = None

    def __init__(self, inputs: Scaling, outputs: Scaling, task: Task, *, alpha: float) -> None:
        super().__init__(inputs, outputs, task)
        self.alpha = alpha
        self.linear = nn.Linear(len(inputs.mean), len(outputs.mean))
        nn.init.zeros_(self.linear.weight)  # the objective is convex: there is nothing to be drawn by chance
        nn.init.zeros_(self.linear.bias)

    @property
    def head(self) -> nn.Module:
        return self.linear

    def logits(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.standard(inputs))
        return logits

    def predict(self, inputs: Tensor) -> Prediction:
        return Prediction(self.read(Logits(self.logits(inputs))))

    def loss(self, standard: Tensor, targets: Tensor, weights: Tensor, weighed: Weighed | None = None) -> Tensor:
        return weights @ self.task.losses(Logits(self.linear(standard)), targets)

    def ridge(self) -> Tensor:
        return self.alpha / 2 * self.linear.weight.square().sum()


class GatedNetwork(Network):
    """Gated domain units on the standardised inputs, which are what gates see too.

    The deviations from a shared expert have a ridge of their own, ``deviation_alpha``.
    """

    units: GatedDomainUnits

    def __init__(
        self,
        inputs: Scaling,
        outputs: Scaling,
        task: Task,
        *,
        units: GatedDomainUnits,
        alpha: float,
        deviation_alpha: float,
    ) -> None:
        super().__init__(inputs, outputs, task)
        self.units, self.alpha, self.deviation_alpha = units, alpha, deviation_alpha

    @property
    def head(self) -> nn.Module:
        return self.units

    def evaluate(self, inputs: Tensor, *, gates: Gates = "sample") -> GatedOutput:
        """All that the units find."""
        return self.units.evaluate(self.standard(inputs), gates=gates)

    def logits(self, inputs: Tensor) -> Tensor:
        return self.evaluate(inputs).prediction

    def predict(self, inputs: Tensor, gates: Gates = "sample") -> Prediction:
        out = self.evaluate(inputs, gates=gates)
        left = residual(out.products, self.units.gate.explaining(out.products))
        rows = inputs.shape[0]  # of a batch or a stream there is one beta, which is that of every row
        return Prediction(
            output=self.read(out), beta=out.beta.expand(rows, -1), residual=left.expand(rows), coverage=out.coverage
        )

    def loss(self, standard: Tensor, targets: Tensor, weights: Tensor, weighed: Weighed | None = None) -> Tensor:
        out = self.units.mix(standard, self.units.weigh(standard) if weighed is None else weighed)
        loss = weights @ self.task.losses(out, targets)
        # Of bases that stay where they are penalties are constants.
        return loss + len(standard) * self.units.penalty(out) if self.units.bases.requires_grad else loss

    def ridge(self) -> Tensor:
        own, shared = self.units.experts, self.units.shared
        if shared is None:
            return self.alpha / 2 * _size(own)
        return self.alpha / 2 * _size(shared) + self.deviation_alpha / 2 * _size(own)


def _size(experts: nn.Module) -> Tensor:
    weight = experts.weight
    assert isinstance(weight, Tensor)
    return weight.square().sum()
