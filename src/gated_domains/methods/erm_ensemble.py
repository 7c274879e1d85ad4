"""Ensembles under ERM: the paper's, of heads, and a real one, of networks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import DomainBatch
from gated_domains.layer.experts import LinearExperts, Logits, Prediction, Task
from gated_domains.methods.erm import ERM, ERMSettings, Plain
from gated_domains.methods.method import Method, Mode, Problem, Terms
from gated_domains.settings import Settings


class HeadsSettings(Settings):
    """As many heads as the gated layer has bases; the paper's on digits have ``activation`` "tanh"."""

    heads: int = Field(default=5, ge=1)
    activation: Literal["none", "tanh"] = "none"


class ERMEnsemble(Plain):
    """``1/M sum_j a(W_j f(x) + b_j)``: M heads on one backbone, the paper's "ERM ensemble"; a is nothing, or tanh."""

    name = "erm-ensemble"
    label = "ERM ensemble"
    what = "M heads on one backbone, averaged: as many learning machines as the gated layer, without gates"
    settings_type = HeadsSettings

    def __init__(self, backbone: Backbone, outputs: int, task: Task, *, heads: int, tanh: bool) -> None:
        super().__init__(task)
        self.backbone: nn.Module = backbone
        experts = partial(LinearExperts, activation=torch.tanh) if tanh else LinearExperts
        self.heads = experts(heads, backbone.features, outputs)

    @classmethod
    def build(cls, settings: HeadsSettings, problem: Problem, *, mode: Mode) -> ERMEnsemble:
        backbone = Backbone(problem.make_body())
        tanh = settings.activation == "tanh"
        return cls(backbone, problem.outputs, problem.task, heads=settings.heads, tanh=tanh)

    def logits(self, inputs: Tensor) -> Logits:
        """The mean of the heads."""
        return Logits(self.heads(self.backbone(inputs).features).mean(-2))


class MembersSettings(ERMSettings):
    """How many networks, and the head of each."""

    members: int = Field(default=5, ge=2)


class Ensemble(Method):
    """``1/K sum_k p_k(y | x)``: networks that share nothing, each trained by itself with a seed of its own.

    It is never trained as one: its members are, and ``of`` puts them together.
    """

    name = "ensemble"
    label = "ensemble of networks"
    what = "K networks trained independently, their probabilities averaged: what K times the cost buys without gates"
    settings_type = MembersSettings
    modes = ("end_to_end",)

    def __init__(self, members: Sequence[ERM], task: Task) -> None:
        super().__init__(task)
        self.members = nn.ModuleList(members)
        self.backbone = nn.Identity()

    @classmethod
    def build(cls, settings: MembersSettings, problem: Problem, *, mode: Mode) -> Ensemble:
        one = ERMSettings(activation=settings.activation)
        return cls([ERM.build(one, problem, mode=mode) for _ in range(settings.members)], problem.task)

    def objective(self, batch: DomainBatch) -> Terms:
        raise TypeError("the networks of an ensemble are trained one by one, never as one")

    def predict(self, inputs: Tensor) -> Prediction:
        outputs = [member.predict(inputs).output for member in self.members]  # type: ignore[operator]
        return Prediction(torch.stack(outputs).mean(0))
