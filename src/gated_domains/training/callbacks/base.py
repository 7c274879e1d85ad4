"""Callbacks of the trainer: the base class, progress, and the log of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from gated_domains.evaluation.metrics import Evidence
    from gated_domains.runs.storage import BusyError
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


class ProgressCallback(Callback):
    """Receives the progress of one training or of a grid; every method does nothing unless overridden.

    A `Trainer` calls `on_step` and `on_epoch`. A runner calls `on_run_start` and `on_run_end` around the training, and
    an executor that makes several runs at a time calls all of them, with the number of the ``worker``, counted from 0.
    An executor that hears of a run only when it is done calls `on_run_end` alone, with its ``seconds``.

    Recipes and folders are those of `gated_domains.runs`.

    Examples
    --------
    >>> class Lines(ProgressCallback):
    ...     def on_epoch(self, record, *, worker=0):
    ...         print(record["epoch"], record["validation"]["overall"])
    """

    rank_zero_only: ClassVar[bool] = True

    def on_run_start(self, recipe: Any, folder: Any, *, epochs: int, worker: int = 0) -> None:
        """Called before a run is trained.

        Parameters
        ----------
        recipe, folder
            The `Recipe` and the `RunFolder` of the run.
        epochs
            The number of epochs if the training does not stop early.
        worker
            The worker that trains it.
        """

    def on_step(self, step: int, steps: int, *, worker: int = 0) -> None:
        """Called after an optimizer step, or a few times a second: ``step`` of at most ``steps`` are done."""

    def on_epoch(self, record: dict[str, Any], *, worker: int = 0) -> None:
        """Called after an epoch with its ``record``, as `Callback.on_epoch_end`."""

    def on_run_end(
        self, recipe: Any, folder: Any, result: dict[str, Any], *, worker: int = 0, seconds: float | None = None
    ) -> None:
        """Called when a run is finished.

        Parameters
        ----------
        recipe, folder
            The `Recipe` and the `RunFolder` of the run.
        result
            Its result, as in ``result.json``.
        worker
            The worker that trained it.
        seconds
            How long that took, where the executor knows; None where `on_run_start` was called.
        """

    def on_run_found(self, recipe: Any, folder: Any) -> None:
        """Called when another process has finished a run in the meantime."""

    def on_run_lost(self, recipe: Any, why: str, *, worker: int = 0) -> None:
        """Called when the process that trained a run has died; the run will be tried again."""

    def on_wait(self, busy: Sequence[BusyError]) -> None:
        """Called when all runs that are left are being made by other processes."""

    def on_step_end(self, trainer: Trainer) -> None:
        """Pass the step on to `on_step`."""
        self.on_step(trainer.step, trainer.total_steps)

    def on_epoch_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Pass the record on to `on_epoch`."""
        self.on_epoch(record)


@runtime_checkable
class MetricsLog(Protocol):
    """Where records of epochs are kept, as a `RunFolder` does."""

    def append_metrics(self, record: dict[str, Any]) -> None: ...
    def keep_metrics(self, through_step: int) -> None: ...


class MetricsWriter(Callback):
    """Appends the record of every epoch to a log.

    An interrupted training may have logged an epoch that its last checkpoint does not have. Such records are removed
    when it is resumed, because the epoch is then trained again.

    Parameters
    ----------
    log
        Anything with ``append_metrics(record)`` and ``keep_metrics(through_step)``.
    """

    rank_zero_only: ClassVar[bool] = True

    def __init__(self, log: MetricsLog) -> None:
        self.log = log

    def on_fit_start(self, trainer: Trainer) -> None:
        """Remove the records of epochs that will be trained again."""
        self.log.keep_metrics(trainer.step - trainer.batch if trainer.resumed else -1)

    def on_epoch_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Append the record."""
        self.log.append_metrics(record)
