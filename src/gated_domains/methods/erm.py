"""Empirical risk minimisation: the baseline that everything must beat."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import DomainBatch
from gated_domains.layer.experts import Logits, Prediction, Task
from gated_domains.methods.method import Method, Mode, Problem, Terms
from gated_domains.settings import Settings


class ERMSettings(Settings):
    """``activation="tanh"`` is the paper's head for digits; logits without it are the stronger baseline."""

    activation: Literal["none", "tanh"] = "none"


class Plain(Method):
    """A method without gates: its logits are all there is to train and to read."""

    def logits(self, inputs: Tensor) -> Logits:
        """The network's outputs."""
        raise NotImplementedError

    def objective(self, batch: DomainBatch) -> Terms:
        out = self.logits(batch.inputs)
        return {"task": self.task.loss(out, batch.targets), **self.consistency(out, batch)}

    def predict(self, inputs: Tensor) -> Prediction:
        return Prediction(self.task.read(self.logits(inputs)))


class ERM(Plain):
    """``mean_i loss(W f(x_i) + b, y_i)`` over all sources at once (Vapnik, 1998)."""

    name = "erm"
    label = "ERM"
    what = "one network with a linear head, trained on all sources at once"
    settings_type = ERMSettings

    def __init__(self, backbone: Backbone, outputs: int, task: Task, *, tanh: bool = False) -> None:
        super().__init__(task)
        self.backbone: nn.Module = backbone
        self.head = nn.Linear(backbone.features, outputs)
        self.tanh = tanh

    @classmethod
    def build(cls, settings: ERMSettings, problem: Problem, *, mode: Mode) -> ERM:
        return cls(Backbone(problem.make_body()), problem.outputs, problem.task, tanh=settings.activation == "tanh")

    def logits(self, inputs: Tensor) -> Logits:
        """The head's outputs."""
        return self.of_features(self.backbone(inputs).features)

    def of_features(self, features: Tensor) -> Logits:
        """The head's outputs, of features that are there already."""
        outputs = self.head(features)
        return Logits(torch.tanh(outputs) if self.tanh else outputs)


class RetrainedLinear(ERM):
    """A linear head trained anew on the frozen features of an ERM network: what a gated head must beat."""

    name = "linear"
    label = "retrained linear head"
    what = "a linear head trained anew on ERM's frozen features: the control of every gain on such features"
    modes = ("fine_tune",)
