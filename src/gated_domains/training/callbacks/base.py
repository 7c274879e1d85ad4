"""The callback: one behaviour that is added to a training, called at the points of its loop."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from gated_domains.evaluation.metrics import Evidence
    from gated_domains.training.trainer import Trainer


class Callback:
    """One behaviour of a training; every hook does nothing unless a subclass overrides it.

    A `Trainer` calls its callbacks in their order: first those that its settings ask for (finite losses, averages of
    the weights, early stopping), then those that it was given, last of all `Checkpoint`, so that a checkpoint has
    what the others have just changed. What a callback reads it takes from the trainer: ``epoch``, ``step``, ``batch``
    (batches taken in this epoch), ``method``, ``settings``, ``terms`` (the terms of the last loss), ``fabric``.

    Attributes
    ----------
    rank_zero_only : bool
        Whether only the first of several processes calls it, as befits a callback that writes or shows something. Such
        a callback must not exchange anything with other processes.

    Examples
    --------
    >>> class StopWhenPerfect(Callback):
    ...     def on_validation_end(self, trainer, evidence, score):
    ...         trainer.should_stop = score >= 1.0
    >>> Trainer(method, data, settings, fabric=fabric, seed=0, rule=rule, callbacks=[StopWhenPerfect()]).fit()
    """

    rank_zero_only: ClassVar[bool] = False

    def resume(self, trainer: Trainer) -> bool:
        """Restore the state of an earlier, interrupted training.

        Returns
        -------
        bool
            Whether there was one. If not, and no other callback has one, the method prepares itself on training data.
        """
        return False

    def on_fit_start(self, trainer: Trainer) -> None:
        """Called once, after the training has been resumed or the method has been prepared."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Called before the first batch of an epoch, and when the rest of an interrupted epoch begins."""

    def on_step_end(self, trainer: Trainer) -> None:
        """Called after every optimizer step; ``trainer.step`` already counts it."""

    def on_validation_start(self, trainer: Trainer) -> None:
        """Called after the last batch of an epoch, before anything is predicted."""

    def on_validation_end(self, trainer: Trainer, evidence: Evidence, score: float) -> None:
        """Called while the method still has the weights that were validated.

        Parameters
        ----------
        trainer
            The training.
        evidence
            Predictions for the validation rows, their targets and scores.
        score
            What the selection rule makes of them; higher is better.
        """

    def on_epoch_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Called at the very end of an epoch; ``trainer.epoch`` already counts it.

        Parameters
        ----------
        trainer
            The training.
        record
            The numbers of the epoch: mean losses, validation scores, measures of the method, learning rate.
        """

    def on_checkpoint_start(self, trainer: Trainer) -> None:
        """Called before the state of the training is written; an error keeps the previous checkpoint."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """Called once after the last epoch, before the outcome is measured; not after an error."""

    def refitting(self, trainer: Trainer) -> AbstractContextManager[None]:
        """Entered around what rewrites weights without training them: a method that refits its gates to the data."""
        return nullcontext()

    def evaluation_weights(self, trainer: Trainer) -> AbstractContextManager[None]:
        """Entered around every evaluation; it may exchange the weights of the method for others inside."""
        return nullcontext()

    def evaluation_statistics(self, trainer: Trainer) -> AbstractContextManager[None]:
        """Entered inside `evaluation_weights`, in eval mode: the place to recompute statistics for those weights."""
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to continue exactly: nested dicts, lists, numbers, strings and tensors.

        A checkpoint keeps it under the name of the class: a trainer takes one callback with a state of each class.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``; an empty one where the checkpoint knows nothing of this callback."""
