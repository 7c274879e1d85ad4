"""Gated Domain Units as in the paper."""

from __future__ import annotations

import torch
from pydantic import Field

from gated_domains.backbones.backbone import Backbone
from gated_domains.common.paper import PAPER_BASES, GateName, Setting, paper_setting
from gated_domains.layer.units import GatedDomainUnits
from gated_domains.methods.gdu import GDU
from gated_domains.methods.method import Looks, Mode, Problem
from gated_domains.settings import Settings


class PaperSettings(Settings):
    """The paper's parameters come with ``setting``. A weight of None: the paper's.

    M is 10, as in the paper's text and code; its table of settings has 5 (``num_bases=5``).
    """

    gate: GateName = "cosine"
    setting: Setting = "digits"
    num_bases: int = Field(default=PAPER_BASES, ge=1)
    basis_size: int = Field(default=10, ge=1)
    lambda_ols: float | None = Field(default=None, ge=0)
    lambda_l1: float | None = Field(default=None, ge=0)
    lambda_orth: float | None = Field(default=None, ge=0)


class PaperGDU(GDU):
    """``sum_j beta_j(x) tanh(W_j f(x))``, gates on the features, bases and sigma as the paper starts them."""

    name = "gdu-paper"
    label = "GDU (paper)"
    what = "gated domain units to the letter of the paper: its initialiser, kernel width, gates, penalties, experts"
    settings_type = PaperSettings

    mode: Mode

    @classmethod
    def build(cls, settings: PaperSettings, problem: Problem, *, mode: Mode) -> PaperGDU:
        backbone = Backbone(problem.make_body())
        units = GatedDomainUnits.paper(
            backbone.features,
            problem.outputs,
            gate=settings.gate,
            setting=settings.setting,
            num_bases=settings.num_bases,
            basis_size=settings.basis_size,
        )
        for name in ("lambda_ols", "lambda_l1", "lambda_orth"):
            if (weight := getattr(settings, name)) is not None:
                setattr(units, name, weight)
        method = cls(backbone, units, problem.task, settings)
        method.mode = mode
        return method

    @classmethod
    def frozen_activation(cls, settings: PaperSettings) -> str:
        return "tanh" if paper_setting(settings.setting, settings.gate).tanh else "none"

    def prepare(self, looks: Looks) -> None:
        if self.mode == "fine_tune" and self.settings.setting == "digits":
            self.units.fit_sigma(self._rows(looks))

    def renew(self, looks: Looks, *, epoch: int, optimizer: torch.optim.Optimizer | None) -> None:
        """Nothing: the paper takes nothing from data but sigma."""
