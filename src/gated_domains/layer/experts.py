"""Experts and tasks: the learning machine of every basis, and what is done with their outputs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from gated_domains.common.validation import known_name
from gated_domains.layer.kernels import at_least_float32

Activation = Callable[[Tensor], Tensor]
TEMPERATURE = 4.0
"""At which predictions are compared with those of a teacher."""


class Experts(nn.Module):
    """M learning machines on the same features."""

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch bases outputs"]:
        raise NotImplementedError

    def start_at_zero(self) -> None:
        """Make every output 0, as deviations from a shared expert begin."""
        raise NotImplementedError


ExpertsFactory = Callable[[int, int, int], Experts]


class LinearExperts(Experts):
    """``W_j x + b_j`` for all j in one matrix product."""

    def __init__(
        self,
        num_bases: int,
        in_features: int,
        out_features: int,
        *,
        activation: Activation | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(_uniform(num_bases, out_features, in_features, fan_in=in_features))
        self.bias = nn.Parameter(_uniform(num_bases, out_features, fan_in=in_features)) if bias else None
        self.activation = activation

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch bases outputs"]:
        # The bias apart: with it inside, cuBLAS takes twice as long for this shape (measured on an H200).
        outputs = F.linear(features, self.weight.flatten(0, 1)).reshape(-1, *self.weight.shape[:2])
        outputs = outputs if self.bias is None else outputs + self.bias
        return outputs if self.activation is None else self.activation(outputs)

    @torch.no_grad()
    def start_at_zero(self) -> None:
        for parameter in self.parameters():
            parameter.zero_()

    def extra_repr(self) -> str:
        bases, outputs, features = self.weight.shape
        return f"{bases} x ({features} -> {outputs}), bias={self.bias is not None}"


class MLPExperts(Experts):
    """One hidden layer for each basis: ``W_j act(U_j x + a_j) + b_j``."""

    def __init__(
        self,
        num_bases: int,
        in_features: int,
        out_features: int,
        *,
        hidden: int = 64,
        activation: Activation = F.relu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.first = LinearExperts(num_bases, in_features, hidden, activation=activation, bias=bias)
        self.weight = nn.Parameter(_uniform(num_bases, hidden, out_features, fan_in=hidden))
        self.bias = nn.Parameter(_uniform(num_bases, out_features, fan_in=hidden)) if bias else None

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch bases outputs"]:
        outputs = torch.einsum("bjh,jho->bjo", self.first(features), self.weight)
        return outputs if self.bias is None else outputs + self.bias

    @torch.no_grad()
    def start_at_zero(self) -> None:
        self.weight.zero_()
        if self.bias is not None:
            self.bias.zero_()


class StackedExperts(Experts):
    """Any module, M times: what ``factory(in_features, out_features)`` makes in M calls, stacked and vmapped."""

    def __init__(
        self, num_bases: int, in_features: int, out_features: int, *, factory: Callable[[int, int], nn.Module]
    ) -> None:
        super().__init__()
        self.num_bases = num_bases
        modules = [factory(in_features, out_features) for _ in range(num_bases)]
        parameters, buffers = stack_module_state(modules)
        self.parameter_names, self.buffer_names = list(parameters), list(buffers)
        for name, value in parameters.items():
            self.register_parameter(_key(name), nn.Parameter(value.detach()))
        for name, value in buffers.items():
            self.register_buffer(_key(name), value)
        # In a tuple, so that its own parameters, which are never used, are not registered.
        self.skeleton = (copy.deepcopy(modules[0]).to("meta"),)

    def forward(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, "batch bases outputs"]:
        def one(state: dict[str, Tensor]) -> Tensor:
            return cast(Tensor, functional_call(self.skeleton[0], state, (features,)))

        if self.skeleton[0].training != self.training:
            self.skeleton[0].train(self.training)
        state = {name: getattr(self, _key(name)) for name in self.parameter_names + self.buffer_names}
        if torch.compiler.is_compiling():  # a graph unrolls the loop; export does not get through vmap
            members = range(self.num_bases)
            return torch.stack([one({name: value[j] for name, value in state.items()}) for j in members], dim=1)
        return torch.vmap(one, out_dims=1, randomness="different")(state)

    @torch.no_grad()
    def start_at_zero(self) -> None:
        if not self.parameter_names:
            raise ValueError(f"{self.skeleton[0]} has no parameters that could start at zero; use shared=False")
        last_module = self.parameter_names[-1].rpartition(".")[0]
        for name in self.parameter_names:
            if name.rpartition(".")[0] == last_module:
                getattr(self, _key(name)).zero_()


def start_at_zero(experts: Experts, in_features: int) -> None:
    """Make experts deviations that begin as nothing, and check that they do."""
    experts.start_at_zero()
    experts.eval()  # the look below must not move running statistics
    with torch.no_grad():
        largest = experts(torch.ones(2, in_features)).abs().amax()
    experts.train()
    if not largest.is_meta and float(largest) > 0:
        raise ValueError(
            f"deviations from a shared expert must start at zero, these give {float(largest):.3g}: their last "
            "activation does not map 0 to 0, or the module registers its output layer before others; change that, "
            "or use shared=False"
        )


def _key(name: str) -> str:
    return "stacked_" + name.replace(".", "__")


def _uniform(*shape: int, fan_in: int) -> Tensor:
    """As nn.Linear starts: uniform within 1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return torch.empty(shape).uniform_(-bound, bound)


