"""CGD: the source domain whose gradient does most for all of them gets the largest say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import DomainBatch
from gated_domains.layer.experts import Task
from gated_domains.layer.kernels import at_least_float32, autocast_off
from gated_domains.methods.across_domains import AcrossDomains
from gated_domains.methods.by_domain import DomainMeans, domain_means, domains_of, membership, over_processes
from gated_domains.methods.domain_weights import DomainWeights
from gated_domains.methods.erm import ERMSettings
from gated_domains.methods.method import Terms
from gated_domains.settings.search import Between

_LEAST = 1e-5  # a weight that fell for long would take as long to come back


class CGDSettings(ERMSettings):
    """``eta`` is the step of the domains' weights, ``adjustment`` C what small domains count for more.

    ``gradients`` are compared over all trained parameters, at the price of a backward pass a domain, or over those of
    the head alone, which costs next to nothing.
    """

    eta: Annotated[float, Between(0.01, 1, log=True)] = Field(default=0.05, ge=0)
    adjustment: Annotated[float, Between(0, 5)] = Field(default=1.0, ge=0)
    gradients: Literal["all", "head"] = "all"


class CGD(AcrossDomains):
    """``sum_i alpha_i R_i`` with ``alpha_i <- alpha_i exp(eta sum_j w_j sqrt(R_i R_j) cos(g_i, g_j))``, to sum 1.

    g_i is the gradient of the risk R_i of domain i: a step along it lowers the risk of j by ``g_i . g_j``. These
    products are taken as cosines times the root of both risks, so that no domain counts more for the length of its
    gradient alone. ``w_j ~ exp(C / sqrt(n_j))``, to sum 1, with n_j the domain's training rows; alpha begins as w. Of
    domains that a batch does not have the weights move only as all must sum to 1, w sums to 1 over those it has, and
    where these are B of G, the loss is taken G / B times, which is right on average.

    V. Piratla, P. Netrapalli and S. Sarawagi (2022), "Focus on the common good: group distributional robustness
    follows".
    """

    name = "cgd"
    label = "CGD"
    what = "ERM with source domains weighed anew at every step, the one whose gradient helps all of them most"
    settings_type = CGDSettings

    settings: CGDSettings
    adjusted: Tensor

    def __init__(
        self, backbone: Backbone, outputs: int, task: Task, settings: CGDSettings, *, rows: tuple[int, ...]
    ) -> None:
        super().__init__(backbone, outputs, task, settings, rows=rows)
        adjusted = (settings.adjustment / torch.tensor(rows).sqrt()).softmax(0)
        self.weights = DomainWeights(adjusted, least=_LEAST)
        self.register_buffer("adjusted", adjusted, persistent=False)

    def objective(self, batch: DomainBatch) -> Terms:
        out = self.logits(batch.inputs)
        losses = self.task.losses(out, batch.targets)
        risks = domain_means(losses, domains_of(batch), len(self.rows))
        if self.training and torch.is_grad_enabled():
            self.weights.gain(self.settings.eta * self.gains(losses, risks, batch), risks.present)
        return {"task": self.weights.weighed(risks), **self.consistency(out, batch)}

    def gains(
        self, losses: Float[Tensor, " batch"], risks: DomainMeans, batch: DomainBatch
    ) -> Float[Tensor, " domains"]:
        """``sum_j w_j sqrt(R_i R_j) cos(g_i, g_j)`` for every domain i; 0 for those that the batch does not have."""
        domains = domains_of(batch)
        which = membership(domains, len(self.rows), like=losses)
        # A batch in blocks has a few domains of perhaps many: one backward pass for each of its own is enough.
        parts = which if batch.blocks is None else _blocks(len(which), batch.blocks, like=which)
        # Times 1,024, which no cosine sees: in 16 bits small gradients would be lost.
        each = 1024 * losses / risks.counts.index_select(0, domains)
        gradients = over_processes(_gradients((each.unsqueeze(1) * parts).sum(0), self._compared()))
        with torch.no_grad(), autocast_off(losses):
            of_domain = ((parts.T @ which) > 0).to(gradients.dtype)
            same = of_domain @ of_domain.T  # two blocks may be of one domain
            gradients, times = same @ gradients, same.sum(1).clamp_min(1)
            products = gradients @ gradients.T
            lengths = products.diagonal().sqrt()
            cosines = products / (lengths.unsqueeze(1) * lengths).clamp_min(torch.finfo(products.dtype).tiny)
            # Of the batch's own parts alone: of thousands of domains nothing is squared.
            roots = of_domain @ risks.means.clamp_min(0).sqrt()
            shares = of_domain @ (self.adjusted.to(roots) * risks.present) / times
            return of_domain.T @ (roots * (cosines @ (shares / shares.sum() * roots)) / times)

    def _compared(self) -> list[Tensor]:
        chosen = self.head if self.settings.gradients == "head" else self
        return [parameter for parameter in chosen.parameters() if parameter.requires_grad]


def _blocks(rows: int, blocks: int, *, like: Tensor) -> Float[Tensor, "batch blocks"]:
    """1 where a row lies in a block, else 0."""
    return membership(torch.arange(rows, device=like.device) // (rows // blocks), blocks, like=like)


def _gradients(sums: Float[Tensor, " parts"], parameters: Sequence[Tensor]) -> Float[Tensor, "parts parameters"]:
    """The gradient of each sum by all of these parameters, as one row; the graph stays for the loss itself."""
    found = []
    for part in sums:
        each = torch.autograd.grad(part, parameters, retain_graph=True, materialize_grads=True)
        found.append(torch.cat([at_least_float32(gradient).flatten() for gradient in each]))
    return torch.stack(found)
