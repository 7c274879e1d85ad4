"""The contract of every method: what it is built for, what is minimised, and what it predicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.backbones.backbone import Backbone, Body
from gated_domains.backbones.gated_norm import GatedNorm
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.data.sampling import Sampling
from gated_domains.layer.experts import MultiClass, Predicted, Prediction, Regression, Task
from gated_domains.layer.kernels import at_least_float32
from gated_domains.settings import Settings

Terms = dict[str, Tensor]
Mode = Literal["end_to_end", "fine_tune"]
Own = TypeVar("Own", bound="Method")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """All a method needs to know before it sees data.

    ``kind`` is that of the inputs (images, features, table) and ``shape`` that of one encoded sample. ``make_body``
    gives a fresh body at each call, or a trained one to be kept as it is.
    """

    kind: str
    shape: tuple[int, ...]
    outputs: int
    task: Task
    make_body: Callable[[], Body]
    domains: tuple[int, ...] = ()
    """Training rows of each source domain, in the order of the indices in a batch; empty where none are known."""
    rows_a_domain: int | None = None
    """Rows of one domain in a training batch, on average where batches are not made up in blocks; None: not known."""

    @classmethod
    def of_vectors(cls, width: int, classes: int, *, domains: tuple[int, ...] = ()) -> Problem:
        """A classification problem on vectors with a small network, for tests of a method."""
        from gated_domains.backbones.bodies import MLP

        task, hidden = Classes(), (8,)
        return cls(
            kind="features",
            shape=(width,),
            outputs=classes,
            task=task,
            make_body=lambda: MLP((width,), hidden),
            domains=domains,
        )


class Classes(MultiClass):
    """One of several classes, by cross-entropy; with class weights ``mean_i w(y_i) l_i``.

    The weights are meant to average 1 over the training rows. So they are never divided by their sum over a batch, and
    the mean over several processes is the mean over the whole batch.
    """

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        return F.cross_entropy(out.prediction, target) if self.class_weight is None else self.losses(out, target).mean()

    def losses(self, out: Predicted, target: Tensor) -> Float[Tensor, " batch"]:
        logits = at_least_float32(out.prediction)
        if self.class_weight is not None:
            self.class_weight = self.class_weight.to(logits)  # once: a copy at each step cannot be recorded in a graph
        return F.cross_entropy(logits, target, weight=self.class_weight, reduction="none")


class Numbers(Regression):
    """A number, standardised by the mean and scale of the training targets, so that any unit trains alike."""

    def __init__(self, mean: float = 0.0, scale: float = 1.0) -> None:
        self.mean, self.scale = mean, scale

    def loss(self, out: Predicted, target: Tensor) -> Float[Tensor, ""]:
        return super().loss(out, (target - self.mean) / self.scale)

    def losses(self, out: Predicted, target: Tensor) -> Float[Tensor, " batch"]:
        return super().losses(out, (target - self.mean) / self.scale)

    def read(self, out: Predicted) -> Tensor:
        # In half precision a mean far from 0 would swallow the rest.
        return at_least_float32(out.prediction) * self.scale + self.mean

    def divergence(self, out: Predicted, soft: Tensor) -> Float[Tensor, ""]:
        """The mean squared error in standardised units, as in ``loss``."""
        return super().divergence(out, soft) / self.scale**2

    def __repr__(self) -> str:
        return f"Numbers(mean={self.mean:.4g}, scale={self.scale:.4g})"


@runtime_checkable
class Objective(Protocol):
    """The objective as the trainer hands it to a step: wrapped for devices, precision and several processes."""

    def __call__(self, batch: DomainBatch) -> Terms: ...

    def backward(self, loss: Tensor) -> None:
        """Back-propagate, as precision and strategy ask for it."""
        ...


class Method(nn.Module, ABC):
    """A network and what is minimised over it.

    ``objective`` gives named terms whose sum is the loss. ``predict`` takes inputs alone. The trainer calls ``prepare``
    once before the first step, ``renew`` at the start of every epoch and, in eval mode, before every evaluation; each
    with training inputs to look at. A method that does not declare ``uses_domains`` gets batches without them.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    #: One sentence: what it is.
    what: ClassVar[str]
    settings_type: ClassVar[type[Settings]]
    #: Whether it is told the domains of training rows, as indices into ``Problem.domains``. It then needs two of them.
    uses_domains: ClassVar[bool] = False
    #: How its training batches are made up, unless a recipe says otherwise.
    sampling: ClassVar[Sampling] = "plain"
    #: Whether predictions depend on the other rows of the batch; those are then all of the same domain.
    batchwise: bool = False
    #: Rows per such batch, approximately; None: up to 1,024.
    support_rows: int | None = None
    #: How many rows it is given at a time, in order, where predictions depend on the rows before.
    in_steps: int | None = None
    modes: ClassVar[tuple[Mode, ...]] = ("end_to_end", "fine_tune")

    backbone: nn.Module

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task

    @classmethod
    @abstractmethod
    def build(cls: type[Own], settings: Any, problem: Problem, *, mode: Mode) -> Own:
        """The method for a problem. Weights are drawn from torch's global generator."""

    @classmethod
    def frozen_activation(cls, settings: Any) -> str:
        """The activation of the ERM head whose body is frozen in fine-tuning: that of this method's own head."""
        return str(getattr(settings, "activation", "none"))

    @abstractmethod
    def objective(self, batch: DomainBatch) -> Terms:
        """The terms of the loss; their sum is minimised."""

    @abstractmethod
    def predict(self, inputs: Tensor) -> Prediction:
        """What the method says of these inputs."""

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor,
        domains: Tensor | None = None,
        blocks: int | None = None,
        soft_targets: Tensor | None = None,
        soft_weight: Tensor | None = None,
    ) -> Terms:
        """The objective, called so because wrappers for several processes wrap ``forward``."""
        terms = self.objective(DomainBatch(inputs, targets, domains, blocks, soft_targets, soft_weight))
        if soft_targets is not None and "consistency" not in terms:
            raise DataError(
                f"the objective of {self.label} has no term for consistency; add **self.consistency(out, batch) to "
                "what it returns, or leave consistency out"
            )
        return terms

    def teach(self, batch: DomainBatch) -> Tensor:
        """What a teacher with the weights of this method predicts for a training batch, in training mode."""
        return self.predict(batch.inputs).output

    def consistency(self, out: Predicted, batch: DomainBatch) -> Terms:
        """The loss against the soft targets of a batch, to be added to an objective; nothing where there are none."""
        if batch.soft_targets is None or batch.soft_weight is None:
            return {}
        return {"consistency": batch.soft_weight * self.task.divergence(out, batch.soft_targets)}

    def step(self, objective: Objective, batch: DomainBatch, optimizer: torch.optim.Optimizer) -> Terms:
        """One update. Call the ``objective`` handed in, never ``self``: else processes would not share gradients."""
        optimizer.zero_grad(set_to_none=True)
        terms = objective(batch)
        objective.backward(total(terms))
        optimizer.step()
        return terms

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for an optimiser; a group may have a weight decay of its own."""
        return [{"params": [parameter for parameter in self.parameters() if parameter.requires_grad]}]

    def prepare(self, looks: Looks) -> None:
        """Take from training inputs what must be there before the first step."""
        if isinstance(self.backbone, Backbone) and self.backbone.gating is not None:
            self.backbone.fit_view(looks())

    def renew(self, looks: Looks, *, epoch: int, optimizer: torch.optim.Optimizer | None) -> None:
        """Recompute from training inputs what has moved since; ``optimizer`` is None before an evaluation."""

    def readings(self, inputs: Tensor) -> dict[str, Tensor]:
        """Numbers worth a curve by epoch, on some validation inputs: of gates, of bases."""
        return {}

    @torch.no_grad()
    def measures(self, inputs: Tensor) -> dict[str, float]:
        """The readings as plain numbers; a device is waited for once."""
        found = self.readings(inputs)
        values = torch.stack([value.double() for value in found.values()]).tolist() if found else []
        return dict(zip(found, values, strict=True))

    def notes(self) -> Sequence[str]:
        """Notes on how the method was built, for readers of a result."""
        return ()

    def per_rank(self) -> Sequence[str]:
        """What of this method is computed on each process's share of a batch alone."""
        found = []
        shared = {m.normalise for m in self.modules() if isinstance(m, GatedNorm) and m.statistics == "basis"}
        norms = [m for m in self.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m not in shared]
        if not all(_synchronised(norm) for norm in norms):
            found.append("batch-norm statistics")
        if any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in self.modules()):
            found.append("dropout masks")
        return found


#: Training inputs in batches, in an order of their own, some thousands at most: ``for inputs in looks(): ...``.
Looks = Callable[[], Iterable[Tensor]]


def source_domains(problem: Problem, kind: type[Method]) -> int:
    """How many source domains there are, for a method that must be told; refused where they are not known."""
    if len(problem.domains) < 2:
        raise DataError(too_few_domains(kind, len(problem.domains)))
    return len(problem.domains)


def too_few_domains(kind: type[Method], count: int) -> str:
    """Why a method that uses domains cannot be trained where this many are known."""
    there = (
        "none is known: name the column that holds them (--domain)"
        if count == 0
        else ("there is one only: hold out fewer, or make more of other columns (--group-by)")
    )
    return f"{kind.label} compares source domains in training, and {there}; or leave {kind.name} out"


def total(terms: Terms) -> Tensor:
    """The sum of the terms: the loss."""
    return torch.stack([term.float() for term in terms.values()]).sum()


def _synchronised(module: nn.Module) -> bool:
    return isinstance(module, nn.SyncBatchNorm)