@runtime_checkable
class Predicted(Protocol):
    """What a task reads of a ``GatedOutput``."""

    @property
    def prediction(self) -> Tensor: ...
    @property
    def variance(self) -> Tensor | None: ...


class Logits(NamedTuple):
    """What a task reads of a network without gates."""

    prediction: Tensor
    variance: Tensor | None = None


class Prediction(NamedTuple):
    """Probabilities of the classes, or the number predicted; of a gated method also what its gates saw."""

    output: Float[Tensor, "batch outputs"]
    beta: Float[Tensor, "batch bases"] | None = None
    residual: Float[Tensor, " batch"] | None = None
    """``||phi(x) - sum_j beta_j mu_j||^2``: how unlike anything the bases express a sample is."""
    coverage: Float[Tensor, " batch"] | None = None
    """How much of the deviations from the shared expert a sample gets, 0 to 1."""


class Task:
    """``loss`` compares with targets, ``read`` turns the raw prediction into what it stands for."""

    #: How many numbers an expert gives for each output.
    numbers_an_output = 1

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        raise NotImplementedError

    def losses(self, out: Predicted, target: Tensor) -> Float[Tensor, " batch"]:
        """The loss of each sample, at least in float32; ``loss`` is their mean where every answer is known."""
        raise NotImplementedError(f"{type(self).__name__} has no loss of single samples")

    def read(self, out: Predicted) -> Tensor:
        return out.prediction

    def divergence(self, out: Predicted, soft: Tensor) -> Float[Tensor, ""]:
        """How far predictions are from a teacher's, whose ``read`` outputs are ``soft``: the mean squared error."""
        predicted = at_least_float32(self.read(out))
        return F.mse_loss(predicted, soft.to(predicted))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MultiClass(Task):
    """One of several classes: cross-entropy on logits, softmax to read; ``class_weight`` for unbalanced data."""

    def __init__(self, class_weight: Tensor | None = None) -> None:
        self.class_weight = class_weight

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        weight = None if self.class_weight is None else self.class_weight.to(out.prediction)
        return F.cross_entropy(out.prediction.reshape(-1, out.prediction.shape[-1]), target.flatten(), weight=weight)

    def losses(self, out: Predicted, target: Tensor) -> Float[Tensor, " batch"]:
        logits = at_least_float32(out.prediction)
        weight = None if self.class_weight is None else self.class_weight.to(logits)
        return F.cross_entropy(logits, target, weight=weight, reduction="none")

    def read(self, out: Predicted) -> Tensor:
        return at_least_float32(out.prediction).softmax(-1)

    def divergence(self, out: Predicted, soft: Tensor) -> Float[Tensor, ""]:
        """``T^2 KL(p_T || q_T)``: the teacher's probabilities p and these, q, both at temperature T = 4.

        T^2 keeps gradients of the size that they have at temperature 1.
        """
        logits = at_least_float32(out.prediction)
        smallest = torch.finfo(logits.dtype).tiny
        target = soft.to(logits).clamp_min(smallest).log().div(TEMPERATURE).log_softmax(-1)
        found = (logits / TEMPERATURE).log_softmax(-1)
        return TEMPERATURE**2 * F.kl_div(found, target, reduction="batchmean", log_target=True)


