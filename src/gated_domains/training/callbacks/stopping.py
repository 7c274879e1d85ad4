"""Callbacks that end a training: early stopping with the best weights, and losses that are NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Rows
from gated_domains.evaluation.metrics import Evidence, Selector, validation_loss
from gated_domains.evaluation.scores import DomainScores
from gated_domains.methods.method import Terms
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.training.callbacks.base import Callback
from gated_domains.training.engine import earliest

if TYPE_CHECKING:
    from gated_domains.training.trainer import Trainer

_LOOK_STEPS = 1_000  # on a GPU, steps between two looks at the losses, which the host must wait for


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


class NotFiniteError(DataError):
    """The loss or a weight became NaN or infinite; nothing was saved after the last good checkpoint."""


class NonFiniteCheck(Callback):
    """Stops a training whose loss or weights become NaN or infinite, with an error that names the probable cause.

    Losses are checked after every step on a CPU, now and then on a GPU; weights before every validation and checkpoint,
    so that neither is ever made from broken ones.
    """

    watch: FiniteWatch

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Forget the losses of the epoch before."""
        self.watch = FiniteWatch(trainer.device)

    def on_step_end(self, trainer: Trainer) -> None:
        """Note the loss, and look at what was noted if that does not keep the device waiting."""
        self.watch.see(trainer.terms, trainer.step - 1)
        if trainer.device.type == "cpu" or trainer.batch % _LOOK_STEPS == 0:
            self.check(trainer)

    def on_validation_start(self, trainer: Trainer) -> None:
        """Check losses and weights."""
        self.check(trainer, weights=True)

    def on_checkpoint_start(self, trainer: Trainer) -> None:
        """Check losses and weights; at the end of an epoch `on_validation_start` has."""
        if trainer.batch > 0:
            self.check(trainer, weights=True)

    def check(self, trainer: Trainer, *, weights: bool = False) -> None:
        """Raise `NotFiniteError` if a loss was not finite in any process, or with ``weights`` if a weight is not."""
        step, broken = self.watch.found(), ""
        if step is not None:
            broken = self.watch.broken()
        elif weights and not all_finite(trainer.method):
            step, broken = trainer.step - 1, "a weight"
        owner = earliest(trainer.fabric, step)
        if owner is None:
            return
        mine = owner == trainer.fabric.global_rank
        message = _explained(trainer, step, broken) if mine and step is not None else ""
        raise NotFiniteError(trainer.fabric.broadcast(message, src=owner))


def _explained(trainer: Trainer, step: int, broken: str) -> str:
    number = step - (trainer.step - trainer.batch)
    error = explain(
        broken,
        step,
        epoch=trainer.epoch,
        rows=list(trainer.sampler.batches(trainer.epoch))[number],
        batch=next(iter(trainer.data.samples.batches(trainer.sampler, trainer.epoch, start=number))),
        losses=trainer.losses,
        settings=trainer.settings,
    )
    return str(error)


class FiniteWatch:
    """Notes the first step whose loss is not finite, without making the host wait for the device."""

    def __init__(self, device: torch.device) -> None:
        self.first = torch.full((), -1, dtype=torch.int64, device=device)
        self.names: list[str] = []
        self.values = torch.zeros((), device=device)

    def see(self, terms: Terms, step: int) -> None:
        values = torch.stack([term.detach().float() for term in terms.values()])
        new = (self.first < 0) & ~torch.isfinite(values.sum())
        self.names, self.values = list(terms), torch.where(new, values, self.values)
        self.first = torch.where(new, step, self.first)

    def found(self) -> int | None:
        """The step, if there was one. Waits for the device."""
        first = int(self.first)
        return None if first < 0 else first

    def broken(self) -> str:
        """What was not finite then: the loss, and which of its terms."""
        terms = dict(zip(self.names, self.values.isfinite().tolist(), strict=True))
        odd = [name for name, finite in terms.items() if not finite]
        return "the loss" + (f" (its terms: {listing(odd)})" if odd and len(terms) > 1 else "")


def all_finite(module: nn.Module) -> bool:
    """Whether every trained parameter is. Waits for the device."""
    trained = [torch.isfinite(p.detach()).all() for p in module.parameters() if p.requires_grad]
    return not trained or bool(torch.stack(trained).all())


def explain(
    broken: str,
    step: int,
    *,
    epoch: int,
    rows: Rows,
    batch: DomainBatch,
    losses: list[float],
    settings: TrainingSettings,
) -> NotFiniteError:
    """The error for a loss or weight that is not finite; ``losses`` are the means of the epochs before."""
    shown = listing(rows[:8]) + (" ..." if len(rows) > 8 else "")
    where = f"{broken} is not a finite number at step {step} (epoch {epoch + 1}, rows {shown})"
    return NotFiniteError(f"{where}: {_cause(batch, rows, losses, settings)}")


def _cause(batch: DomainBatch, rows: Rows, losses: list[float], settings: TrainingSettings) -> str:
    for name, values in (("inputs", batch.inputs), ("targets", batch.targets)):
        odd = ~torch.isfinite(values).flatten(1).all(1) if values.dim() > 1 else ~torch.isfinite(values)
        if bool(odd.any()):
            return f"the {name} of row {rows[int(odd.nonzero()[0])]} hold NaN or infinity; clean the data"
    largest = float(batch.inputs.float().abs().amax())
    if largest > 1e4:
        return f"the inputs of this batch reach {largest:.3g}; standardise the features first"
    if settings.precision == "16":
        return "numbers of 16 bits overflow easily; use --precision bf16 or 32"
    growing = len(losses) > 1 and losses[-1] > 2 * min(losses)
    grew = f"it had grown from {min(losses):.3g} to {losses[-1]:.3g} by then; " if growing else ""
    return (
        f"{grew}the learning rate {settings.rate:g} is probably too high for {settings.optimizer}; "
        f"try --rate {settings.rate / 10:g}"
    )
