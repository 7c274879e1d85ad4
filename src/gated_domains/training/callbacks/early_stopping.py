"""What follows from a validation score: the weights that are kept, an early end, a lower learning rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from gated_domains.evaluation.metrics import Evidence, Selector, validation_loss
from gated_domains.evaluation.scores import DomainScores
from gated_domains.training.callbacks.base import Callback

if TYPE_CHECKING:
    from gated_domains.training.trainer import Trainer


class EarlyStopping(Callback):
    """Keeps the weights of the best epoch, and stops after ``patience`` epochs without a better one.

    Among equal scores the earlier epoch is the best one; a score that is NaN or infinite never is.

    Parameters
    ----------
    patience
        Epochs without a better score after which the training stops; None to train all epochs.
    restore_best_weights
        Whether the method gets the weights of the best epoch at the end. Without it, the best epoch is only noted.

    Attributes
    ----------
    selector : Selector
        The best epoch and its score.
    weights : dict of str to Tensor, or None
        The state of the method after the best epoch.
    scores : DomainScores or None
        The validation scores of these weights. Not part of a checkpoint: they can be recomputed.
    """

    def __init__(self, patience: int | None = None, *, restore_best_weights: bool = True) -> None:
        self.selector = Selector(patience)
        self.restore_best_weights = restore_best_weights
        self.weights: dict[str, Tensor] | None = None
        self.scores: DomainScores | None = None

    def on_validation_end(self, trainer: Trainer, evidence: Evidence, score: float) -> None:
        """Keep the weights if they are the best so far."""
        better = self.selector.update(trainer.epoch, score)
        if self.restore_best_weights and (better or self.weights is None):
            self.weights = {name: value.detach().clone() for name, value in trainer.method.state_dict().items()}
            self.scores = evidence.scores

    def on_epoch_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Stop the training when patience is exhausted."""
        trainer.should_stop = trainer.should_stop or self.selector.stop

    def on_fit_end(self, trainer: Trainer) -> None:
        """Give the method the weights of the best epoch."""
        if self.restore_best_weights:
            assert self.weights is not None
            trainer.method.load_state_dict(self.weights)

    def state_dict(self) -> dict[str, Any]:
        return {"selector": self.selector.state(), "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.selector.load_state(state["selector"])
        self.weights = state["weights"]


class ReduceOnPlateau(Callback):
    """Lowers the learning rate after ``wait`` epochs without an improvement, for the schedule "plateau".

    Parameters
    ----------
    wait
        Epochs without an improvement before the rate is multiplied by ``settings.decay`` once more.
    watches
        What has to improve: the "score" of the selection rule, or the validation "loss".
    """

    def __init__(self, wait: int, *, watches: Literal["score", "loss"] = "score") -> None:
        self.wait, self.watches = wait, watches
        self.best, self.waited = -math.inf, 0

    def on_validation_end(self, trainer: Trainer, evidence: Evidence, score: float) -> None:
        """Count the epoch, and lower the rate when it has waited long enough."""
        value = score
        if self.watches == "loss":
            value = -trainer.fabric.broadcast(validation_loss(evidence.output, evidence.targets))
        better = math.isfinite(value) and value > self.best
        self.best, self.waited = (value, 0) if better else (self.best, self.waited + 1)
        if self.waited >= self.wait:
            trainer.rate_drops, self.waited = trainer.rate_drops + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.waited = float(state["best"]), int(state["waited"])
