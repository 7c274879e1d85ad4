"""How long, how fast and in what numbers a training goes: the part of a recipe that every method shares."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gated_domains.settings import Settings
from gated_domains.settings.search import Between

Precision = Literal["32", "bf16", "16", "64"]
ANNEALING = ("cosine", "linear")
"""Schedules that take the learning rate to 0."""


class TrainingSettings(Settings):
    """``patience`` epochs without a better validation score end a training, None: never.

    ``schedule`` "cosine" and "linear" take the learning rate to 0 over all epochs, so they take no patience: a
    training that stopped early would never anneal. "step" multiplies it by ``decay`` after every epoch, "plateau"
    after ``drop_after`` epochs without a better validation score. Before, it rises from 0 over ``warmup`` epochs.
    ``accumulate`` splits a batch into this number of parts, whose gradients are added up: less memory for the same
    update (penalties, and means over known labels, are then of each part). ``checkpoint_activations`` computes those of
    a large body twice rather than keep them. ``augment`` mirrors images ("flips"), turns them by right angles too
    ("turns"), or crops and mirrors them and changes brightness and contrast ("photos"). ``weight_decay`` is for all
    weights. Switches that go with every method: ``ema`` is the decay of a moving average of the weights, ``swad``
    averages them over the flat valley of the validation loss, which is evaluated ``swad_segments`` times an epoch,
    ``mixstyle`` is the probability of mixing styles in a batch, ``fourier_mix`` that of mixing the amplitude spectrum
    of an image with another's, ``consistency`` the weight of a loss between predictions on plain and mixed images.
    ``sampling`` "auto" is what the method asks for. A batch of "groups" has ``groups_per_batch`` domains, more where
    they are too small to fill it, unless ``repeat_rows`` allows rows twice. ``group_by`` names what stands for the
    domains in training: metadata columns, ``domain``, ``class``; nothing: the domains. With ``plateau_on`` "loss", the
    schedule "plateau" waits for a lower validation loss instead of a better score.
    """

    epochs: int = Field(default=30, ge=1)
    batch_size: int = Field(default=128, ge=1)
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    rate: Annotated[float, Between(1e-4, 1e-2, log=True)] = Field(default=1e-3, gt=0)
    weight_decay: Annotated[float, Between(1e-6, 1e-2, log=True)] = Field(default=0.0, ge=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    schedule: Literal["cosine", "constant", "linear", "step", "plateau"] = "cosine"
    decay: float = Field(default=0.96, gt=0, le=1)
    drop_after: int = Field(default=10, ge=1)
    plateau_on: Literal["score", "loss"] = "score"
    warmup: float = Field(default=0.0, ge=0)
    accumulate: int = Field(default=1, ge=1)
    checkpoint_activations: bool = False
    augment: Literal["none", "flips", "turns", "photos"] = "none"
    patience: int | None = Field(default=None, ge=1)
    ema: float | None = Field(default=None, gt=0, lt=1)
    swad: bool = False
    swad_segments: int = Field(default=4, ge=1)
    mixstyle: float | None = Field(default=None, gt=0, le=1)
    fourier_mix: float | None = Field(default=None, gt=0, le=1)
    consistency: float | None = Field(default=None, gt=0)
    class_weights: bool = False
    sampling: Literal["auto", "plain", "balanced", "groups", "single"] = "auto"
    group_by: tuple[str, ...] = ()
    groups_per_batch: int = Field(default=4, ge=1)
    repeat_rows: bool = False
    precision: Precision = "32"

    @model_validator(mode="after")
    def _check_together(self) -> TrainingSettings:
        if self.swad and self.ema is not None:
            raise ValueError("swad and ema are two averages of the same weights; choose one of them")
        if self.patience is not None and self.schedule in ANNEALING:
            raise ValueError(
                f"patience {self.patience} may stop a training before the schedule {self.schedule} has taken the "
                "learning rate to 0; choose the schedule constant, step or plateau, or leave patience out"
            )
        if self.consistency is not None and self.fourier_mix is None:
            raise ValueError(
                f"consistency {self.consistency:g} compares plain with mixed images, and no images are mixed; set "
                "fourier_mix as well, for example 0.9"
            )
        if self.warmup >= self.epochs and self.warmup > 0:
            raise ValueError(f"warmup of {self.warmup:g} epochs leaves none of {self.epochs}; choose fewer")
        if self.accumulate > self.batch_size:
            raise ValueError(f"a batch of {self.batch_size} cannot be cut into {self.accumulate} parts")
        return self
