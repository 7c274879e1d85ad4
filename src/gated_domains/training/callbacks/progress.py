"""Progress: one protocol for everything that shows, passes on or records how far trainings are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gated_domains.training.callbacks.base import Callback

if TYPE_CHECKING:
    from gated_domains.runs.storage import BusyError
    from gated_domains.training.trainer import Trainer


class ProgressCallback(Callback):
    """Is told how far one training or a grid of trainings is; every method does nothing unless overridden.

    A `Trainer` calls `on_step` and `on_epoch`. A runner calls `on_run_start` and `on_run_end` around the training, and
    an executor that makes several runs at a time calls all of them, with the number of the ``worker``, counted from 0.
    An executor that hears of a run only when it is done calls `on_run_end` alone, with its ``seconds``.

    Recipes and folders are those of `gated_domains.experiments`, which this package does not import.

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