class MultiLabel(Task):
    """Several yes/no answers: logistic loss on each, a target of NaN meaning that the answer is not known."""

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        target = target.to(out.prediction.dtype)
        known = ~target.isnan()
        terms = F.binary_cross_entropy_with_logits(out.prediction, target.nan_to_num(), reduction="none")
        return (terms * known).sum() / known.sum().clamp_min(1)

    def losses(self, out: Predicted, target: Tensor) -> Float[Tensor, " batch"]:
        logits = at_least_float32(out.prediction)
        target = target.to(logits.dtype).reshape(logits.shape)
        known = ~target.isnan()
        terms = F.binary_cross_entropy_with_logits(logits, target.nan_to_num(), reduction="none")
        return ((terms * known).sum(-1) / known.sum(-1).clamp_min(1)).flatten()

    def read(self, out: Predicted) -> Tensor:
        return at_least_float32(out.prediction).sigmoid()

    def divergence(self, out: Predicted, soft: Tensor) -> Float[Tensor, ""]:
        """``T^2 KL(p_T || q_T)`` of every answer, on average, at temperature T = 4."""
        logits = at_least_float32(out.prediction)
        soft, limits = soft.to(logits).reshape(logits.shape), torch.finfo(logits.dtype)
        # A probability that was rounded to 1 no longer says how large its logit was.
        no_logarithm = torch.log1p(-soft.clamp_max(1 - limits.eps))
        teacher = (soft.clamp_min(limits.tiny).log() - no_logarithm) / TEMPERATURE
        found = logits / TEMPERATURE
        yes, no = teacher.sigmoid(), (-teacher).sigmoid()
        terms = yes * (F.logsigmoid(teacher) - F.logsigmoid(found))
        terms = terms + no * (F.logsigmoid(-teacher) - F.logsigmoid(-found))
        return TEMPERATURE**2 * terms.mean()


class Binary(MultiLabel):
    """One yes/no answer: a head with one output, targets 0 and 1 of shape (batch,) or (batch, 1)."""

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        return super().loss(out, target.reshape(out.prediction.shape))


class Regression(Task):
    """Real numbers: mean squared error."""

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        return F.mse_loss(out.prediction, target.reshape(out.prediction.shape).to(out.prediction.dtype))

    def losses(self, out: Predicted, target: Tensor) -> Float[Tensor, " batch"]:
        predicted = at_least_float32(out.prediction)
        return (predicted - target.reshape(predicted.shape).to(predicted.dtype)).square().flatten(1).mean(1)


class ProbabilisticRegression(Task):
    """Real numbers with their uncertainty: each expert gives a mean and a scale, the mixture is moment-matched.

    The loss is the Gaussian negative log-likelihood; ``GatedOutput.variance`` carries the variance.
    """

    numbers_an_output = 2

    def __init__(self, min_scale: float = 1e-3) -> None:
        self.min_scale = min_scale

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        if out.variance is None:
            raise ValueError("this output carries no variance: build the head with task=ProbabilisticRegression()")
        target = target.reshape(out.prediction.shape).to(out.prediction.dtype)
        return F.gaussian_nll_loss(out.prediction, target, out.variance, full=True)

    def losses(self, out: Predicted, target: Tensor) -> Float[Tensor, " batch"]:
        if out.variance is None:
            raise ValueError("this output carries no variance: build the head with task=ProbabilisticRegression()")
        predicted, variance = at_least_float32(out.prediction), at_least_float32(out.variance)
        target = target.reshape(predicted.shape).to(predicted.dtype)
        return F.gaussian_nll_loss(predicted, target, variance, full=True, reduction="none").flatten(1).mean(1)

    def moments(self, raw: Float[Tensor, "*lead twice_outputs"]) -> tuple[Tensor, Tensor]:
        """Mean and scale from an expert's raw numbers."""
        mean, scale = raw.chunk(2, dim=-1)
        return mean, F.softplus(scale) + self.min_scale


def match_moments(
    weights: Float[Tensor, "#batch bases"],
    means: Float[Tensor, "batch bases outputs"],
    scales: Float[Tensor, "batch bases outputs"],
) -> tuple[Float[Tensor, "batch outputs"], Float[Tensor, "batch outputs"]]:
    """Mean and variance of a mixture of Gaussians with weights on the simplex.

    ``mean = sum w mu``; ``variance = sum w (s^2 + mu^2) - mean^2``, written so that it cannot be negative.
    """
    w = weights.unsqueeze(-1)
    mean = (w * means).sum(-2)
    variance = (w * (scales.square() + (means - mean.unsqueeze(-2)).square())).sum(-2)
    return mean, variance


TASKS: dict[str, type[Task]] = {
    "multi_class": MultiClass,
    "binary": Binary,
    "multi_label": MultiLabel,
    "regression": Regression,
    "probabilistic_regression": ProbabilisticRegression,
}


def as_task(task: str | Task) -> Task:
    """The task of that name, or the one given."""
    if isinstance(task, str):
        return TASKS[known_name("task", task, TASKS)]()
    if not isinstance(task, Task):
        raise TypeError(f"task must be a task or its name, got {task!r}; try MultiClass() or 'regression'")
    return task
