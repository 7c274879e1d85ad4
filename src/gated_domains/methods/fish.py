"""Fish: steps on one domain after the other, and part of the way back; gradients that agree are followed further."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.methods.across_domains import AcrossDomains
from gated_domains.methods.erm import ERMSettings
from gated_domains.methods.method import Objective, Terms, total
from gated_domains.methods.part_by_part import domain_parts, mean_terms, predicted_by_part
from gated_domains.settings.search import Between


class FishSettings(ERMSettings):
    """``meta_rate`` is epsilon: how far the weights follow where the domains led them; 1 is all the way.

    0.5 is DomainBed's. The authors' code divides its ``meta_lr`` by the number of inner steps: their 0.01 with 5 steps
    is a ``meta_rate`` of 0.002.
    """

    meta_rate: Annotated[float, Between(0.05, 1.0, log=True)] = Field(default=0.5, gt=0, le=1)


class Fish(AcrossDomains):
    """``theta <- theta + epsilon (theta~ - theta)``; theta~ is one optimiser step on each domain after the other.

    Each inner step starts where the last one ended. On average over the order of the domains this climbs, beside
    lowering the losses, the inner products of the domains' gradients (Shi et al., 2022, "Gradient Matching for Domain
    Generalization").

    A batch of D domains takes D optimiser steps, on the rows of one domain each. The optimiser is the training's own
    and its state (moments, momentum) goes on over inner and outer steps alike: it is not taken back with the weights.
    Nor are the running statistics of batch norms, which are averages already.
    """

    name = "fish"
    label = "Fish"
    what = "steps on one domain after the other, then part of the way back: gradients that agree are followed further"
    settings_type = FishSettings

    settings: FishSettings

    def teach(self, batch: DomainBatch) -> Tensor:
        return predicted_by_part(self, batch, DomainBatch.parts)

    def step(self, objective: Objective, batch: DomainBatch, optimizer: torch.optim.Optimizer) -> Terms:
        trained: list[Tensor] = [parameter for parameter in self.parameters() if parameter.requires_grad]
        before = [parameter.detach().clone() for parameter in trained]
        found = []
        for part in domain_parts(batch, type(self)):
            optimizer.zero_grad(set_to_none=True)
            found.append(objective(part))
            objective.backward(total(found[-1]))
            optimizer.step()
        with torch.no_grad():  # in place: processes, averages and recorded steps hold on to the parameters
            torch._foreach_lerp_(trained, before, 1 - self.settings.meta_rate)
        return mean_terms(found)
