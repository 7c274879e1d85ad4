"""Group DRO: the source domain with the largest loss gets the largest say."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import DomainBatch
from gated_domains.layer.experts import Task
from gated_domains.methods.across_domains import AcrossDomains
from gated_domains.methods.domain_weights import DomainWeights
from gated_domains.methods.erm import ERMSettings
from gated_domains.methods.method import Terms
from gated_domains.settings.search import Between


class GroupDROSettings(ERMSettings):
    """``eta`` is the step of the domains' weights; ``adjustment`` C makes up for small domains, which overfit more."""

    eta: Annotated[float, Between(1e-3, 1e-1, log=True)] = Field(default=0.01, ge=0)
    adjustment: Annotated[float, Between(0, 5)] = Field(default=1.0, ge=0)


class GroupDRO(AcrossDomains):
    """``sum_g q_g R_g`` with ``q_g <- q_g exp(eta (R_g + C / sqrt(n_g)))``, brought to sum 1, before every step.

    R_g is the mean loss of domain g in the batch and n_g its training rows. All weights begin alike. Those of domains
    that the batch does not have move only as all must sum to 1, and where it has B of G domains, the sum over these is
    taken G / B times, which is right on average.

    S. Sagawa, P. W. Koh, T. B. Hashimoto and P. Liang (2020), "Distributionally robust neural networks for group
    shifts: on the importance of regularization for worst-case generalization".
    """

    name = "group-dro"
    label = "Group DRO"
    what = "ERM with source domains weighed anew at every step, the one with the largest loss most"
    settings_type = GroupDROSettings

    settings: GroupDROSettings
    adjustments: Tensor

    def __init__(
        self, backbone: Backbone, outputs: int, task: Task, settings: GroupDROSettings, *, rows: tuple[int, ...]
    ) -> None:
        super().__init__(backbone, outputs, task, settings, rows=rows)
        self.weights = DomainWeights(torch.ones(len(rows)))
        self.register_buffer("adjustments", settings.adjustment / torch.tensor(rows).sqrt(), persistent=False)

    def objective(self, batch: DomainBatch) -> Terms:
        out = self.logits(batch.inputs)
        risks = self.risks(out, batch)
        if self.training:
            self.weights.gain(self.settings.eta * (risks.means.detach() + self.adjustments), risks.present)
        return {"task": self.weights.weighed(risks), **self.consistency(out, batch)}
