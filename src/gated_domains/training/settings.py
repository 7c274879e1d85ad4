"""How long, how fast and in what numbers a training goes: the part of a recipe that every method shares."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gated_domains.settings import Settings

Precision = Literal["32", "bf16", "16", "64"]


class TrainingSettings(Settings):
    """``patience`` epochs without a better validation score end a training, None: never. ``ema`` averages weights.

    ``schedule`` "cosine" takes the learning rate to 0 over all epochs. ``weight_decay`` is for the weights that the
    method does not decay by itself.
    """

    epochs: int = Field(default=30, ge=1)
    batch_size: int = Field(default=128, ge=1)
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    schedule: Literal["cosine", "constant"] = "cosine"
    patience: int | None = Field(default=10, ge=1)
    ema: float | None = Field(default=None, gt=0, lt=1)
    class_weights: bool = False
    sampling: Literal["plain", "balanced"] = "plain"
    precision: Precision = "32"
