"""GDU where groups of training rows are known: gates are taught them, and the worst group is weighted most."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.data.sampling import Sampling
from gated_domains.layer.gates import simplex
from gated_domains.layer.kernels import at_least_float32
from gated_domains.methods.by_domain import average, domain_means, domains_of, over_processes
from gated_domains.methods.domain_weights import DomainWeights
from gated_domains.methods.gdu import GDU, GDUSettings
from gated_domains.methods.method import Mode, Problem, Terms, source_domains
from gated_domains.settings.search import Between

_MEMORY = 0.9  # of how a group was spread over the bases, from batch to batch
_LEAST = 1e-3  # of a group in every basis, so that no row is ever impossible


class GroupGDUSettings(GDUSettings):
    """``supervise`` is the weight of the lesson in groups that gates are given; 0: none.

    ``over`` says what is weighed up where it fares badly, groups or bases, and ``eta`` is the step of those weights; 0:
    all count alike. ``adjustment`` C makes up for small groups, which overfit more.
    """

    supervise: Annotated[float, Between(0.1, 10, log=True)] = Field(default=1.0, ge=0)
    over: Literal["groups", "bases"] = "groups"
    eta: Annotated[float, Between(1e-3, 1e-1, log=True)] = Field(default=0.01, ge=0)
    adjustment: Annotated[float, Between(0, 5)] = Field(default=1.0, ge=0)


class GroupGDU(GDU):
    """``sum_g q_g R_g + supervise * mean_g mean_{i in g} -log p(g | x_i)``, and the layer's penalties.

    Groups are the domains of training rows, or what ``group_by`` makes of other columns. R_g is the mean loss of group
    g and ``q_g <- q_g exp(eta (R_g + C / sqrt(n_g)))``, as in Group DRO. Over bases it is ``sum_j q_j R_j`` with
    ``R_j = sum_i beta_ij loss_i / sum_i beta_ij``, beta held fixed: a basis is not to get rid of its hard rows.

    What gates say of groups is ``p(g | x) = sum_j beta_j(x) P(g | j)``, with more bases than groups, or fewer. P(g | j)
    is the share of group g in basis j were all groups of one size. It is counted, not trained: a row counts for basis j
    by ``beta_ij P(g_i | j)``, brought to sum 1 (the step of EM for a mixture), with a memory of some batches.

    Predictions are those of GDU, and need no groups.
    """

    name = "gdu-groups"
    label = "GDU (groups)"
    what = "GDU with gates that are taught the groups of training rows, and groups weighed anew as in Group DRO"
    settings_type = GroupGDUSettings
    uses_domains = True
    sampling: ClassVar[Sampling] = "groups"

    spread: Tensor
    adjustments: Tensor

    @classmethod
    def build(cls, settings: Any, problem: Problem, *, mode: Mode) -> GroupGDU:
        source_domains(problem, cls)
        if settings.gates == "constant" and settings.supervise > 0:
            raise DataError("constant gates cannot be taught groups; set supervise=0 beside gates=constant")
        if settings.train_gates == "batch":
            raise DataError(
                "train_gates=batch does not go with gdu-groups, whose gates learn the group of each sample; leave "
                "train_gates out, or take gdu[train_gates=batch]"
            )
        method = cast(GroupGDU, super().build(settings, problem, mode=mode))
        method._know_of(problem.domains)
        return method

    def _know_of(self, rows: tuple[int, ...]) -> None:
        """Make room for groups of so many training rows each."""
        groups, bases = len(rows), self.units.max_bases
        self.rows = rows
        self.register_buffer("spread", torch.full((groups, bases), 1 / bases))
        self.weights = DomainWeights(torch.ones(groups if self.settings.over == "groups" else bases))
        self.register_buffer("adjustments", self.settings.adjustment / torch.tensor(rows).sqrt(), persistent=False)

    def objective(self, batch: DomainBatch) -> Terms:
        out, groups = self.evaluate(batch.inputs), domains_of(batch)
        beta = simplex(at_least_float32(out.beta), out.products.active)
        losses = self.task.losses(out, batch.targets)
        by_group = self.settings.over == "groups"
        terms = {"task": self._over_groups(losses, groups) if by_group else self._over_bases(losses, beta.detach())}
        if self.settings.supervise > 0:
            terms["supervision"] = self.settings.supervise * self._lesson(beta, groups)
        return {**terms, **self.penalties(out), **self.consistency(out, batch)}

    @property
    def groups_of_bases(self) -> Float[Tensor, "bases groups"]:
        """P(g | j), the share of each group in each basis were all groups of one size."""
        shares = self.spread.T + _LEAST
        return shares / shares.sum(1, keepdim=True)

    def _over_groups(self, losses: Float[Tensor, " batch"], groups: Int64[Tensor, " batch"]) -> Float[Tensor, ""]:
        risks = domain_means(losses, groups, len(self.rows))
        if self.training:
            self.weights.gain(self.settings.eta * (risks.means.detach() + self.adjustments), risks.present)
        return self.weights.weighed(risks)

    def _over_bases(self, losses: Float[Tensor, " batch"], beta: Float[Tensor, "batch bases"]) -> Float[Tensor, ""]:
        # An inactive basis has no weight at all, an active one always some.
        active = self.units.active.to(losses.dtype)
        mass = over_processes(beta.sum(0)) + (1 - active)
        risks = over_processes((beta * losses.unsqueeze(1)).sum(0)) / mass
        if self.training:
            self.weights.gain(self.settings.eta * risks.detach(), active)
        weights = self.weights.values.to(losses.dtype) * active
        return (weights * risks).sum() / weights.sum()

    def _lesson(self, beta: Float[Tensor, "batch bases"], groups: Int64[Tensor, " batch"]) -> Float[Tensor, ""]:
        """``-log p(g | x)`` of rows, the mean over groups of their means: a large group has no larger say."""
        if self.training:
            self._count(beta.detach(), groups)
        said = (beta * self.groups_of_bases.T[groups]).sum(1)
        lesson = domain_means(-said.log(), groups, len(self.rows))
        return average(lesson.means, lesson.present)

    @torch.no_grad()
    def _count(self, beta: Float[Tensor, "batch bases"], groups: Int64[Tensor, " batch"]) -> None:
        """See over which bases the rows of each group that the batch has are spread."""
        belongs = beta * self.groups_of_bases.T[groups]
        found = domain_means(belongs / belongs.sum(1, keepdim=True), groups, len(self.rows))
        step = (1 - _MEMORY) * found.present.unsqueeze(1)
        self.spread.copy_(torch.lerp(self.spread, found.means.to(self.spread), step.to(self.spread)))

    def _fit(self, rows: Tensor, optimizer: torch.optim.Optimizer | None) -> None:
        super()._fit(rows, optimizer)
        self._reset_counts()

    def _adapt(self, rows: Tensor, optimizer: torch.optim.Optimizer) -> None:
        before = self.units.active.clone()
        super()._adapt(rows, optimizer)
        if not torch.equal(before, self.units.active):
            self._reset_counts()

    def _reset_counts(self) -> None:
        """These are other bases."""
        self.spread.fill_(1 / self.units.max_bases)
        if self.settings.over == "bases":
            self.weights.logarithms.fill_(-math.log(self.units.max_bases))
